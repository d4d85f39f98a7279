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

// maxRetryAfter is the longest wait that a bank is believed to mean.
const maxRetryAfter = 24 * time.Hour

// sendBodyMatters reports whether the body of an answer with that status can
// change what it proves. Any other body is not waited for.
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

// readSend classifies a send. See the package's comment for the table.
func (c *Client) readSend(r transfer.SendRequest, e exchange) transfer.SendResult {
	result := transfer.SendResult{Answer: c.answer(e)}
	switch status := e.status; {
	case e.nothingWritten:
		result.Class = transfer.SendNotSent
	case status == 0:
		// Uncertain; the fault is the detail.
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

// readTransferAnswer reads a 2xx. It leaves the class uncertain where the body
// does not prove more.
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
		result.Answer.Detail = errOtherKey.Error() // nothing else of it is about our transfer
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

// readRefusal reads a 400, 402, 403 or 422.
func (c *Client) readRefusal(r transfer.SendRequest, e exchange, result *transfer.SendResult) {
	p, ok := c.readProblem(e)
	listed := ok && p.anyOf(c.profile.Reject...)
	switch {
	case listed && r.EarlierMayHaveReached:
		// The refusal is of this copy: the bank may refuse it because it has the first.
		result.Answer.Detail = "a listed refusal, after an earlier send that may have reached the bank"
	case listed:
		result.Class, result.Answer.Detail = transfer.SendRejected, ""
	case e.status == http.StatusForbidden:
		result.Class = transfer.SendHeld
	case ok:
		result.Answer.Detail = "a problem that is not on the profile's reject list"
	case e.fault == "":
		result.Answer.Detail = "a refusal that is no problem document"
	}
}

// readStatus reads the answer to a status question. See the package's comment for
// the table.
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

// readTransferList reads the body of a 200. It leaves the reading unknown where
// the body does not prove more.
func (c *Client) readTransferList(ours transfer.Transfer, body []byte, result *transfer.StatusResult) {
	list, err := readTransfers(body)
	switch {
	case err != nil:
		result.Answer.Detail = err.Error()
	case len(list) == 0 && c.profile.NotFound.EmptyList:
		result.Reading, result.Answer.Detail = transfer.StatusNotFound, ""
	case len(list) == 0:
		result.Answer.Detail = "an empty list, which proves nothing at this bank"
	case len(list) > 1:
		result.Reading, result.Answer.Detail = transfer.StatusManual, "more than one transfer"
	case list[0].key != ours.Key.String():
		result.Answer.Detail = errOtherKey.Error()
	default:
		list[0].keepIn(&result.Answer)
		result.Reading, result.Answer.Detail = c.meaning(list[0], ours)
	}
}

// meaning says what the one transfer under our key tells, and what is unusual.
func (c *Client) meaning(theirs bankTransfer, ours transfer.Transfer) (transfer.StatusReading, string) {
	if difference := theirs.differsFrom(ours); difference != "" {
		return transfer.StatusManual, difference
	}
	reading, known := c.readings[theirs.status]
	switch {
	case !known:
		return transfer.StatusPending, detailUnknownWord
	case reading == transfer.StatusRejected && slices.Contains(c.profile.Statuses.ManualReasons, theirs.reason):
		return transfer.StatusAttention, "rejected for a reason that hints at another transfer"
	}
	return reading, ""
}

// answer returns what is kept of any answer. The detail is replaced where more
// can be said.
func (c *Client) answer(e exchange) transfer.BankAnswer {
	a := transfer.BankAnswer{HTTPStatus: e.status, RetryAfter: retryAfter(e.header, c.now()), Detail: e.fault}
	if a.Detail == "" {
		a.Detail = fmt.Sprintf("HTTP status %d", e.status)
	}
	return a
}

// retryAfter reads how long the bank asks to wait, in seconds or as a date. What
// is neither, or past, asks for nothing.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter // so many digits are a long time too
		}
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(0, date.Sub(now)), maxRetryAfter)
}

// What is wrong with a body, in words.
var (
	errNotWhole    = errors.New("the body is not one whole JSON object")
	errNoList      = errors.New("the body has no list of transfers")
	errNoTransfer  = errors.New("the body is no transfer: a member is missing or of another kind")
	errOtherKey    = errors.New("the transfer has another key than the one that was sent")
	errTransferBad = errors.New("the list holds something that is no transfer")
)

const (
	detailUnknownWord = "warning: the bank's status word is not in the profile"
	// detailFinalWord stands with an accepted send whose word says rejected, returned
	// or manual: only the status API is believed about that.
	detailFinalWord = "the bank has the transfer, with a word that the status API has to say again"
)

// bankTransfer is a transfer as the bank tells it. Only readTransfer makes one, and
// all members but the reason are then there.
type bankTransfer struct {
	id       string
	key      string
	amount   string // an integer in plain digits
	currency string
	creditor string
	status   string
	reason   string // empty where there is none
}

// readTransfer reads one transfer. Members that it does not know are let pass,
// since banks add some.
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
	// Refuses duplicate members, invalid UTF-8 and anything after the value.
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

// readTransfers reads the answer to a look-up.
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
		return list, nil // more than one says it all, whatever is in them
	}
	for i, value := range values {
		var err error
		if list[i], err = readTransfer(value); err != nil {
			return nil, errTransferBad
		}
	}
	return list, nil
}

// firstTwo returns the elements of an array, at most two of them: an answer has
// room for half a million, and nobody asks which they are.
func firstTwo(array jsontext.Value) ([]jsontext.Value, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(array))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err //nolint:wrapcheck // the caller says what it means
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

// readID reads the bank's name of the transfer, which is stored and logged.
func readID(raw jsontext.Value, id *string) bool {
	const maxIDBytes = 256
	return readText(raw, id) && len(*id) <= maxIDBytes && !strings.ContainsFunc(*id, unicode.IsControl)
}

// readDigits takes plain digits only: a sign, a point or an exponent is refused,
// so no amount is ever rounded or read through a float. JSON allows no leading
// zero, so equal amounts have equal digits, of whatever length.
func readDigits(raw jsontext.Value, digits *string) bool {
	if raw.Kind() != jsontext.KindNumber || bytes.ContainsAny(raw, "-+.eE") {
		return false
	}
	*digits = string(raw)
	return true
}

// differsFrom names the members in which the bank's transfer is not ours, or
// returns "".
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

// keepIn keeps what is ours to keep. A status that has not the shape of a word is
// left out: it could be anything.
func (t bankTransfer) keepIn(a *transfer.BankAnswer) {
	a.TransferID = t.id
	if shapeWord.MatchString(t.status) {
		a.Status = t.status
	}
}

// problem is a problem document (RFC 9457) as far as it matters.
type problem struct{ kind, code string }

// readProblem reads a problem document. It is none where the answer does not
// call itself one, is not whole, or names another HTTP status than it came with,
// as happens when something between the bank and us has replaced the status.
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

// anyOf reports whether the problem's type or code is among the given ones, none
// of which is empty.
func (p problem) anyOf(codes ...string) bool {
	return slices.Contains(codes, p.kind) || slices.Contains(codes, p.code)
}
