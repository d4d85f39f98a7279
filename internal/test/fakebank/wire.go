package fakebank

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
)

const (
	transferPath    = "/v1/credit-transfers"
	keyHeader       = "Idempotency-Key"
	lookUpParameter = "client_reference"

	maxBodyBytes = 1 << 20

	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
	typeHTML    = "text/html; charset=utf-8"

	htmlPage = "<!DOCTYPE html><html><head><title>Bank</title></head><body><h1>Please wait</h1></body></html>\n"
)

// order is the body of a send. All members except the remittance are required.
type order struct {
	ClientReference string `json:"client_reference"`
	AmountMinor     int64  `json:"amount_minor"`
	Currency        string `json:"currency"`
	DebtorAccount   string `json:"debtor_account"`
	CreditorAccount string `json:"creditor_account"`
	Remittance      string `json:"remittance"`
}

// readOrder decodes a body strictly: one value, no duplicate and no unknown
// members. The error does not quote the body.
func readOrder(body []byte) (order, error) {
	var o order
	if err := json.Unmarshal(body, &o, json.RejectUnknownMembers(true)); err != nil {
		return order{}, fmt.Errorf("the body is not the contract's JSON (%d bytes)", len(body))
	}
	if o.AmountMinor <= 0 || len(o.Currency) != 3 || o.DebtorAccount == "" || o.CreditorAccount == "" {
		return o, errors.New("the body lacks an amount, a currency or an account")
	}
	return o, nil
}

// wireTransfer is a transfer in an answer.
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

// codeNotFound is the code of the typed 404: no transfer has the key.
const codeNotFound = "transfer_not_found"

// defaultCodes are the codes of scripted statuses.
var defaultCodes = map[int]string{
	http.StatusBadRequest:      "invalid_request",
	http.StatusUnauthorized:    "unauthorized",
	http.StatusForbidden:       "forbidden",
	http.StatusRequestTimeout:  "request_timeout",
	http.StatusTooEarly:        "too_early",
	http.StatusTooManyRequests: "rate_limited",
}

// problemReply is an error answer. An empty code is the default of the status.
func problemReply(status int, code, detail string) reply {
	code = cmp.Or(code, defaultCodes[status], fmt.Sprintf("http_%d", status))
	return reply{status: status, contentType: typeProblem, body: encode(problem{
		Type: "urn:fakebank:problem:" + code, Title: cmp.Or(http.StatusText(status), "Error"),
		Status: status, Code: code, Detail: detail,
	})}
}

// scriptedReply is an error answer with the headers of a script. A redirect leads
// to the status request of the key.
func scriptedReply(status int, code, retryAfter, key string) reply {
	answer := problemReply(status, code, "")
	answer.setHeader("Retry-After", retryAfter)
	if status/100 == 3 {
		answer.setHeader("Location", lookUpPath(key))
	}
	return answer
}

func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic("fakebank: encode an answer: " + err.Error()) // strings that were decoded strictly, and numbers
	}
	return body
}
