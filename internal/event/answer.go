package event

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// answer is what is sent back. Pub/Sub looks at the status only; the body is for
// people. It holds nothing of the payload but the settlement ID and the payload
// hash.
type answer struct {
	status int

	Outcome        string         `json:"outcome"`
	SettlementID   string         `json:"settlement_id,omitzero"`
	PayloadHash    payout.Hash    `json:"payload_hash,omitzero"`
	AppliedAt      time.Time      `json:"applied_at,omitzero"` // RFC 3339 in UTC, nanoseconds
	Instruction    transfer.State `json:"instruction,omitzero"`
	Fields         []string       `json:"fields,omitempty"`
	ReceiptExpired bool           `json:"receipt_expired,omitzero"`
	Reason         payout.Reason  `json:"reason,omitzero"`
	Member         string         `json:"member,omitzero"`
	Error          string         `json:"error,omitzero"`
}

// settledAnswer is the answer to a delivery whose outcome is committed.
func settledAnswer(r settle.Result) answer {
	a := answer{
		status:         http.StatusOK,
		Outcome:        r.Outcome.String(),
		SettlementID:   r.SettlementID,
		PayloadHash:    r.PayloadHash,
		AppliedAt:      r.AppliedAt.UTC(),
		Instruction:    r.Instruction,
		Fields:         r.Fields,
		ReceiptExpired: r.ReceiptExpired,
	}
	if r.Refusal != nil {
		a.Reason, a.Member = r.Refusal.Reason, r.Refusal.Member
	}
	return a
}

// unsettledAnswer is the answer to a delivery of which nothing is known to be
// committed: it is never acknowledged.
func unsettledAnswer(status int, text string) answer {
	return answer{status: status, Outcome: settle.OutcomeUnknown.String(), Error: text}
}

// The texts of errors in answers. An error's own text can quote what the answer
// must not hold; it goes to the log.
const (
	textNoBank      = "not settled: the payout names a creditor_account and no bank is configured; delivered again until one is"
	textUnknown     = "unknown whether committed: Spanner did not answer; the next delivery finds out"
	textHashVersion = "not settled: the stored payload hash is of a version this instance does not know; a newer one has to settle it"
	textDeadline    = "unknown whether settled: the time for one delivery ran out; Pub/Sub delivers it again"
	textCancelled   = "unknown whether settled: the request was cancelled; Pub/Sub delivers it again"
	textTooLarge    = "not kept: no quarantine row can hold the message; it goes to the dead-letter topic"
	textOther       = "not settled; see the log; Pub/Sub delivers it again"
	textPanic       = "unknown whether settled: a fault of the program; see the log; Pub/Sub delivers it again"

	textNotHere  = "not settled: the request brings a payout and ReconcileBank settles none; bind the payouts topic to SettlePayout; Pub/Sub delivers it again"
	textMethod   = "only POST is answered"
	textDraining = "the instance is shutting down; nothing was begun"
	textGone     = "the request was cancelled before work began"
	textBodySize = "the body is larger than 16777216 bytes; Pub/Sub messages have 10000000 at most"
	textSlow     = "the body did not come in whole in time; Pub/Sub delivers it again"
	textBroken   = "the body broke off while it was read"
)

// errorClasses gives an error's answer; the first class that applies counts, so
// what is known more exactly stands before the context's errors, which it may
// wrap.
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

// errorAnswer is the answer to a delivery that failed with err.
func errorAnswer(r settle.Result, err error) answer {
	a := unsettledAnswer(http.StatusInternalServerError, textOther)
	for _, c := range errorClasses {
		if errors.Is(err, c.class) {
			a = unsettledAnswer(c.status, c.text)
			break
		}
	}
	a.SettlementID, a.PayloadHash = r.SettlementID, r.PayloadHash
	return a
}

// write sends the answer. A caller that does not take it delivers again, so a
// failed write needs no handling.
func (a answer) write(w http.ResponseWriter, now time.Time) {
	body, err := json.Marshal(a)
	if err != nil {
		body = nil // cannot be: every string of an answer is valid UTF-8
	}
	send(w, a.status, body, now)
}

// send sends a whole answer and does not leave it in a buffer: the process may
// end as soon as its last request is answered.
func send(w http.ResponseWriter, status int, body []byte, now time.Time) {
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(now.Add(answerTimeout)) // fails where there is no connection; the server lifts it
	body = append(body, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	switch status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", http.MethodPost)
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // JSON, and sent as JSON
	_ = conn.Flush()     // a caller that is gone delivers again
}
