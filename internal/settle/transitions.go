package settle

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
	from  InstructionState
	on    observation
	guard func(p Policy, in Instruction, took Span) bool // nil: always
	to    InstructionState
	then  func(p Policy, next *Instruction, took Span) // nil: nothing beside the state
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
	{from: InstructionUncertain, on: sawUncertain, to: InstructionUncertain},
	{from: InstructionUncertain, on: sawNotSent, guard: outOfPatience, to: InstructionManual, then: takeBackUnsent, note: "could not be sent for 7 days"},
	{from: InstructionUncertain, on: sawNotSent, to: InstructionUncertain, then: takeBackUnsent},
	{from: InstructionUncertain, on: sawRetryLater, guard: outOfPatience, to: InstructionManual, note: "the bank asked to come later for 7 days"},
	{from: InstructionUncertain, on: sawRetryLater, to: InstructionUncertain, then: comeAgain},
	{from: InstructionUncertain, on: sawHeld, to: InstructionUncertain, note: "the bank does not let us in: check the token and its rights"},
	{from: InstructionUncertain, on: sawAccepted, to: InstructionAccepted},
	{from: InstructionUncertain, on: sawRefused, to: InstructionRejected},
	{from: InstructionUncertain, on: sawOtherTransfer, to: InstructionManual, critical: true, note: "the bank answered with another transfer"},

	// After a question, while nothing is known.
	{from: InstructionUncertain, on: sawUnknown, guard: outOfPatience, to: InstructionManual, note: "no final answer in 7 days"},
	{from: InstructionUncertain, on: sawUnknown, to: InstructionUncertain},
	{from: InstructionUncertain, on: sawNotFound, guard: keyForgotten, to: InstructionManual, note: "the bank does not know the key and may have forgotten it: sending again could pay twice"},
	{from: InstructionUncertain, on: sawNotFound, guard: outOfPatience, to: InstructionManual, note: "no final answer in 7 days"},
	{from: InstructionUncertain, on: sawNotFound, guard: neverSentUnderItsKey, to: InstructionUncertain, resend: true, note: "no key is known to the bank: sending under the new one"},
	{from: InstructionUncertain, on: sawNotFound, guard: mayResend, to: InstructionUncertain, resend: true, note: "not found twice: sending the same key and bytes again"},
	{from: InstructionUncertain, on: sawNotFound, to: InstructionUncertain, then: rememberNotFound},
	{from: InstructionUncertain, on: sawPending, to: InstructionAccepted},
	{from: InstructionUncertain, on: sawConfirmed, to: InstructionConfirmed},
	{from: InstructionUncertain, on: sawRejected, to: InstructionRejected},
	{from: InstructionUncertain, on: sawReturned, to: InstructionReturned},
	{from: InstructionUncertain, on: sawMismatch, to: InstructionManual, critical: true, note: "the bank has another transfer under the key, or more than one"},
	{from: InstructionUncertain, on: sawAttention, to: InstructionManual, note: "the bank's status is one that a person has to look at"},
	{from: InstructionUncertain, on: sawSupersededAlive, to: InstructionManual, critical: true, note: supersededIsAlive},

	// While the bank has it.
	{from: InstructionAccepted, on: sawUnknown, guard: outOfPatience, to: InstructionManual, note: "no final answer in 7 days"},
	{from: InstructionAccepted, on: sawUnknown, to: InstructionAccepted},
	{from: InstructionAccepted, on: sawNotFound, to: InstructionManual, note: "the bank no longer knows a transfer that it had accepted"},
	{from: InstructionAccepted, on: sawPending, guard: outOfPatience, to: InstructionManual, note: "no final answer in 7 days"},
	{from: InstructionAccepted, on: sawPending, to: InstructionAccepted},
	{from: InstructionAccepted, on: sawConfirmed, to: InstructionConfirmed},
	{from: InstructionAccepted, on: sawRejected, to: InstructionRejected},
	{from: InstructionAccepted, on: sawReturned, to: InstructionReturned},
	{from: InstructionAccepted, on: sawMismatch, to: InstructionManual, critical: true, note: "the bank has another transfer under the key, or more than one"},
	{from: InstructionAccepted, on: sawAttention, to: InstructionManual, note: "the bank's status is one that a person has to look at"},
	{from: InstructionAccepted, on: sawSupersededAlive, to: InstructionManual, critical: true, note: supersededIsAlive},

	// Watched for returns.
	{from: InstructionConfirmed, on: sawUnknown, to: InstructionConfirmed},
	{from: InstructionConfirmed, on: sawNotFound, to: InstructionConfirmed, note: "the bank no longer shows a transfer that it had executed"},
	{from: InstructionConfirmed, on: sawPending, to: InstructionConfirmed, note: "the bank says pending of a transfer that it had executed"},
	{from: InstructionConfirmed, on: sawConfirmed, to: InstructionConfirmed},
	{from: InstructionConfirmed, on: sawRejected, to: InstructionManual, critical: true, note: "the bank says rejected of a transfer that it had executed"},
	{from: InstructionConfirmed, on: sawReturned, to: InstructionReturned},
	{from: InstructionConfirmed, on: sawMismatch, to: InstructionManual, critical: true, note: "the bank has another transfer under the key, or more than one"},
	{from: InstructionConfirmed, on: sawAttention, to: InstructionManual, note: "the bank's status is one that a person has to look at"},
	{from: InstructionConfirmed, on: sawSupersededAlive, to: InstructionManual, critical: true, note: supersededIsAlive},

	// Watched for a bank that executes what it had rejected.
	{from: InstructionRejected, on: sawUnknown, to: InstructionRejected},
	{from: InstructionRejected, on: sawNotFound, to: InstructionRejected},
	{from: InstructionRejected, on: sawPending, to: InstructionRejected, note: "the bank says pending of a transfer that it had rejected"},
	{from: InstructionRejected, on: sawConfirmed, to: InstructionManual, critical: true, note: "the bank executed a transfer that it had rejected: the movement is reversed and the money is gone"},
	{from: InstructionRejected, on: sawRejected, to: InstructionRejected},
	{from: InstructionRejected, on: sawReturned, to: InstructionRejected, note: "the bank says returned of a transfer that it had rejected"},
	{from: InstructionRejected, on: sawAttention, to: InstructionRejected, note: "the bank's status is one that a person has to look at"},
	{from: InstructionRejected, on: sawMismatch, to: InstructionManual, critical: true, note: "the bank has another transfer under the key, or more than one"},
	{from: InstructionRejected, on: sawSupersededAlive, to: InstructionManual, critical: true, note: supersededIsAlive},

	// After people have decided, and Policy.Decide has no objection.
	{from: InstructionManual, on: sawDecidedConfirmed, to: InstructionConfirmed},
	{from: InstructionManual, on: sawDecidedRejected, to: InstructionRejected},
	{from: InstructionManual, on: sawDecidedReturned, to: InstructionReturned},
	{from: InstructionManual, on: sawDecidedResend, to: InstructionUncertain},
}

