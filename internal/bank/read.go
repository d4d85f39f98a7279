package bank

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// maxRetryAfter caps the wait that a bank can request.
const maxRetryAfter = 24 * time.Hour

// sendBodyMatters reports whether the class of a send depends on the body of an answer
// with that status. The client reads no other body.
func sendBodyMatters(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusPaymentRequired, http.StatusForbidden, http.StatusUnprocessableEntity:
		return true
	}
	return success(status)
}

func statusBodyMatters(status int) bool {
	return status == http.StatusOK || status == http.StatusNotFound
}

func success(status int) bool { return status >= 200 && status <= 299 }

// readSend classifies a send by the table in the package comment.
func (c *Client) readSend(r transfer.SendRequest, e exchange) transfer.SendResult {
	result := transfer.SendResult{Answer: c.answer(e)}
	switch status := e.status; {
	case e.nothingWritten:
		result.Class = transfer.SendNotSent
	case status == 0:
		// uncertain, with the fault as detail
	case success(status):
		c.readTransferAnswer(r.Transfer, e, &result)
	case sendBodyMatters(status):
		c.readRefusal(r, e, &result)
	case status == http.StatusUnauthorized,
		status == http.StatusRequestEntityTooLarge,
		status == http.StatusRequestURITooLong,
		status == http.StatusRequestHeaderFieldsTooLarge:
		result.Class = transfer.SendHeld
	case status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		result.Class = transfer.SendRetryLater
	}
	return result
}

// readTransferAnswer classifies a 2xx by its body. An inconclusive body leaves the
// class uncertain.
func (c *Client) readTransferAnswer(ours transfer.Transfer, e exchange, result *transfer.SendResult) {
	if e.fault != "" {
		return
	}
	theirs, err := readTransfer(e.body)
	if err != nil {
		result.Answer.Detail = err.Error()
		return
	}
	if theirs.key != ours.Key.String() {
		result.Answer.Detail = errOtherKey.Error()
		return
	}
	theirs.keepIn(&result.Answer)
	reading, known := c.readings[theirs.status]
	switch difference := theirs.differsFrom(ours); {
	case difference != "":
		result.Class, result.Answer.Detail = transfer.SendManual, difference
	case !known:
		result.Answer.Detail = detailUnknownWord
	case reading == transfer.StatusPending, reading == transfer.StatusConfirmed:
		result.Class, result.Answer.Detail = transfer.SendAccepted, ""
	default:
		result.Class, result.Answer.Detail = transfer.SendAccepted, detailFinalWord
	}
}

// readRefusal classifies a 400, 402, 403 or 422.
func (c *Client) readRefusal(r transfer.SendRequest, e exchange, result *transfer.SendResult) {
	p, ok := c.readProblem(e)
	listed := ok && p.anyOf(c.profile.Reject...)
	switch {
	case listed && r.EarlierMayHaveReached:
		// The bank may refuse this copy because it has the first one.
		result.Answer.Detail = "a listed refusal, after an earlier send that may have reached the bank"
	case listed:
		result.Class, result.Answer.Detail = transfer.SendRejected, ""
	case e.status == http.StatusForbidden:
		result.Class = transfer.SendHeld
	case ok:
		result.Answer.Detail = "a problem that is not on the profile's reject list"
	case e.fault == "":
		result.Answer.Detail = "a refusal without a problem document"
	}
}

// readStatus classifies the answer to a status request by the table in the package
// comment.
func (c *Client) readStatus(r transfer.StatusRequest, e exchange) transfer.StatusResult {
	result := transfer.StatusResult{Answer: c.answer(e)}
	if e.fault != "" {
		return result
	}
	switch e.status {
	case http.StatusOK:
		c.readTransferList(r.Transfer, e.body, &result)
	case http.StatusNotFound:
		code := c.profile.NotFound.ProblemCode
		if p, ok := c.readProblem(e); ok && code != "" && p.anyOf(code) {
			result.Reading, result.Answer.Detail = transfer.StatusNotFound, ""
		}
	}
	return result
}

