package transfer

import "time"

// observation is what a step has seen of the bank.
type observation int

const (
	sawUncertain observation = iota // a send that proved nothing
	sawNotSent
	sawAccepted
	sawRefused
	sawHeld
	sawRetryLater
	sawOtherTransfer // the answer to a send is about another transfer
	sawUnknown       // a question that proved nothing
	sawNotFound
	sawPending
	sawConfirmed
	sawRejected
	sawReturned
	sawMismatch        // the status API has another transfer, or more than one
	sawAttention       // the status is one that a person has to look at
	sawSupersededAlive // the status API has a transfer under a key that was given up
	sawDecidedConfirmed
	sawDecidedRejected
	sawDecidedReturned
	sawDecidedResend
)

func (r SendResult) observation() observation {
	switch r.Class {
	case SendNotSent:
		return sawNotSent
	case SendAccepted:
		return sawAccepted
	case SendRejected:
		return sawRefused
	case SendHeld:
		return sawHeld
	case SendRetryLater:
		return sawRetryLater
	case SendManual:
		return sawOtherTransfer
	case SendUncertain:
		return sawUncertain
	}
	return sawUncertain
}

func (r StatusResult) observation() observation {
	switch r.Reading {
	case StatusNotFound:
		return sawNotFound
	case StatusPending:
		return sawPending
	case StatusConfirmed:
		return sawConfirmed
	case StatusRejected:
		return sawRejected
	case StatusReturned:
		return sawReturned
	case StatusManual:
		return sawMismatch
	case StatusAttention:
		return sawAttention
	case StatusUnknown:
		return sawUnknown
	}
	return sawUnknown
}

// transition is one row of the state machine: in state from, having seen on,
// and where guard holds, go to state to. The first row that applies counts.
type transition struct {
	from  State
	on    observation
	guard func(p Policy, in Instruction, took Interval) bool // nil: always
	to    State
	then  func(p Policy, next *Instruction, took Interval) // nil: nothing beside the state
	// resend lets the same step send again, with the same key and body.
	resend bool
	// critical marks what must never happen: somebody has to look now.
	critical bool
	note     string // for the event row
}

// transitions is the whole state machine. A state and an observation that have
// no row in it cannot come together: sends are made in state uncertain only,
// returned and manual are not asked about, and people decide about manual alone.
var transitions = []transition{
	// After a send.
	{from: StateUncertain, on: sawUncertain, to: StateUncertain},
	{from: StateUncertain, on: sawNotSent, guard: pastDeadline, to: StateManual, then: uncountUnsent, note: "could not be sent for 7 days"},
	{from: StateUncertain, on: sawNotSent, to: StateUncertain, then: uncountUnsent},
	{from: StateUncertain, on: sawRetryLater, guard: pastDeadline, to: StateManual, note: "the bank asked to come later for 7 days"},
	{from: StateUncertain, on: sawRetryLater, to: StateUncertain, then: deferSend},
	{from: StateUncertain, on: sawHeld, to: StateUncertain, note: "the bank does not let us in: check the token and its rights"},
	{from: StateUncertain, on: sawAccepted, to: StateAccepted},
	{from: StateUncertain, on: sawRefused, to: StateRejected},
	{from: StateUncertain, on: sawOtherTransfer, to: StateManual, critical: true, note: "the bank answered with another transfer"},

	// After a question, while nothing is known.
	{from: StateUncertain, on: sawUnknown, guard: pastDeadline, to: StateManual, note: "no final answer in 7 days"},
	{from: StateUncertain, on: sawUnknown, to: StateUncertain},
	{from: StateUncertain, on: sawNotFound, guard: keyForgotten, to: StateManual, note: "the bank does not know the key and may have forgotten it: sending again could pay twice"},
	{from: StateUncertain, on: sawNotFound, guard: pastDeadline, to: StateManual, note: "no final answer in 7 days"},
	{from: StateUncertain, on: sawNotFound, guard: neverSentUnderItsKey, to: StateUncertain, resend: true, note: "no key is known to the bank: sending under the new one"},
	{from: StateUncertain, on: sawNotFound, guard: mayResend, to: StateUncertain, resend: true, note: "not found twice: sending the same key and bytes again"},
	{from: StateUncertain, on: sawNotFound, to: StateUncertain, then: rememberNotFound},
	{from: StateUncertain, on: sawPending, to: StateAccepted},
	{from: StateUncertain, on: sawConfirmed, to: StateConfirmed},
	{from: StateUncertain, on: sawRejected, to: StateRejected},
	{from: StateUncertain, on: sawReturned, to: StateReturned},
	{from: StateUncertain, on: sawMismatch, to: StateManual, critical: true, note: "the bank has another transfer under the key, or more than one"},
	{from: StateUncertain, on: sawAttention, to: StateManual, note: "the bank's status is one that a person has to look at"},
	{from: StateUncertain, on: sawSupersededAlive, to: StateManual, critical: true, note: supersededIsAlive},

	// While the bank has it.
	{from: StateAccepted, on: sawUnknown, guard: pastDeadline, to: StateManual, note: "no final answer in 7 days"},
	{from: StateAccepted, on: sawUnknown, to: StateAccepted},
	{from: StateAccepted, on: sawNotFound, to: StateManual, note: "the bank no longer knows a transfer that it had accepted"},
	{from: StateAccepted, on: sawPending, guard: pastDeadline, to: StateManual, note: "no final answer in 7 days"},
	{from: StateAccepted, on: sawPending, to: StateAccepted},
	{from: StateAccepted, on: sawConfirmed, to: StateConfirmed},
	{from: StateAccepted, on: sawRejected, to: StateRejected},
	{from: StateAccepted, on: sawReturned, to: StateReturned},
	{from: StateAccepted, on: sawMismatch, to: StateManual, critical: true, note: "the bank has another transfer under the key, or more than one"},
	{from: StateAccepted, on: sawAttention, to: StateManual, note: "the bank's status is one that a person has to look at"},
	{from: StateAccepted, on: sawSupersededAlive, to: StateManual, critical: true, note: supersededIsAlive},

	// Watched for returns.
	{from: StateConfirmed, on: sawUnknown, to: StateConfirmed},
	{from: StateConfirmed, on: sawNotFound, to: StateConfirmed, note: "the bank no longer shows a transfer that it had executed"},
	{from: StateConfirmed, on: sawPending, to: StateConfirmed, note: "the bank says pending of a transfer that it had executed"},
	{from: StateConfirmed, on: sawConfirmed, to: StateConfirmed},
	{from: StateConfirmed, on: sawRejected, to: StateManual, critical: true, note: "the bank says rejected of a transfer that it had executed"},
	{from: StateConfirmed, on: sawReturned, to: StateReturned},
	{from: StateConfirmed, on: sawMismatch, to: StateManual, critical: true, note: "the bank has another transfer under the key, or more than one"},
	{from: StateConfirmed, on: sawAttention, to: StateManual, note: "the bank's status is one that a person has to look at"},
	{from: StateConfirmed, on: sawSupersededAlive, to: StateManual, critical: true, note: supersededIsAlive},

	// Watched for a bank that executes what it had rejected.
	{from: StateRejected, on: sawUnknown, to: StateRejected},
	{from: StateRejected, on: sawNotFound, to: StateRejected},
	{from: StateRejected, on: sawPending, to: StateRejected, note: "the bank says pending of a transfer that it had rejected"},
	{from: StateRejected, on: sawConfirmed, to: StateManual, critical: true, note: "the bank executed a transfer that it had rejected: the movement is reversed and the money is gone"},
	{from: StateRejected, on: sawRejected, to: StateRejected},
	{from: StateRejected, on: sawReturned, to: StateRejected, note: "the bank says returned of a transfer that it had rejected"},
	{from: StateRejected, on: sawAttention, to: StateRejected, note: "the bank's status is one that a person has to look at"},
	{from: StateRejected, on: sawMismatch, to: StateManual, critical: true, note: "the bank has another transfer under the key, or more than one"},
	{from: StateRejected, on: sawSupersededAlive, to: StateManual, critical: true, note: supersededIsAlive},

	// After people have decided, and Policy.Decide has no objection.
	{from: StateManual, on: sawDecidedConfirmed, to: StateConfirmed},
	{from: StateManual, on: sawDecidedRejected, to: StateRejected},
	{from: StateManual, on: sawDecidedReturned, to: StateReturned},
	{from: StateManual, on: sawDecidedResend, to: StateUncertain},
}