const supersededIsAlive = "the bank has a transfer under a key that was given up: it may be paid twice"

// outOfPatience holds 7 days after the instruction was created, or got a new key.
func outOfPatience(_ Policy, in Instruction, took Span) bool {
	return !took.Ended.Before(in.keySince().Add(giveUpAfter))
}

// neverSentUnderItsKey holds for an instruction that was given a new key and not
// sent under it yet. It is asked about first: the same question says what became
// of the keys that it had.
func neverSentUnderItsKey(_ Policy, in Instruction, _ Span) bool {
	return in.Sends == 0 && len(in.Superseded) > 0
}

// keyForgotten holds once the bank may have forgotten the key: not found then
// proves nothing, and sending again could be a second transfer.
func keyForgotten(_ Policy, in Instruction, took Span) bool {
	return !in.ResendNotAfter.IsZero() && !took.Ended.Before(in.ResendNotAfter)
}

// mayResend holds when not found was seen before, at least the visibility lag
// ago, and there were fewer resends than allowed. keyForgotten comes before it in
// the table.
func mayResend(p Policy, in Instruction, took Span) bool {
	seenBefore := !in.NotFoundSince.IsZero() && !took.Began.Before(in.NotFoundSince.Add(p.lag()))
	return seenBefore && p.sendIsOver(in, took.Began) && in.Sends <= maxResends
}

// sendIsOver holds when the latest send has ended by its own deadline, and the
// status API would show it.
func (p Policy) sendIsOver(in Instruction, now time.Time) bool {
	return !now.Before(in.LastSentAt.Add(p.SendTimeout + p.lag()))
}

// takeBackUnsent undoes the count of a send of which no byte was written.
func takeBackUnsent(_ Policy, next *Instruction, _ Span) {
	next.Sends--
	if next.Sends == 0 {
		next.FirstSentAt, next.LastSentAt, next.ResendNotAfter = time.Time{}, time.Time{}, time.Time{}
	}
}

// comeAgain lets the next step send again without asking, because the bank asked
// for that. The send stays counted: the bank has seen it.
func comeAgain(_ Policy, next *Instruction, _ Span) { next.SendDeferred = true }

// rememberNotFound notes the first not found that means something: one that was
// seen while the send was still under way does not.
func rememberNotFound(p Policy, next *Instruction, took Span) {
	if next.NotFoundSince.IsZero() && p.sendIsOver(*next, took.Began) {
		next.NotFoundSince = took.Ended
	}
}
