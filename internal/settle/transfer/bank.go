package transfer

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// Bank is a bank's API, as far as credit transfers need it.
//
// No method fails: what cannot be known is a value, and the zero value of every
// result. The implementation makes exactly one exchange a call, under its own
// time limit, and repeats nothing by itself: who may ask again, and when, is
// decided by the state machine.
type Bank interface {
	// Compose returns the request body that asks the bank for the payout's
	// transfer under the given idempotency key. It is pure: the same payout and
	// key give the same bytes, and nothing is sent.
	Compose(p payout.Payout, key uuid.UUID) ([]byte, error)
	// Send asks the bank for the transfer. The bytes of the body are sent as they
	// are.
	Send(ctx context.Context, r SendRequest) SendResult
	// Status asks what became of the transfer.
	Status(ctx context.Context, r StatusRequest) StatusResult
}

// Transfer is what a bank must say about a transfer for it to be ours.
type Transfer struct {
	Key             uuid.UUID
	AmountCents     int64 // minor units of the currency
	Currency        string
	CreditorAccount string
}

// SendRequest is one send.
type SendRequest struct {
	Transfer
	// Body is the stored request body.
	Body []byte
	// EarlierMayHaveReached says that an earlier send, under whatever key, can have
	// reached the bank: a refusal of this one then proves nothing about the transfer.
	EarlierMayHaveReached bool
}

// SendClass says what a send proved.
type SendClass int

const (
	// SendUncertain proves nothing: the bank may or may not have the transfer.
	// The zero value.
	SendUncertain SendClass = iota
	// SendNotSent means that no byte of the request was written: the bank cannot
	// have it.
	SendNotSent
	// SendAccepted means that the bank has the transfer; it is not final.
	SendAccepted
	// SendRejected means that the bank definitely will not execute it.
	SendRejected
	// SendHeld means that the bank does not let us in: our configuration is wrong.
	SendHeld
	// SendRetryLater means that the bank asked to come again with the same key.
	SendRetryLater
	// SendManual means that the bank has a transfer that is not the one we asked
	// for: a person decides.
	SendManual
)

// String returns the class's name in logs and event rows.
func (c SendClass) String() string {
	switch c {
	case SendNotSent:
		return "not_sent"
	case SendAccepted:
		return "accepted"
	case SendRejected:
		return "rejected"
	case SendHeld:
		return "held"
	case SendRetryLater:
		return "retry_later"
	case SendManual:
		return "manual"
	case SendUncertain:
		return "uncertain"
	}
	return "uncertain"
}

// SendResult is what came of one send. The zero value is uncertain.
type SendResult struct {
	Class SendClass
	// Answer is what the bank answered.
	Answer BankAnswer
}

// StatusReading says what the status API proved.
type StatusReading int

const (
	// StatusUnknown proves nothing: no change, ask again later. The zero value.
	StatusUnknown StatusReading = iota
	// StatusNotFound means that the bank says it has no transfer under the key.
	StatusNotFound
	// StatusPending means that the bank has it and it is not final.
	StatusPending
	// StatusConfirmed means that the bank has executed it.
	StatusConfirmed
	// StatusRejected means that the bank will not execute it.
	StatusRejected
	// StatusReturned means that it was executed and sent back.
	StatusReturned
	// StatusManual means that what the bank has is not what we asked for, or more
	// than once: a person decides, at once.
	StatusManual
	// StatusAttention means that the bank's status is one that a person has to
	// look at.
	StatusAttention
)

// String returns the reading's name in logs and event rows.
func (s StatusReading) String() string {
	switch s {
	case StatusNotFound:
		return "not_found"
	case StatusPending:
		return "pending"
	case StatusConfirmed:
		return "confirmed"
	case StatusRejected:
		return "rejected"
	case StatusReturned:
		return "returned"
	case StatusManual:
		return "manual"
	case StatusAttention:
		return "attention"
	case StatusUnknown:
		return "unknown"
	}
	return "unknown"
}

// StatusRequest is one question to the status API.
type StatusRequest struct{ Transfer }

// StatusResult is what the status API said. The zero value is unknown.
type StatusResult struct {
	Reading StatusReading
	// Answer is what the bank answered.
	Answer BankAnswer
}

// BankAnswer is an answer as far as it is kept. It holds no payload.
type BankAnswer struct {
	// HTTPStatus is zero where there was no answer.
	HTTPStatus int
	// TransferID is the bank's own name of the transfer; empty when unknown.
	TransferID string
	// Status is the bank's status word; empty when unknown.
	Status string
	// RetryAfter is how long the bank asked to wait; zero for nothing asked.
	RetryAfter time.Duration
	// Detail says in words what was wrong or unusual; empty for nothing. It is
	// for logs and event rows and quotes no payload and no secret.
	Detail string
}