const supersededIsAlive = "the bank has a transfer under a key that was given up: it may be paid twice"

// pastDeadline holds 7 days after the instruction was created, or got a new key.
func pastDeadline(_ Policy, in Instruction, took Interval) bool {
	return !took.Ended.Before(in.keySince().Add(giveUpAfter))
}

// neverSentUnderItsKey holds for an instruction that was given a new key and not
// sent under it yet. It is asked about first: the same question says what became
// of the keys that it had.
func neverSentUnderItsKey(_ Policy, in Instruction, _ Interval) bool {
	return in.Sends == 0 && len(in.Superseded) > 0
}

// keyForgotten holds once the bank may have forgotten the key: not found then
// proves nothing, and sending again could be a second transfer.
func keyForgotten(_ Policy, in Instruction, took Interval) bool {
	return !in.ResendNotAfter.IsZero() && !took.Ended.Before(in.ResendNotAfter)
}

// mayResend holds when not found was seen before, at least the visibility lag
// ago, and there were fewer resends than allowed. keyForgotten comes before it in
// the table.
func mayResend(p Policy, in Instruction, took Interval) bool {
	seenBefore := !in.NotFoundSince.IsZero() && !took.Began.Before(in.NotFoundSince.Add(p.lag()))
	return seenBefore && p.sendIsOver(in, took.Began) && in.Sends <= maxResends
}

// sendIsOver holds when the latest send has ended by its own deadline, and the
// status API would show it.
func (p Policy) sendIsOver(in Instruction, now time.Time) bool {
	return !now.Before(in.LastSentAt.Add(p.SendTimeout + p.lag()))
}

// uncountUnsent undoes the count of a send of which no byte was written.
func uncountUnsent(_ Policy, next *Instruction, _ Interval) {
	next.Sends--
	if next.Sends == 0 {
		next.FirstSentAt, next.LastSentAt, next.ResendNotAfter = time.Time{}, time.Time{}, time.Time{}
	}
}

// deferSend lets the next step send again without asking, because the bank asked
// for that. The send stays counted: the bank has seen it.
func deferSend(_ Policy, next *Instruction, _ Interval) { next.SendDeferred = true }

// rememberNotFound notes the first not found that means something: one that was
// seen while the send was still under way does not.
func rememberNotFound(p Policy, next *Instruction, took Interval) {
	if next.NotFoundSince.IsZero() && p.sendIsOver(*next, took.Began) {
		next.NotFoundSince = took.Ended
	}
}
