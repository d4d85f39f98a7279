package event

import (
	"context"
	"errors"
	"net/http"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// reply is an answer. Pub/Sub reads only the status; the body is for people. Of the
// payload it contains only the settlement ID and the payload hash.
type reply struct {
	status int
	body   any // encoded as JSON
}

// failure is the body of an answer other than 200.
type failure struct {
	Outcome      string      `json:"outcome"` // unknown
	SettlementID string      `json:"settlement_id,omitzero"`
	PayloadHash  payout.Hash `json:"payload_hash,omitzero"`
	Error        string      `json:"error"`
}

// failed is the answer to a request without a settlement ID.
func failed(status int, text string) reply {
	return reply{status, failure{Outcome: settle.OutcomeUnknown.String(), Error: text}}
}

// The texts of errors in answers. The error itself is only logged: it can quote values
// that an answer must not contain.
const (
	textNoBank    = "not settled: the payout names a creditor_account and no bank is configured; Pub/Sub redelivers it"
	textUnknown   = "unknown whether committed: Spanner did not answer; Pub/Sub redelivers the payout"
	textDeadline  = "unknown whether settled: the deadline of the delivery has passed; Pub/Sub redelivers it"
	textCancelled = "unknown whether settled: the request was cancelled; Pub/Sub redelivers it"
	textTooLarge  = "not stored: no quarantine row can hold the message; it goes to the dead-letter topic"
	textOther     = "not settled; see the log; Pub/Sub redelivers it"
	textPanic     = "unknown whether settled: a fault of the program; see the log; Pub/Sub redelivers it"

	textMisrouted = "not acknowledged: the message is not the scheduler's tick; bind the payouts topic to SettlePayout; Pub/Sub redelivers it"
	textMethod    = "only POST is answered"
	textDraining  = "the instance is shutting down; no work began"
	textGone      = "the request was cancelled before work began"
	textBodySize  = "the body is larger than 16777216 bytes; a Pub/Sub message has at most 10000000"
	textSlow      = "the body did not arrive in time; Pub/Sub redelivers it"
	textBroken    = "the body ended early"
)

// errorClasses maps errors to answers. The first match counts, so specific errors precede
// the context's errors, which they may wrap.
var errorClasses = [...]struct {
	class  error
	status int
	text   string
}{
	{settle.ErrTooLargeToKeep, http.StatusRequestEntityTooLarge, textTooLarge},
	{transfer.ErrNoBank, http.StatusInternalServerError, textNoBank},
	{settle.ErrOutcomeUnknown, http.StatusInternalServerError, textUnknown},
	{context.DeadlineExceeded, http.StatusInternalServerError, textDeadline},
	{context.Canceled, http.StatusInternalServerError, textCancelled},
}

// deliveryFailed is the answer to a delivery that failed with err.
func deliveryFailed(r settle.Result, err error) reply {
	answer := failure{settle.OutcomeUnknown.String(), r.SettlementID, r.PayloadHash, textOther}
	for _, c := range errorClasses {
		if errors.Is(err, c.class) {
			answer.Error = c.text
			return reply{c.status, answer}
		}
	}
	return reply{http.StatusInternalServerError, answer}
}
