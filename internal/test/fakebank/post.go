package fakebank

import (
	"cmp"
	"crypto/subtle"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"
)

// arrival is a send whose headers have arrived.
type arrival struct {
	key     string
	state   *keyState
	number  int  // of the key's sends, from 1
	decided bool // plan and attempt are known without the body
	plan    Plan
	attempt Attempt
}

// post answers a send.
func (b *Bank) post(w http.ResponseWriter, r *http.Request) {
	a := b.arrive(r)
	defer b.locked(func(time.Time) { a.state.inFlight-- })
	if a.decided && a.attempt.Before == BeforeRefuse {
		b.transmit(w, reply{answer: AnswerClose})
		return
	}
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
	b.locked(func(now time.Time) {
		answer = b.receive(a, r.Header, body, now)
		answer.answer = cmp.Or(answer.answer, a.attempt.Answer)
	})
	b.transmit(w, answer)
}

// arrive counts a send. The plan of a creditor account needs the body, so it is
// looked up later.
func (b *Bank) arrive(r *http.Request) *arrival {
	a := &arrival{key: r.Header.Get(keyHeader)}
	b.locked(func(time.Time) {
		s := b.state(a.key)
		s.Posts++
		s.inFlight++
		s.MaxInFlight = max(s.MaxInFlight, s.inFlight)
		a.state, a.number = s, s.Posts
		_, scripted := b.plans.byKey[a.key]
		if scripted || len(b.plans.byCreditor) == 0 {
			b.decide(a, "")
		}
	})
	return a
}

func (b *Bank) decide(a *arrival, creditor string) {
	a.plan = b.plans.find(a.key, creditor)
	a.attempt, a.decided = a.plan.attempt(a.number), true
}

// receive handles a complete send.
func (b *Bank) receive(a *arrival, header http.Header, body []byte, now time.Time) reply {
	s := a.state
	b.checkSend(a.key, s, body)
	o, err := readOrder(body)
	if err == nil {
		s.order = o
		if o.ClientReference != a.key {
			b.violate(RuleKeyIsReference, "key %q came with another client_reference", a.key)
			err = errors.New("the client_reference is not the key")
		}
	}
	if !a.decided {
		b.decide(a, o.CreditorAccount)
	}
	switch mediaType, _, _ := mime.ParseMediaType(header.Get("Content-Type")); {
	case a.attempt.Before == BeforeRefuse:
		return reply{answer: AnswerClose}
	case a.attempt.Before == BeforeHang:
		return reply{answer: AnswerHang}
	case a.attempt.BeforeStatus != 0:
		return scriptedReply(a.attempt.BeforeStatus, "", a.attempt.RetryAfter, a.key)
	case !b.authorized(header):
		return problemReply(http.StatusUnauthorized, "", "")
	case mediaType != typeJSON:
		return problemReply(http.StatusUnsupportedMediaType, "", "")
	case a.key == "":
		return problemReply(http.StatusBadRequest, "", "the key is missing")
	case err != nil:
		return problemReply(http.StatusBadRequest, "", err.Error())
	}
	return b.consider(s, send{key: a.key, body: body, order: o, plan: a.plan, attempt: a.attempt}, now)
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
