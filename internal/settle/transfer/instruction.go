package transfer

import (
	"time"

	"github.com/google/uuid"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// State is the state of a bank instruction; see the package comment
// for the diagram.
type State string

const (
	// StateNone is the zero value: the settlement has no instruction.
	StateNone State = ""
	// StateUncertain means that the transfer may or may not have reached
	// the bank. Every instruction begins here, in the commit that creates the
	// movement, so that a crash at any later point leaves the right state behind.
	StateUncertain State = "uncertain"
	// StateAccepted means that the bank has the transfer; it is not final.
	StateAccepted State = "accepted"
	// StateConfirmed means that the status API says executed, with the
	// amount, the currency and the creditor that were asked for.
	StateConfirmed State = "confirmed"
	// StateRejected means that the bank definitely did not and will not
	// execute the transfer. The reversal is inserted in the same transaction.
	StateRejected State = "rejected"
	// StateReturned means that the transfer was executed and sent back. The
	// reversal is inserted in the same transaction.
	StateReturned State = "returned"
	// StateManual means that a person decides.
	StateManual State = "manual"
)

// Final reports whether the outcome at the bank is settled: from then on the
// receipt may expire.
func (s State) Final() bool {
	switch s {
	case StateConfirmed, StateRejected, StateReturned:
		return true
	case StateNone, StateUncertain, StateAccepted, StateManual:
		return false
	}
	return false
}

// reverses reports whether entering the state undoes the movement.
func (s State) reverses() bool {
	return s == StateRejected || s == StateReturned
}

// Instruction is the credit transfer that a bank is asked for, and what is known
// of it. The transfer and the body are made once, from the payout: asking again
// with them is harmless. Only two people can give it another key, and with it
// another body; see [DecideResend]. A zero time means never.
type Instruction struct {
	SettlementID string
	// Transfer is what the bank must say for a transfer to be this one.
	Transfer Transfer
	// Body is the request body, byte for byte.
	Body []byte
	// Superseded are the keys that it had before, oldest first; usually none.
	Superseded []SupersededKey

	State State
	// Version counts the changes from 1, which is the creation. A change is made
	// only to the version it was worked out for.
	Version int64
	// Owner is the step that holds the lease until LeaseUntil, or the one that
	// made the last change.
	Owner      string
	LeaseUntil time.Time

	// CreatedAt is the commit timestamp of the creation.
	CreatedAt time.Time
	// Sends counts the sends that may have reached the bank. It is raised before
	// a send, and lowered again only when no byte of it was written.
	Sends int64
	// SendDeferred says that the bank answered the latest send with the request to
	// come again.
	SendDeferred bool
	// FirstSentAt and LastSentAt are the times just before the first and the
	// latest send.
	FirstSentAt, LastSentAt time.Time
	// ResendNotAfter is when the bank may have forgotten the key.
	ResendNotAfter time.Time
	// NotFoundSince is when the status API first said not found since the latest
	// send.
	NotFoundSince time.Time
	// AcceptedAt is when the bank first said that it has the transfer.
	AcceptedAt time.Time
	// FinalAt is when the state first became a final one.
	FinalAt time.Time
	// TransferID and BankStatus are the bank's name of the transfer and its latest
	// status word; empty when unknown.
	TransferID, BankStatus string
	// Checks counts the questions without an answer that changed anything; it
	// sets the pace.
	Checks int64
	// NextCheckAt is when the instruction is looked at next.
	NextCheckAt time.Time
}

// instructionNamespace is the namespace of idempotency keys: the UUID version 5
// of urn:settleonce:bank-instruction in the URL namespace.
var instructionNamespace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("urn:settleonce:bank-instruction"))

// InstructionKey returns the idempotency key of a settlement's instruction. It
// depends on the settlement ID alone: whoever asks, and after whatever crash,
// asks with the same key.
func InstructionKey(settlementID string) uuid.UUID {
	return uuid.NewSHA1(instructionNamespace, []byte(settlementID))
}

// NewInstruction returns the instruction of a payout, as it is created: due at
// once.
func NewInstruction(p payout.Payout, body []byte, now time.Time) *Instruction {
	return &Instruction{
		SettlementID: p.SettlementID,
		Transfer: Transfer{
			Key: InstructionKey(p.SettlementID), AmountCents: p.AmountCents,
			Currency: p.Currency, CreditorAccount: p.CreditorAccount,
		},
		Body: body, State: StateUncertain, Version: 1, NextCheckAt: now,
	}
}
