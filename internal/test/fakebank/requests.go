package fakebank

import "time"

// Requests counts the requests under one key.
type Requests struct {
	// Posts is the number of sends whose headers arrived.
	Posts int
	// MaxInFlight is the largest number of concurrent sends. A send whose client is
	// gone counts until the bank notices.
	MaxInFlight int
}

// keyState is the bank's state of one key.
type keyState struct {
	Requests

	gets     int
	inFlight int
	received int
	first    []byte // the first body, which all others must equal
	order    order  // of the last valid body
	record   *keyRecord
	executed []*transfer // in order
}

// state returns the state of a key, and creates it at the first call.
func (b *Bank) state(key string) *keyState {
	s, ok := b.keys[key]
	if !ok {
		s = new(keyState)
		b.keys[key] = s
	}
	return s
}

// Requests returns the requests by key.
func (b *Bank) Requests() map[string]Requests {
	all := make(map[string]Requests)
	b.locked(func(time.Time) {
		for key, s := range b.keys {
			all[key] = s.Requests
		}
	})
	return all
}
