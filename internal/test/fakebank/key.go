package fakebank

import (
	"bytes"
	"net/http"
	"time"
)

// KeyPolicy is a bank's treatment of known idempotency keys. The zero value
// replays successes, keeps no failure and forgets no key. Every policy answers
// another body under a known key with 422 and idempotency_key_reused.
type KeyPolicy struct {
	// Same is the answer to a known key with the same body.
	Same SameKey
	// After5xx is the effect of a 5xx (AfterStatus) on the key.
	After5xx After5xx
	// Lifetime is the time for which the bank remembers a key. A send after it is a
	// new transfer. Zero: for ever.
	Lifetime time.Duration
}

// SameKey is the answer to a known key with the same body.
type SameKey string

const (
	// SameReplay answers 200, the first answer's body and Idempotent-Replayed. The
	// zero value.
	SameReplay SameKey = ""
	// SameExists answers 409 with already_exists.
	SameExists SameKey = "exists"
	// SameInProgress answers 409 with request_in_progress, for ever.
	SameInProgress SameKey = "in_progress"
	// SameDuplicate answers 400 with duplicate_request.
	SameDuplicate SameKey = "duplicate"
)

// After5xx is the effect of a 5xx on the key.
type After5xx string

const (
	// After5xxForgotten has no effect: the bank replays an executed send, and
	// accepts another send of one that was not executed. The zero value.
	After5xxForgotten After5xx = ""
	// After5xxCached repeats the 5xx for the key's lifetime, executed or not.
	After5xxCached After5xx = "cached"
	// After5xxLocked answers 409 with idempotency_key_locked, executed or not.
	After5xxLocked After5xx = "locked"
)

// keyRecord is the idempotency record of a key.
type keyRecord struct {
	since    time.Time
	lifetime time.Duration
	body     []byte // of the request
	answered wireTransfer
	failed   *reply // repeated instead of the transfer; nil for none
}

// remembered returns the record of the key, or nil where there is none or it has
// expired.
func (s *keyState) remembered(now time.Time) *keyRecord {
	if k := s.record; k != nil && k.lifetime > 0 && !now.Before(k.since.Add(k.lifetime)) {
		s.record = nil
	}
	return s.record
}

// answer is the answer to another send of the key.
func (k *keyRecord) answer(body []byte, same SameKey, answer Answer) reply {
	switch {
	case !bytes.Equal(k.body, body):
		return problemReply(http.StatusUnprocessableEntity, "idempotency_key_reused", "")
	case k.failed != nil:
		return *k.failed
	}
	switch same {
	case SameExists:
		return problemReply(http.StatusConflict, "already_exists", "")
	case SameInProgress:
		return problemReply(http.StatusConflict, "request_in_progress", "")
	case SameDuplicate:
		return problemReply(http.StatusBadRequest, "duplicate_request", "")
	case SameReplay:
	}
	return reply{
		status: http.StatusOK, contentType: typeJSON, body: encode(k.answered.answeredAs(answer)),
		header: http.Header{"Idempotent-Replayed": {"true"}},
	}
}

// failed applies the key policy for a 5xx.
func (b *Bank) failed(s *keyState, x send, now time.Time) {
	answer := problemReply(x.attempt.AfterStatus, "", "")
	switch x.plan.Key.After5xx {
	case After5xxForgotten:
		return
	case After5xxCached:
	case After5xxLocked:
		answer = problemReply(http.StatusConflict, "idempotency_key_locked", "")
	}
	if s.record == nil {
		s.record = x.record(x.answered(s), now)
	}
	s.record.failed = &answer
}
