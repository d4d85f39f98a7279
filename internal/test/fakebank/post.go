package fakebank

import (
	"crypto/subtle"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"
)

// post answers a send.
func (b *Bank) post(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get(keyHeader)
	var (
		s      *keyState
		number int // of the key's sends, from 1
	)
	b.locked(func(time.Time) {
		s = b.state(key)
		s.Posts++
		s.inFlight++
		s.MaxInFlight = max(s.MaxInFlight, s.inFlight)
		number = s.Posts
	})
	defer b.locked(func(time.Time) { s.inFlight-- })
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		b.transmit(w, problemReply(http.StatusRequestEntityTooLarge, "", ""))
		return
	}
	if err != nil {
		b.transmit(w, reply{answer: AnswerClose}) // the client is gone
		return
	}
	var answer reply
	b.locked(func(now time.Time) { answer = b.receive(s, number, r.Header, body, now) })
	b.transmit(w, answer)
}

// receive handles a complete send.
func (b *Bank) receive(s *keyState, number int, header http.Header, body []byte, now time.Time) reply {
	key := header.Get(keyHeader)
	b.checkSend(key, s, body)
	o, err := readOrder(body)
	if err == nil {
		s.order = o
		if o.ClientReference != key {
			b.violate(RuleKeyIsReference, "key %q came with another client_reference", key)
			err = errors.New("the client_reference is not the key")
		}
	}
	plan := b.plan(o.CreditorAccount)
	a := plan.attempt(number)
	switch mediaType, _, _ := mime.ParseMediaType(header.Get("Content-Type")); {
	case a.Before == BeforeRefuse:
		return reply{answer: AnswerClose}
	case a.Before == BeforeHang:
		return reply{answer: AnswerHang}
	case a.BeforeStatus != 0:
		return scriptedReply(a.BeforeStatus, "", a.RetryAfter, key)
	case !b.authorized(header):
		return problemReply(http.StatusUnauthorized, "", "")
	case mediaType != typeJSON:
		return problemReply(http.StatusUnsupportedMediaType, "", "")
	case key == "":
		return problemReply(http.StatusBadRequest, "", "the key is missing")
	case err != nil:
		return problemReply(http.StatusBadRequest, "", err.Error())
	}
	answer := b.consider(s, send{key: key, body: body, order: o, plan: plan, attempt: a}, now)
	answer.answer = a.Answer
	return answer
}

func (b *Bank) authorized(header http.Header) bool {
	want := "Bearer " + b.options.Token
	return b.options.Token == "" || subtle.ConstantTimeCompare([]byte(header.Get("Authorization")), []byte(want)) == 1
}

// consider refuses, replays or executes the transfer.
func (b *Bank) consider(s *keyState, x send, now time.Time) reply {
	a := x.attempt
	if a.Reject != "" {
		return scriptedReply(http.StatusUnprocessableEntity, a.Reject, a.RetryAfter, x.key)
	}
	answer := reply{status: http.StatusCreated, contentType: typeJSON}
	if known := s.remembered(now); known != nil {
		answer = known.answer(x.body, x.plan.Key.Same, a.Answer)
	} else {
		answer.body = encode(b.execute(s, x, now).answeredAs(a.Answer))
		if a.AfterStatus >= http.StatusInternalServerError {
			b.failed(s, x, now)
		}
	}
	if a.AfterStatus != 0 {
		return scriptedReply(a.AfterStatus, "", a.RetryAfter, x.key)
	}
	answer.setHeader("Retry-After", a.RetryAfter)
	return answer
}
