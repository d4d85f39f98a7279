package fakebank

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// Requests is what came with one key.
type Requests struct {
	// Posts is the number of sends that arrived, whether their body was read or
	// not.
	Posts int
	// Received is the number of sends that were read to their end.
	Received int
	// Gets is the number of questions.
	Gets int
	// MaxInFlight is how many sends were worked on at once, at most. A send whose
	// client has gone away counts until the bank has noticed.
	MaxInFlight int
	// Bodies are the bodies of the sends that were read to their end, in order.
	Bodies [][]byte
	// Headers are the headers of all sends, in order, without what stands in
	// Authorization.
	Headers []http.Header
}

// keyState is everything about one key: what came, and what the bank made of it.
type keyState struct {
	Requests

	inFlight int
	first    []byte // the first body, which all others must equal
	order    order  // of the last body that could be read
	record   *keyRecord
	executed []*transfer // in order
}

// state returns the state of a key, which begins to exist by that.
func (b *Bank) state(key string) *keyState {
	s, ok := b.keys[key]
	if !ok {
		s = new(keyState)
		b.keys[key] = s
	}
	return s
}

// Requests returns what came, by key. It is a copy.
func (b *Bank) Requests() map[string]Requests {
	all := make(map[string]Requests)
	b.locked(func(time.Time) {
		for key, s := range b.keys {
			all[key] = s.clone()
		}
	})
	return all
}

// RequestsOf returns what came with a key. It is a copy.
func (b *Bank) RequestsOf(key string) (came Requests) {
	b.locked(func(time.Time) {
		if s, ok := b.keys[key]; ok {
			came = s.clone()
		}
	})
	return came
}

func (r Requests) clone() Requests {
	bodies, headers := r.Bodies, r.Headers
	r.Bodies, r.Headers = nil, nil
	for _, body := range bodies {
		r.Bodies = append(r.Bodies, bytes.Clone(body))
	}
	for _, header := range headers {
		r.Headers = append(r.Headers, header.Clone())
	}
	return r
}

// withoutToken is the header as it is kept.
func withoutToken(header http.Header) http.Header {
	header = header.Clone()
	for i, value := range header.Values("Authorization") {
		scheme, _, _ := strings.Cut(value, " ")
		header["Authorization"][i] = scheme
	}
	return header
}
