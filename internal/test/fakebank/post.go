package fakebank

import (
	"cmp"
	"crypto/subtle"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// arrival is a send that has arrived.
type arrival struct {
	key     string
	state   *keyState
	number  int // of the key's sends, from 1
	reused  bool
	down    bool
	decided bool // plan and attempt are known without the body
	plan    Plan
	attempt Attempt
}

// post answers a send.
func (b *Bank) post(w http.ResponseWriter, r *http.Request) {
	a := b.arrive(r)
	defer b.leave(a)
	if a.decided && a.attempt.Before == BeforeRefuse {
		b.transmit(w, reply{answer: AnswerClose})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		b.transmit(w, b.problemReply(http.StatusRequestEntityTooLarge, "", ""))
		return
	}
	if err != nil {
		b.transmit(w, reply{answer: AnswerClose}) // the client has gone away
		return
	}
	var answer reply
	b.locked(func(now time.Time) {
		answer = b.receive(a, r.Header, body, now)
		answer.answer, answer.cutAt = cmp.Or(answer.answer, a.attempt.Answer), a.attempt.CutAt
	})
	b.transmit(w, answer)
}

// arrive counts a send and says what happens to it, as far as that is known.
func (b *Bank) arrive(r *http.Request) *arrival {
	a := &arrival{key: b.idempotencyKey(r.Header)}
	b.locked(func(now time.Time) {
		s := b.state(a.key)
		s.Posts++
		s.Headers = append(s.Headers, withoutToken(r.Header))
		s.inFlight++
		s.MaxInFlight = max(s.MaxInFlight, s.inFlight)
		a.state, a.number, a.reused, a.down = s, s.Posts, b.isReused(r.RemoteAddr), now.Before(b.downUntil)
		_, scripted := b.plans.byKey[a.key]
		if scripted || len(b.plans.byCreditor) == 0 {
			b.decide(a, "")
		}
	})
	return a
}

func (b *Bank) leave(a *arrival) {
	b.locked(func(time.Time) { a.state.inFlight-- })
}

// decide says what happens to the send.
func (b *Bank) decide(a *arrival, creditor string) {
	a.plan, a.attempt = b.plans.attempt(a.key, creditor, a.number)
	a.decided = true
	switch {
	case a.down, a.reused && a.plan.KeptAlive == KeptAliveDropped:
		a.attempt = Attempt{Before: BeforeRefuse}
	case a.reused && a.plan.KeptAlive == KeptAliveExecuted:
		a.attempt.Answer = AnswerClose
	}
}

// idempotencyKey returns the key of a request, without the quotes that the bank
// may want.
func (b *Bank) idempotencyKey(header http.Header) string {
	key := header.Get(b.options.KeyHeader)
	if inner, ok := strings.CutPrefix(key, `"`); ok && b.options.QuotedKeys {
		if inner, ok := strings.CutSuffix(inner, `"`); ok {
			return inner
		}
	}
	return key
}

// receive does everything with a send that was read to its end.
func (b *Bank) receive(a *arrival, header http.Header, body []byte, now time.Time) reply {
	s := a.state
	s.Received++
	s.Bodies = append(s.Bodies, body)
	b.policeSend(a.key, s, body)
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
	if answer, over := b.before(a.key, a.attempt); over {
		return answer
	}
	if answer, over := b.check(header, a.key, err); over {
		return answer
	}
	return b.consider(s, send{key: a.key, body: body, order: o, plan: a.plan, attempt: a.attempt}, now)
}

// before ends the exchange before the bank looks at the transfer, if it is to.
func (b *Bank) before(key string, a Attempt) (answer reply, over bool) {
	switch a.Before {
	case BeforeRefuse:
		return reply{answer: AnswerClose}, true
	case BeforeHang:
		return reply{answer: AnswerHang}, true
	case BeforeNothing:
	}
	if a.BeforeStatus == 0 {
		return reply{}, false
	}
	answer = b.statusReply(a.BeforeStatus, a.Code, a.Page)
	answer.setHeader("Retry-After", a.RetryAfter)
	if a.BeforeStatus/100 == 3 {
		answer.setHeader("Location", b.lookUpPath(key))
	}
	return answer, true
}

// check refuses what is not the contract's. The error is the body's.
func (b *Bank) check(header http.Header, key string, err error) (answer reply, over bool) {
	mediaType, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	switch {
	case !b.authorized(header):
		return b.problemReply(http.StatusUnauthorized, "", ""), true
	case mediaType != typeJSON:
		return b.problemReply(http.StatusUnsupportedMediaType, "", ""), true
	case key == "":
		return b.problemReply(http.StatusBadRequest, "", "the key is missing"), true
	case err != nil:
		return b.problemReply(http.StatusBadRequest, "", err.Error()), true
	}
	return reply{}, false
}

func (b *Bank) authorized(header http.Header) bool {
	want := "Bearer " + b.options.Token
	return b.options.Token == "" || subtle.ConstantTimeCompare([]byte(header.Get("Authorization")), []byte(want)) == 1
}

// consider refuses, recognises or executes the transfer.
func (b *Bank) consider(s *keyState, x send, now time.Time) reply {
	a := x.attempt
	if a.Reject != "" {
		answer := b.statusReply(cmp.Or(a.RejectStatus, http.StatusUnprocessableEntity), a.Reject, a.Page)
		answer.setHeader("Retry-After", a.RetryAfter)
		return answer
	}
	answer := reply{status: http.StatusCreated, contentType: typeJSON}
	if known := s.remembered(now); known != nil {
		answer = b.knownKey(known, x.body, x.plan.Key, a.Answer)
	} else {
		answer.body = encode(damaged(b.execute(s, x, now), a.Answer))
		if a.Execute == ExecuteCrash {
			return reply{answer: AnswerClose}
		}
		if a.AfterStatus >= http.StatusInternalServerError {
			b.remember5xx(s, x, now)
		}
	}
	if a.AfterStatus != 0 {
		answer = b.statusReply(a.AfterStatus, a.Code, a.Page)
	}
	answer.setHeader("Retry-After", a.RetryAfter)
	return answer
}

// remember5xx leaves behind what the policy says about a 5xx.
func (b *Bank) remember5xx(s *keyState, x send, now time.Time) {
	policy := x.plan.Key.After5xx
	if policy == After5xxForgotten {
		return
	}
	if s.record == nil {
		s.record = x.claim(x.promise(s), now)
	}
	switch policy {
	case After5xxCached:
		answer := b.statusReply(x.attempt.AfterStatus, x.attempt.Code, x.attempt.Page)
		s.record.cached = &answer
	case After5xxLocked:
		s.record.locked = true
	case After5xxForgotten:
	}
}