// readTransferList classifies the body of a 200. An inconclusive body leaves the
// reading unknown.
func (c *Client) readTransferList(ours transfer.Transfer, body []byte, result *transfer.StatusResult) {
	list, err := readTransfers(body)
	switch {
	case err != nil:
		result.Answer.Detail = err.Error()
	case len(list) == 0 && c.profile.NotFound.EmptyList:
		result.Reading, result.Answer.Detail = transfer.StatusNotFound, ""
	case len(list) == 0:
		result.Answer.Detail = "an empty list, which this bank's profile does not count as not found"
	case len(list) > 1:
		result.Reading, result.Answer.Detail = transfer.StatusManual, "more than one transfer"
	case list[0].key != ours.Key.String():
		result.Answer.Detail = errOtherKey.Error()
	default:
		list[0].keepIn(&result.Answer)
		result.Reading, result.Answer.Detail = c.meaning(list[0], ours)
	}
}

// meaning returns the reading of the one transfer under the instruction's key, and a
// detail if it is unusual.
func (c *Client) meaning(theirs bankTransfer, ours transfer.Transfer) (transfer.StatusReading, string) {
	if difference := theirs.differsFrom(ours); difference != "" {
		return transfer.StatusManual, difference
	}
	reading, known := c.readings[theirs.status]
	switch {
	case !known:
		return transfer.StatusPending, detailUnknownWord
	case reading == transfer.StatusRejected && slices.Contains(c.profile.Statuses.ManualReasons, theirs.reason):
		return transfer.StatusAttention, "rejected for a reason that hints at an earlier transfer"
	}
	return reading, ""
}

// answer returns the stored part of an answer. Callers replace the detail by a more
// specific one.
func (c *Client) answer(e exchange) transfer.BankAnswer {
	a := transfer.BankAnswer{HTTPStatus: e.status, RetryAfter: retryAfter(e.header, c.now()), Detail: e.fault}
	if a.Detail == "" {
		a.Detail = fmt.Sprintf("HTTP status %d", e.status)
	}
	return a
}

// retryAfter returns the wait that the bank requests, in seconds or by a date; 0
// without a valid future value.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(0, date.Sub(now)), maxRetryAfter)
}

// The faults of a body.
var (
	errNotWhole    = errors.New("the body is not one whole JSON object")
	errNoList      = errors.New("the body has no list of transfers")
	errNoTransfer  = errors.New("the body is not a transfer: a member is missing or has another type")
	errOtherKey    = errors.New("the transfer has another key than the one that was sent")
	errTransferBad = errors.New("the list has an invalid transfer")
)

const (
	detailUnknownWord = "warning: the bank's status word is not in the profile"
	// detailFinalWord belongs to an accepted send whose status word says rejected,
	// returned or manual: the client believes that only from the status API.
	detailFinalWord = "the bank has the transfer, with a final status that the status API has to confirm"
)

// bankTransfer is a transfer in an answer. readTransfer sets all members but the
// reason.
type bankTransfer struct {
	id       string
	key      string
	amount   string // an integer in plain digits
	currency string
	creditor string
	status   string
	reason   string // empty: none
}

// readTransfer reads one transfer. It ignores unknown members, because banks add
// members.
func readTransfer(body []byte) (bankTransfer, error) {
	var raw struct {
		ID              jsontext.Value `json:"id"`
		ClientReference jsontext.Value `json:"client_reference"`
		AmountMinor     jsontext.Value `json:"amount_minor"`
		Currency        jsontext.Value `json:"currency"`
		CreditorAccount jsontext.Value `json:"creditor_account"`
		Status          jsontext.Value `json:"status"`
		Reason          jsontext.Value `json:"reason"`
	}
	// json refuses duplicate members, invalid UTF-8 and trailing data.
	if err := json.Unmarshal(body, &raw); err != nil {
		return bankTransfer{}, errNotWhole
	}
	var t bankTransfer
	whole := readID(raw.ID, &t.id) &&
		readText(raw.ClientReference, &t.key) &&
		readDigits(raw.AmountMinor, &t.amount) &&
		readText(raw.Currency, &t.currency) &&
		readText(raw.CreditorAccount, &t.creditor) &&
		readText(raw.Status, &t.status) &&
		(raw.Reason == nil || raw.Reason.Kind() == jsontext.KindNull || readText(raw.Reason, &t.reason))
	if !whole {
		return bankTransfer{}, errNoTransfer
	}
	return t, nil
}

