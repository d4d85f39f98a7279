package fakebank

import (
	"bytes"
	"cmp"
	"net/http"
	"time"
)

// KeyPolicy is how a bank treats keys. The zero value replays successes, answers
// 409 while a send is in progress and 422 to another body, keeps no failure, and
// forgets nothing.
type KeyPolicy struct {
	// Same is the answer to a key that was used with the same body.
	Same SameKey
	// OtherBody is the answer to a key that was used with another body.
	OtherBody OtherBody
	// After5xx is what a send that was answered with a 5xx (AfterStatus) leaves
	// behind.
	After5xx After5xx
	// Lifetime is how long a key is remembered, from the moment that the bank
	// took it. A send after that is a new transfer. Zero: for ever.
	Lifetime time.Duration
}

// SameKey is the answer to a key that was used with the same body.
type SameKey string

const (
	// SameReplay answers 200, the first answer's body and Idempotent-Replayed. The
	// zero value.
	SameReplay SameKey = ""
	// SameExists answers 409 with [CodeExists].
	SameExists SameKey = "exists"
	// SameInProgress answers 409 with [CodeInProgress], for ever.
	SameInProgress SameKey = "in_progress"
	// SameDuplicate answers 400 with [CodeDuplicate].
	SameDuplicate SameKey = "duplicate"
)

// OtherBody is the answer to a key that was used with another body.
type OtherBody string

const (
	// OtherRefused answers 422 with [CodeOtherBody]. The zero value.
	OtherRefused OtherBody = ""
	// OtherConflict answers 409 with [CodeOtherBody].
	OtherConflict OtherBody = "conflict"
	// OtherInvalid answers 400 with [CodeOtherBody].
	OtherInvalid OtherBody = "invalid"
	// OtherIgnored does not look at the body.
	OtherIgnored OtherBody = "ignored"
)

// After5xx is what a send that was answered with a 5xx leaves behind.
type After5xx string

const (
	// After5xxForgotten leaves nothing: what was executed is replayed, and what was
	// not can be sent again. The zero value.
	After5xxForgotten After5xx = ""
	// After5xxCached answers the same 5xx for the key's lifetime, executed or not.
	After5xxCached After5xx = "cached"
	// After5xxLocked answers 409 with [CodeLocked], executed or not.
	After5xxLocked After5xx = "locked"
)

// keyRecord is what the bank remembers of a key.
type keyRecord struct {
	since    time.Time
	lifetime time.Duration
	body     []byte // of the request
	// What another send is answered; the first that is set counts.
	locked     bool
	inProgress bool
	cached     *reply
	made       wireTransfer
}

func (k *keyRecord) forgotten(now time.Time) bool {
	return k.lifetime > 0 && !now.Before(k.since.Add(k.lifetime))
}

// remembered returns what the bank remembers of the key, or nil.
func (s *keyState) remembered(now time.Time) *keyRecord {
	if s.record != nil && s.record.forgotten(now) {
		s.record = nil
	}
	return s.record
}

// knownKey is the answer to a send with a key that the bank remembers.
func (b *Bank) knownKey(k *keyRecord, body []byte, policy KeyPolicy, answer Answer) reply {
	if !bytes.Equal(k.body, body) && policy.OtherBody != OtherIgnored {
		return b.otherBody(policy.OtherBody)
	}
	switch {
	case k.locked:
		return b.problemReply(http.StatusConflict, CodeLocked, "")
	case k.inProgress:
		return b.problemReply(http.StatusConflict, CodeInProgress, "")
	case k.cached != nil:
		return *k.cached
	}
	switch policy.Same {
	case SameExists:
		return b.problemReply(http.StatusConflict, CodeExists, "")
	case SameInProgress:
		return b.problemReply(http.StatusConflict, CodeInProgress, "")
	case SameDuplicate:
		return b.problemReply(http.StatusBadRequest, CodeDuplicate, "")
	case SameReplay:
	}
	return reply{
		status: http.StatusOK, contentType: typeJSON, body: encode(damaged(k.made, answer)),
		header: http.Header{"Idempotent-Replayed": {"true"}},
	}
}

func (b *Bank) otherBody(policy OtherBody) reply {
	status := map[OtherBody]int{OtherConflict: http.StatusConflict, OtherInvalid: http.StatusBadRequest}[policy]
	return b.problemReply(cmp.Or(status, http.StatusUnprocessableEntity), CodeOtherBody, "")
}
