package event

import (
	"context"
	"errors"
	"net/http"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// reply is an answer. Pub/Sub reads the status only; the body is for people. It
// holds nothing of the payload but the settlement ID and the payload hash.
type reply struct {
	status int
	body   any // encoded as JSON
}

// failure is the body of an answer that is not acknowledged.
type failure struct {
	Outcome      string      `json:"outcome"` // unknown
	SettlementID string      `json:"settlement_id,omitzero"`
	PayloadHash  payout.Hash `json:"payload_hash,omitzero"`
	Error        string      `json:"error"`
}

// failed is the answer to a delivery of which no commit is known.
func failed(status int, text string) reply {
	return reply{status, failure{Outcome: settle.OutcomeUnknown.String(), Error: text}}
}

// The texts of errors in answers. An error's own text can quote values that an
// answer must not hold; it is logged instead.
const (
	textNoBank      = "not settled: the payout names a creditor_account and no bank is configured; delivered again until one is"
	textUnknown     = "unknown whether committed: Spanner did not answer; the next delivery finds out"
	textHashVersion = "not settled: the stored payload hash is of a version this instance does not know; a newer one has to settle it"
	textDeadline    = "unknown whether settled: the time for one delivery ran out; Pub/Sub delivers it again"
	textCancelled   = "unknown whether settled: the request was cancelled; Pub/Sub delivers it again"
	textTooLarge    = "not kept: no quarantine row can hold the message; it goes to the dead-letter topic"
	textOther       = "not settled; see the log; Pub/Sub delivers it again"
	textPanic       = "unknown whether settled: a fault of the program; see the log; Pub/Sub delivers it again"

	textMisrouted = "not settled: the request brings a payout and ReconcileBank settles none; bind the payouts topic to SettlePayout; Pub/Sub delivers it again"
	textMethod    = "only POST is answered"
	textDraining  = "the instance is shutting down; nothing was begun"
	textGone      = "the request was cancelled before work began"
	textBodySize  = "the body is larger than 16777216 bytes; Pub/Sub messages have 10000000 at most"
	textSlow      = "the body did not come in whole in time; Pub/Sub delivers it again"
	textBroken    = "the body broke off while it was read"
)

// errorClasses maps errors to answers. The first match counts, so the more exact
// error stands before the context's errors, which it may wrap.
var errorClasses = [...]struct {
	class  error
	status int
	text   string
}{
	{settle.ErrTooLargeToKeep, http.StatusRequestEntityTooLarge, textTooLarge},
	{transfer.ErrNoBank, http.StatusInternalServerError, textNoBank},
	{payout.ErrUnknownHashVersion, http.StatusInternalServerError, textHashVersion},
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
