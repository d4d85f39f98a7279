package transfer

import (
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

// State is the state of a bank instruction; the package comment has the diagram.
type State string

const (
	// StateNone is the zero value: the settlement has no instruction.
	StateNone State = ""
	// StateUncertain means that the transfer may have reached the bank. The commit of the
	// movement creates every instruction in this state, so a later crash leaves it valid.
	StateUncertain State = "uncertain"
	// StateAccepted means that the bank has the transfer; it is not final.
	StateAccepted State = "accepted"
	// StateConfirmed means that the status API reports the transfer as executed, with the
	// instructed amount, currency and creditor.
	StateConfirmed State = "confirmed"
	// StateRejected means that the bank did not and will not execute the transfer. The
	// reversal is inserted in the same transaction.
	StateRejected State = "rejected"
	// StateReturned means that the transfer was executed and sent back. The reversal is
	// inserted in the same transaction.
	StateReturned State = "returned"
	// StateManual means that two people decide.
	StateManual State = "manual"
)

// Final reports whether the outcome at the bank is known. The receipt of a final
// instruction may expire.
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

// Instruction is a credit transfer with the bank's answers so far. Transfer and Body
// are made once, from the payout, so a resend cannot pay twice while the bank remembers
// the key. A zero time means never.
type Instruction struct {
	SettlementID string
	Transfer     Transfer
	// Body is the request body. Every send has the same bytes.
	Body []byte

	State State
	// Version counts the changes, from 1 for the creation. A change is stored only if the
	// stored version is the one that it was computed from.
	Version int64
	// Owner is the step that holds the lease until LeaseUntil, or that made the last
	// change.
	Owner      string
	LeaseUntil time.Time

	// CreatedAt is the commit timestamp of the creation.
	CreatedAt time.Time
	// Sends counts the sends that may have reached the bank. A step raises it before a
	// send, and lowers it only if no byte of the request was written.
	Sends int64
	// SendDeferred means that the bank asked for a retry of the latest send.
	SendDeferred bool
	// FirstSentAt and LastSentAt are the times just before the first and the latest send.
	FirstSentAt, LastSentAt time.Time
	// ResendNotAfter is the end of the resend window: the bank may forget the key later.
	ResendNotAfter time.Time
	// NotFoundSince is the time of the first not-found after the latest send.
	NotFoundSince time.Time
	// AcceptedAt is the time at which the bank first reported the transfer.
	AcceptedAt time.Time
	// FinalAt is the time of the first final state.
	FinalAt time.Time
	// TransferID and BankStatus are the bank's ID of the transfer and its latest status;
	// empty when unknown.
	TransferID, BankStatus string
	// Checks counts the exchanges since the last change of state or unclear send. It sets
	// the time to the next one.
	Checks int64
	// NextCheckAt is the time of the next step; zero for none.
	NextCheckAt time.Time
}

// instructionNamespace is the namespace of idempotency keys: the UUID version 5
// of urn:settleonce:bank-instruction in the URL namespace.
var instructionNamespace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("urn:settleonce:bank-instruction"))

// InstructionKey returns the idempotency key of a settlement's instruction. It depends
// on the settlement ID alone, so every instance sends the same key, also after a crash.
func InstructionKey(settlementID string) uuid.UUID {
	return uuid.NewSHA1(instructionNamespace, []byte(settlementID))
}

// NewInstruction returns the new instruction of a payout, due at now.
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
