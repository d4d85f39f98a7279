package transfer

import "time"

// observation is the input of the state machine: the result of a send, of a status
// request, or of a decision.
type observation int

const (
	sawUncertain observation = iota // a send that proved nothing
	sawNotSent
	sawAccepted
	sawRefused
	sawHeld
	sawRetryLater
	sawOtherTransfer // the answer to a send is about a different transfer
	sawUnknown       // a status request that proved nothing
	sawNotFound
	sawPending
	sawConfirmed
	sawRejected
	sawReturned
	sawMismatch  // the bank has a different transfer, or more than one
	sawAttention // the status needs people
	sawDecidedConfirmed
	sawDecidedRejected
	sawDecidedReturned
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

// transition is one row of the state machine: from state from, after observation on, if
// guard holds, to state to. The first matching row applies.
type transition struct {
	from  State
	on    observation
	guard func(p Policy, in Instruction, took Interval) bool // nil: always
	to    State
	then  func(p Policy, next *Instruction, took Interval) // further changes; nil for none
	// resend lets the same step send again, with the same key and body.
	resend bool
	// critical marks a contradiction of the bank. It is logged as CRITICAL.
	critical bool
	note     string // for the event row
}

// transitions is the whole state machine. Combinations without a row are impossible: a
// step sends in state uncertain only and asks about neither returned nor manual
// instructions, and people decide about manual ones only.
var transitions = []transition{
	// After a send.
	{from: StateUncertain, on: sawUncertain, to: StateUncertain},
	{from: StateUncertain, on: sawNotSent, guard: pastDeadline, to: StateManual, then: uncountUnsent, note: "could not be sent for 7 days"},
	{from: StateUncertain, on: sawNotSent, to: StateUncertain, then: uncountUnsent},
	{from: StateUncertain, on: sawRetryLater, guard: pastDeadline, to: StateManual, note: "the bank asked to come later for 7 days"},
	{from: StateUncertain, on: sawRetryLater, to: StateUncertain, then: deferSend},
	{from: StateUncertain, on: sawHeld, to: StateUncertain, note: "the bank rejected our credentials: check the token and its rights"},
	{from: StateUncertain, on: sawAccepted, to: StateAccepted},
	{from: StateUncertain, on: sawRefused, to: StateRejected},
	{from: StateUncertain, on: sawOtherTransfer, to: StateManual, critical: true, note: "the bank answered with another transfer"},

	// After a status request, while the outcome is unknown.
	{from: StateUncertain, on: sawUnknown, guard: pastDeadline, to: StateManual, note: "no final answer in 7 days"},
	{from: StateUncertain, on: sawUnknown, to: StateUncertain},
	{from: StateUncertain, on: sawNotFound, guard: keyForgotten, to: StateManual, note: "the bank does not know the key and may have forgotten it: sending again could pay twice"},
	{from: StateUncertain, on: sawNotFound, guard: pastDeadline, to: StateManual, note: "no final answer in 7 days"},
	{from: StateUncertain, on: sawNotFound, guard: mayResend, to: StateUncertain, resend: true, note: "not found twice: sending the same key and bytes again"},
	{from: StateUncertain, on: sawNotFound, to: StateUncertain, then: rememberNotFound},
	{from: StateUncertain, on: sawPending, to: StateAccepted},
	{from: StateUncertain, on: sawConfirmed, to: StateConfirmed},
	{from: StateUncertain, on: sawRejected, to: StateRejected},
	{from: StateUncertain, on: sawReturned, to: StateReturned},
	{from: StateUncertain, on: sawMismatch, to: StateManual, critical: true, note: "the bank has another transfer under the key, or more than one"},
	{from: StateUncertain, on: sawAttention, to: StateManual, note: "the bank's status needs a person"},

	// While the bank has the transfer.
	{from: StateAccepted, on: sawUnknown, guard: pastDeadline, to: StateManual, note: "no final answer in 7 days"},
	{from: StateAccepted, on: sawUnknown, to: StateAccepted},
	{from: StateAccepted, on: sawNotFound, to: StateManual, note: "the bank no longer knows a transfer that it had accepted"},
	{from: StateAccepted, on: sawPending, guard: pastDeadline, to: StateManual, note: "no final answer in 7 days"},
	{from: StateAccepted, on: sawPending, to: StateAccepted},
	{from: StateAccepted, on: sawConfirmed, to: StateConfirmed},
	{from: StateAccepted, on: sawRejected, to: StateRejected},
	{from: StateAccepted, on: sawReturned, to: StateReturned},
	{from: StateAccepted, on: sawMismatch, to: StateManual, critical: true, note: "the bank has another transfer under the key, or more than one"},
	{from: StateAccepted, on: sawAttention, to: StateManual, note: "the bank's status needs a person"},

	// Watched for returns.
	{from: StateConfirmed, on: sawUnknown, to: StateConfirmed},
	{from: StateConfirmed, on: sawNotFound, to: StateConfirmed, note: "the bank no longer shows a transfer that it had executed"},
	{from: StateConfirmed, on: sawPending, to: StateConfirmed, note: "the bank reports pending for a transfer that it had executed"},
	{from: StateConfirmed, on: sawConfirmed, to: StateConfirmed},
	{from: StateConfirmed, on: sawRejected, to: StateManual, critical: true, note: "the bank reports rejected for a transfer that it had executed"},
	{from: StateConfirmed, on: sawReturned, to: StateReturned},
	{from: StateConfirmed, on: sawMismatch, to: StateManual, critical: true, note: "the bank has another transfer under the key, or more than one"},
	{from: StateConfirmed, on: sawAttention, to: StateManual, note: "the bank's status needs a person"},

	// Watched for a bank that executes a rejected transfer.
	{from: StateRejected, on: sawUnknown, to: StateRejected},
	{from: StateRejected, on: sawNotFound, to: StateRejected},
	{from: StateRejected, on: sawPending, to: StateRejected, note: "the bank reports pending for a transfer that it had rejected"},
	{from: StateRejected, on: sawConfirmed, to: StateManual, critical: true, note: "the bank executed a transfer that it had rejected: the movement is reversed and the money is gone"},
	{from: StateRejected, on: sawRejected, to: StateRejected},
	{from: StateRejected, on: sawReturned, to: StateRejected, note: "the bank reports returned for a transfer that it had rejected"},
	{from: StateRejected, on: sawAttention, to: StateRejected, note: "the bank's status needs a person"},
	{from: StateRejected, on: sawMismatch, to: StateManual, critical: true, note: "the bank has another transfer under the key, or more than one"},

	// After a decision that Policy.Decide does not refuse.
	{from: StateManual, on: sawDecidedConfirmed, to: StateConfirmed},
	{from: StateManual, on: sawDecidedRejected, to: StateRejected},
	{from: StateManual, on: sawDecidedReturned, to: StateReturned},
}

// pastDeadline holds from 7 days after the creation.
func pastDeadline(_ Policy, in Instruction, took Interval) bool {
	return !took.Ended.Before(in.CreatedAt.Add(giveUpAfter))
}

// keyForgotten holds once the bank may have forgotten the key. Then not-found proves
// nothing, and a resend could pay twice.
func keyForgotten(_ Policy, in Instruction, took Interval) bool {
	return !in.ResendNotAfter.IsZero() && !took.Ended.Before(in.ResendNotAfter)
}

// mayResend holds if an earlier not-found is at least the visibility lag old, the latest
// send is over, and a resend is left. The row with keyForgotten precedes it.
func mayResend(p Policy, in Instruction, took Interval) bool {
	secondNotFound := !in.NotFoundSince.IsZero() && !took.Began.Before(in.NotFoundSince.Add(p.lag()))
	return secondNotFound && p.sendIsOver(in, took.Began) && in.Sends <= maxResends
}

// sendIsOver holds once the latest send has passed its time limit, and the visibility
// lag of the status API after it.
func (p Policy) sendIsOver(in Instruction, now time.Time) bool {
	return !now.Before(in.LastSentAt.Add(p.SendTimeout + p.lag()))
}

// uncountUnsent undoes the count of a send without a written byte.
func uncountUnsent(_ Policy, next *Instruction, _ Interval) {
	next.Sends--
	if next.Sends == 0 {
		next.FirstSentAt, next.LastSentAt, next.ResendNotAfter = time.Time{}, time.Time{}, time.Time{}
	}
}

// deferSend lets the next step send without a status request, because the bank asked
// for a retry. The send stays counted: it reached the bank.
func deferSend(_ Policy, next *Instruction, _ Interval) { next.SendDeferred = true }

// rememberNotFound stores the time of the first not-found. A not-found during the send
// does not count.
func rememberNotFound(p Policy, next *Instruction, took Interval) {
	if next.NotFoundSince.IsZero() && p.sendIsOver(*next, took.Began) {
		next.NotFoundSince = took.Ended
	}
}
