package transfer

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

// Bank is the part of a bank's API that credit transfers need.
//
// Send and Status return no error: a failure is an unknown result, the zero value.
// Each call makes exactly one exchange within its own time limit and never retries;
// the state machine decides about retries.
type Bank interface {
	// Compose returns the request body of the payout's transfer under the given
	// idempotency key. It sends nothing, and the same payout and key give the same bytes.
	Compose(p payout.Payout, key uuid.UUID) ([]byte, error)
	// Send instructs the bank to make the transfer. It sends the bytes of the body
	// unchanged.
	Send(ctx context.Context, r SendRequest) SendResult
	// Status asks the bank for the status of the transfer.
	Status(ctx context.Context, r StatusRequest) StatusResult
}

// Transfer is the credit transfer that we instruct. A transfer of the bank is ours only
// if all fields match.
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
	// EarlierMayHaveReached means that an earlier send may have reached the bank: a
	// refusal of this send then proves nothing.
	EarlierMayHaveReached bool
}

// SendClass is the classified result of a send.
type SendClass int

const (
	// SendUncertain proves nothing: the bank may have the transfer. The zero value.
	SendUncertain SendClass = iota
	// SendNotSent means that no byte of the request was written: the bank does not have
	// the transfer.
	SendNotSent
	// SendAccepted means that the bank has the transfer; it is not final.
	SendAccepted
	// SendRejected means that the bank will not execute the transfer.
	SendRejected
	// SendHeld means that the bank rejected our credentials.
	SendHeld
	// SendRetryLater means that the bank asked for a retry with the same key.
	SendRetryLater
	// SendManual means that the bank has a different transfer under the key: people
	// decide.
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

// SendResult is the result of one send. The zero value is uncertain.
type SendResult struct {
	Class  SendClass
	Answer BankAnswer
}

// StatusReading is the classified answer of the status API.
type StatusReading int

const (
	// StatusUnknown proves nothing: no change, ask again later. The zero value.
	StatusUnknown StatusReading = iota
	// StatusNotFound means that the bank has no transfer under the key.
	StatusNotFound
	// StatusPending means that the bank has the transfer; it is not final.
	StatusPending
	// StatusConfirmed means that the bank has executed the transfer.
	StatusConfirmed
	// StatusRejected means that the bank will not execute the transfer.
	StatusRejected
	// StatusReturned means that the transfer was executed and sent back.
	StatusReturned
	// StatusManual means that the bank has a different transfer under the key, or more
	// than one: people decide.
	StatusManual
	// StatusAttention means that the bank's profile assigns this status to people.
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

// StatusRequest is one request to the status API.
type StatusRequest struct{ Transfer }

// StatusResult is the result of one status request. The zero value is unknown.
type StatusResult struct {
	Reading StatusReading
	Answer  BankAnswer
}

// Unknown describes a result that proves nothing; empty for any other.
func (r StatusResult) Unknown() string {
	if r.Reading != StatusUnknown {
		return ""
	}
	return joinDetail("no clear answer", r.Answer.Detail)
}

// BankAnswer is the stored part of a bank's answer. It holds no payload.
type BankAnswer struct {
	// HTTPStatus is zero if there was no answer.
	HTTPStatus int `json:"http_status,omitzero"`
	// TransferID is the bank's ID of the transfer; empty when unknown.
	TransferID string `json:"bank_transfer_id,omitzero"`
	// Status is the bank's status; empty when unknown.
	Status string `json:"status,omitzero"`
	// RetryAfter is the wait that the bank asked for; zero for none.
	RetryAfter time.Duration `json:"-"`
	// Detail describes a fault or an unusual answer; empty for none. Logs and event rows
	// contain it, so it quotes no payload and no secret.
	Detail string `json:"detail,omitzero"`
}