// readTransfers reads the answer to a status request. Of a longer list it reads two
// transfers.
func readTransfers(body []byte) ([]bankTransfer, error) {
	var raw struct {
		Transfers jsontext.Value `json:"transfers"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, errNotWhole
	}
	if raw.Transfers.Kind() != jsontext.KindBeginArray {
		return nil, errNoList
	}
	values, err := firstTwo(raw.Transfers)
	if err != nil {
		return nil, errNoList
	}
	list := make([]bankTransfer, len(values))
	if len(values) > 1 {
		return list, nil // more than one is manual, whatever they hold
	}
	for i, value := range values {
		var err error
		if list[i], err = readTransfer(value); err != nil {
			return nil, errTransferBad
		}
	}
	return list, nil
}

// firstTwo returns at most two elements of an array: an answer has room for half a
// million, and only their number matters.
func firstTwo(array jsontext.Value) ([]jsontext.Value, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(array))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err //nolint:wrapcheck // the caller replaces it
	}
	var values []jsontext.Value
	for len(values) < 2 && dec.PeekKind() != jsontext.KindEndArray {
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err //nolint:wrapcheck // likewise
		}
		values = append(values, value.Clone())
	}
	return values, nil
}

func readText(raw jsontext.Value, text *string) bool {
	return raw.Kind() == jsontext.KindString && json.Unmarshal(raw, text) == nil && *text != ""
}

// readID reads the bank's transfer ID, which is stored and logged.
func readID(raw jsontext.Value, id *string) bool {
	const maxIDBytes = 256
	return readText(raw, id) && len(*id) <= maxIDBytes && !strings.ContainsFunc(*id, unicode.IsControl)
}

// readDigits accepts digits only and refuses a sign, a point or an exponent, so no
// amount is rounded or read through a float. JSON allows no leading zero, so equal
// amounts have equal digits.
func readDigits(raw jsontext.Value, digits *string) bool {
	if raw.Kind() != jsontext.KindNumber || bytes.ContainsAny(raw, "-+.eE") {
		return false
	}
	*digits = string(raw)
	return true
}

// differsFrom names the members in which the bank's transfer differs from ours; empty:
// none.
func (t bankTransfer) differsFrom(ours transfer.Transfer) string {
	var members []string
	if t.amount != strconv.FormatInt(ours.AmountCents, 10) {
		members = append(members, "amount")
	}
	if t.currency != ours.Currency {
		members = append(members, "currency")
	}
	if t.creditor != ours.CreditorAccount {
		members = append(members, "creditor")
	}
	if len(members) == 0 {
		return ""
	}
	return "the bank's transfer differs from ours in " + strings.Join(members, ", ")
}

// keepIn adds the stored members to an answer. It leaves out a status that is not a
// word, because the text could hold personal data.
func (t bankTransfer) keepIn(a *transfer.BankAnswer) {
	a.TransferID = t.id
	if shapeWord.MatchString(t.status) {
		a.Status = t.status
	}
}

// problem holds the relevant members of a problem document (RFC 9457).
type problem struct{ kind, code string }

// readProblem reads a problem document. It reports false for another media type, an
// incomplete answer, or a document that names another HTTP status: an intermediary
// may have replaced the status.
func (c *Client) readProblem(e exchange) (problem, bool) {
	if e.fault != "" {
		return problem{}, false
	}
	mediaType, _, err := mime.ParseMediaType(e.header.Get("Content-Type"))
	if err != nil || !slices.Contains(c.profile.ProblemMediaTypes, mediaType) {
		return problem{}, false
	}
	var raw struct {
		Type   jsontext.Value `json:"type"`
		Code   jsontext.Value `json:"code"`
		Status jsontext.Value `json:"status"`
	}
	if jsontext.Value(e.body).Kind() == jsontext.KindNull || json.Unmarshal(e.body, &raw) != nil {
		return problem{}, false
	}
	if raw.Status.Kind() == jsontext.KindNumber && string(raw.Status) != strconv.Itoa(e.status) {
		return problem{}, false
	}
	var p problem
	hasType, hasCode := readText(raw.Type, &p.kind), readText(raw.Code, &p.code)
	return p, hasType || hasCode
}

// anyOf reports whether the problem's type or code is one of codes, which must not be
// empty.
func (p problem) anyOf(codes ...string) bool {
	return slices.Contains(codes, p.kind) || slices.Contains(codes, p.code)
}
