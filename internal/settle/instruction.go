package settle

import (
	"time"

	"github.com/google/uuid"
)

// InstructionState is the state of a bank instruction; see the package comment
// for the diagram.
type InstructionState string

const (
	// InstructionNone is the zero value: the settlement has no instruction.
	InstructionNone InstructionState = ""
	// InstructionUncertain means that the transfer may or may not have reached
	// the bank. Every instruction begins here, in the commit that creates the
	// movement, so that a crash at any later point leaves the right state behind.
	InstructionUncertain InstructionState = "uncertain"
	// InstructionAccepted means that the bank has the transfer; it is not final.
	InstructionAccepted InstructionState = "accepted"
	// InstructionConfirmed means that the status API says executed, with the
	// amount, the currency and the creditor that were asked for.
	InstructionConfirmed InstructionState = "confirmed"
	// InstructionRejected means that the bank definitely did not and will not
	// execute the transfer. The reversal is inserted in the same transaction.
	InstructionRejected InstructionState = "rejected"
	// InstructionReturned means that the transfer was executed and sent back. The
	// reversal is inserted in the same transaction.
	InstructionReturned InstructionState = "returned"
	// InstructionManual means that a person decides.
	InstructionManual InstructionState = "manual"
)

// Final reports whether the outcome at the bank is settled: from then on the
// receipt may expire.
func (s InstructionState) Final() bool {
	switch s {
	case InstructionConfirmed, InstructionRejected, InstructionReturned:
		return true
	case InstructionNone, InstructionUncertain, InstructionAccepted, InstructionManual:
		return false
	}
	return false
}

// reverses reports whether entering the state undoes the movement.
func (s InstructionState) reverses() bool {
	return s == InstructionRejected || s == InstructionReturned
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

	State InstructionState
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
func NewInstruction(p Payout, body []byte, now time.Time) *Instruction {
	return &Instruction{
		SettlementID: p.SettlementID,
		Transfer: Transfer{
			Key: InstructionKey(p.SettlementID), AmountCents: p.AmountCents,
			Currency: p.Currency, CreditorAccount: p.CreditorAccount,
		},
		Body: body, State: InstructionUncertain, Version: 1, NextCheckAt: now,
	}
}
