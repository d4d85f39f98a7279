package fakebank

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
)

const (
	ledgerPath = "/admin/ledger"
	statusPath = "/admin/status"

	maxBodyBytes = 1 << 20

	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
	typeHTML    = "text/html; charset=utf-8"
)

// order is the body of a send. All members are needed but the remittance.
type order struct {
	ClientReference string `json:"client_reference"`
	AmountMinor     int64  `json:"amount_minor"`
	Currency        string `json:"currency"`
	DebtorAccount   string `json:"debtor_account"`
	CreditorAccount string `json:"creditor_account"`
	Remittance      string `json:"remittance"`
}

// readOrder decodes a body strictly: one value, no member twice, none that is not
// known. The error says what was wrong without quoting the body.
func readOrder(body []byte) (order, error) {
	var o order
	if err := json.Unmarshal(body, &o, json.RejectUnknownMembers(true)); err != nil {
		return order{}, fmt.Errorf("the body is not the contract's JSON (%d bytes)", len(body))
	}
	if o.AmountMinor <= 0 || len(o.Currency) != 3 || o.DebtorAccount == "" || o.CreditorAccount == "" {
		return o, fmt.Errorf("the body lacks an amount, a currency or an account")
	}
	return o, nil
}

// wireTransfer is a transfer as answers have it.
type wireTransfer struct {
	ID              string `json:"id"`
	ClientReference string `json:"client_reference"`
	AmountMinor     int64  `json:"amount_minor"`
	Currency        string `json:"currency"`
	CreditorAccount string `json:"creditor_account"`
	Status          string `json:"status"`
	Reason          string `json:"reason,omitzero"`
}

// problem is an error answer, after RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail,omitzero"`
}

// Codes of problems that the bank answers without being told to.
const (
	// CodeNotFound is the code of the typed 404, unless Options say another.
	CodeNotFound = "transfer_not_found"
	// CodeExists says that the key was used already, and the transfer exists.
	CodeExists = "already_exists"
	// CodeInProgress says that the first request with the key has not ended.
	CodeInProgress = "request_in_progress"
	// CodeLocked says that the key is locked, because its first request failed.
	CodeLocked = "idempotency_key_locked"
	// CodeDuplicate says that the request is a duplicate.
	CodeDuplicate = "duplicate_request"
	// CodeOtherBody says that the key was used with another body.
	CodeOtherBody = "idempotency_key_reused"
	// CodeUnauthorized says that the token is missing or wrong.
	CodeUnauthorized = "unauthorized"
	// CodeInvalid says that the request is not the contract's.
	CodeInvalid = "invalid_request"
)

// defaultCodes are the codes of scripted statuses without a code.
var defaultCodes = map[int]string{
	http.StatusBadRequest:      CodeInvalid,
	http.StatusUnauthorized:    CodeUnauthorized,
	http.StatusForbidden:       "forbidden",
	http.StatusRequestTimeout:  "request_timeout",
	http.StatusTooEarly:        "too_early",
	http.StatusTooManyRequests: "rate_limited",
}

// problemReply is an error answer. An empty code becomes one that suits the
// status.
func (b *Bank) problemReply(status int, code, detail string) reply {
	code = cmp.Or(code, defaultCodes[status], fmt.Sprintf("http_%d", status))
	return reply{status: status, contentType: typeProblem, body: encode(problem{
		Type: b.options.ProblemBase + code, Title: cmp.Or(http.StatusText(status), "Error"),
		Status: status, Code: code, Detail: detail,
	})}
}

// statusReply is a scripted error answer, as a problem or as a page that
// something before the bank made.
func (b *Bank) statusReply(status int, code string, page bool) reply {
	if !page {
		return b.problemReply(status, code, "")
	}
	return reply{status: status, contentType: typeHTML, body: []byte(htmlPage)}
}

const htmlPage = "<!DOCTYPE html><html><head><title>Bank</title></head><body><h1>Please wait</h1></body></html>\n"

// encode returns v as JSON.
func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic("fakebank: encode an answer: " + err.Error()) // strings that were decoded strictly, and numbers
	}
	return body
}
