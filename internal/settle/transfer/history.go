package transfer

import (
	"slices"
	"strings"
	"time"
)

// MaxSends bounds the sends of an instruction, including the first.
const MaxSends = 1 + maxResends

// ResendWindow is the time after the first send in which the same key can be sent again,
// at a bank that remembers a key for keyLifetime. The last fifth is a safety margin.
func ResendWindow(keyLifetime time.Duration) time.Duration { return keyLifetime * 4 / 5 }

// Possible reports whether the state machine has a transition like e.
func (e Event) Possible() bool {
	switch e.Cause {
	case CauseCreated:
		return e.From == StateNone && e.To == StateUncertain
	case CauseSend:
		return e.From == StateUncertain && e.To == StateUncertain
	}
	return slices.ContainsFunc(transitions, func(t transition) bool {
		return t.from == e.From && t.to == e.To && t.on.cause() == e.Cause
	})
}

// cause returns the cause of an observation's event.
func (o observation) cause() string {
	switch {
	case o <= sawOtherTransfer:
		return CauseAnswer
	case o >= sawDecidedConfirmed:
		return CauseDecided
	}
	return CauseStatus
}

// Reverses reports whether the event reverses the movement.
func (e Event) Reverses() bool { return e.To != e.From && e.To.reverses() }

// SendBounds returns the least and the largest possible value of Sends after history.
// They differ because the history does not record every send: the creation may include
// the first send, and a status request may have led to a resend.
func SendBounds(history []Event) (least, most int64) {
	for _, e := range history {
		switch e.Cause {
		case CauseCreated:
			most++
		case CauseSend:
			least, most = least+1, most+1
		case CauseStatus:
			if e.From == StateUncertain && e.To == StateUncertain {
				most++
			}
		case CauseAnswer:
			least = max(least, 1) // an answered send was counted before
			if class, _, _ := strings.Cut(e.Detail, ";"); class == SendNotSent.String() {
				least, most = least-1, most-1 // the answer undid the count
			}
		}
	}
	return least, min(most, MaxSends)
}
