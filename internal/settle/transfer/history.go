package transfer

import (
	"slices"
	"strings"
	"time"
)

// MaxSends is how often an instruction can be sent, the first time included.
const MaxSends = 1 + maxResends

// ResendWindow is how long after the first send the same key can be sent again,
// at a bank that remembers a key for the given time.
func ResendWindow(keyLifetime time.Duration) time.Duration { return keyLifetime * 4 / 5 }

// keyLifetime is how long the bank remembers the key by the configuration of
// whoever sent it first, of which [ResendWindow] was stored; zero where it was
// never sent.
func (in Instruction) keyLifetime() time.Duration {
	return in.ResendNotAfter.Sub(in.FirstSentAt) * 5 / 4
}

// Possible reports whether the state machine can make such an event: whether its
// cause leads from the one state to the other.
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

// cause is what makes the event of an observation.
func (o observation) cause() string {
	switch {
	case o <= sawOtherTransfer:
		return CauseAnswer
	case o >= sawDecidedConfirmed:
		return CauseDecided
	}
	return CauseStatus
}

// Reverses reports whether the event undoes the movement.
func (e Event) Reverses() bool { return e.To != e.From && e.To.reverses() }

// Supersedes reports whether the event gives the instruction a new key, under
// which it was never sent.
func (e Event) Supersedes() bool {
	return e.Cause == CauseDecided && e.To == StateUncertain
}

// SendBounds returns the least and the most number of sends that an instruction
// with such a history can count. They differ, because the history does not always
// tell: an instruction can be created by a delivery that holds it for its send or
// by one that does not, and a question can have led to a send.
func SendBounds(history []Event) (least, most int64) {
	for _, e := range history {
		switch e.Cause {
		case CauseDecided:
			if e.Supersedes() {
				least, most = 0, 0
			}
		case CauseCreated:
			most++
		case CauseSend:
			least, most = least+1, most+1
		case CauseStatus:
			if e.From == StateUncertain && e.To == StateUncertain {
				most++
			}
		case CauseAnswer:
			least = max(least, 1) // it was counted before it was answered
			if class, _, _ := strings.Cut(e.Detail, ";"); class == SendNotSent.String() {
				least, most = least-1, most-1 // and taken back
			}
		}
	}
	return least, min(most, MaxSends)
}
