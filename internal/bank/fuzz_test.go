package bank

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/jsoncases"
)

// echoed is a transfer, read independently of read.go.
type echoed struct {
	ID              string `json:"id"`
	ClientReference string `json:"client_reference"`
	AmountMinor     int64  `json:"amount_minor"`
	Currency        string `json:"currency"`
	CreditorAccount string `json:"creditor_account"`
	Status          string `json:"status"`
}

func (e echoed) isOurs() bool {
	return e.ID != "" && e == echoed{
		ID: e.ID, ClientReference: testTransfer.Key.String(), AmountMinor: testTransfer.AmountCents,
		Currency: testTransfer.Currency, CreditorAccount: testTransfer.CreditorAccount, Status: e.Status,
	}
}

// addCases calls add with the end of an object, once for each JSON case about which
// parsers differ.
func addCases(f *testing.F, add func(member string)) {
	f.Helper()
	for _, c := range jsoncases.Cases(f) {
		if len(c.Input) < 1<<10 && c.Name[0] == 'i' {
			add(`,"new":` + string(c.Input) + "}")
		}
	}
}

func FuzzReadSend(f *testing.F) {
	for _, body := range []string{
		goodTransfer, goodTransfer + "x", with("4731", "4732"), with("cp-19", "cp-20"), with("4731", "4731.0"), withStatus("NEWWORD"),
		"{}", "null", "[]", "", `{"code":"insufficient_funds"}`, `{"type":"insufficient_funds","status":422}`, goodTransfer[:50],
	} {
		f.Add(uint16(201), "application/json", "3", []byte(body), false)
		f.Add(uint16(422), "application/problem+json", "", []byte(body), false)
		f.Add(uint16(403), "application/problem+json", "Sun, 29 Nov 2026 12:01:30 GMT", []byte(body), true)
	}
	addCases(f, func(member string) {
		f.Add(uint16(201), "application/json", "", []byte(strings.TrimSuffix(goodTransfer, "}")+member), false)
		f.Add(uint16(422), "application/problem+json", "", []byte(`{"code":"insufficient_funds"`+member), false)
	})
	client := newClient(f, testConfig("https://bank.example"))
	f.Fuzz(func(t *testing.T, code uint16, contentType, retry string, body []byte, earlier bool) {
		status := int(code)
		request := sendRequest()
		request.EarlierMayHaveReached = earlier
		header := http.Header{"Content-Type": {contentType}, "Retry-After": {retry}}
		e := exchange{status: status, header: header, body: body}
		got := client.readSend(request, e)
		switch got.Class {
		case transfer.SendAccepted:
			var echo echoed
			if err := json.Unmarshal(body, &echo); err != nil || !echo.isOurs() || status < 200 || status > 299 {
				t.Errorf("accepted: %d %q", status, body)
			}
			if _, known := client.readings[echo.Status]; !known {
				t.Errorf("accepted with the word %q", echo.Status)
			}
		case transfer.SendRejected:
			listed := strings.Contains(string(body), "code") || strings.Contains(string(body), "type")
			if earlier || !listed || status != 400 && status != 402 && status != 403 && status != 422 {
				t.Errorf("rejected: %d %q, earlier %v", status, body, earlier)
			}
		case transfer.SendManual:
			if status < 200 || status > 299 || !strings.Contains(string(body), "amount_minor") && !strings.Contains(string(body), `\u`) {
				t.Errorf("manual: %d %q", status, body)
			}
		case transfer.SendNotSent:
			t.Errorf("an answer means that something was sent: %d", status)
		case transfer.SendUncertain, transfer.SendHeld, transfer.SendRetryLater:
		}
		checkAnswer(t, got.Answer)

		e.fault, e.body = detailBodyBroken, nil
		if got := client.readSend(request, e); got.Class == transfer.SendAccepted || got.Class == transfer.SendRejected || got.Class == transfer.SendManual {
			t.Errorf("%v by a body that broke off", got.Class)
		}
	})
}

func FuzzReadStatus(f *testing.F) {
	for _, body := range []string{
		list(), list(goodTransfer), list(withStatus("ACSC")), list(withStatus("RJCT")), list(goodTransfer, goodTransfer), list("{}"),
		list(with(`"ACCP"`, `"RJCT","reason":"DUPL"`)), list(with("4731", "1")), "{}", "null", "", `{"code":"transfer_not_found"}`, list() + "x",
	} {
		f.Add(uint16(200), "application/json", []byte(body))
		f.Add(uint16(404), "application/problem+json", []byte(body))
	}
	addCases(f, func(member string) {
		f.Add(uint16(200), "application/json", []byte(`{"transfers":[`+strings.TrimSuffix(goodTransfer, "}")+member+`]}`))
	})
	client := newClient(f, testConfig("https://bank.example"))
	f.Fuzz(func(t *testing.T, code uint16, contentType string, body []byte) {
		status := int(code)
		e := exchange{status: status, header: http.Header{"Content-Type": {contentType}}, body: body}
		got := client.readStatus(statusRequest(), e)
		var answer struct {
			Transfers []echoed `json:"transfers"`
		}
		err := json.Unmarshal(body, &answer)
		one := err == nil && status == 200 && len(answer.Transfers) == 1 && answer.Transfers[0].isOurs()
		switch got.Reading {
		case transfer.StatusPending, transfer.StatusConfirmed, transfer.StatusRejected, transfer.StatusReturned, transfer.StatusAttention:
			if !one {
				t.Errorf("%v: %d %q", got.Reading, status, body)
			}
		case transfer.StatusNotFound:
			if status != 404 && (status != 200 || err != nil || len(answer.Transfers) != 0) {
				t.Errorf("not found: %d %q", status, body)
			}
		case transfer.StatusManual:
			if status != 200 {
				t.Errorf("manual: %d %q", status, body)
			}
		case transfer.StatusUnknown:
		}
		checkAnswer(t, got.Answer)

		e.fault, e.body = detailBodyBroken, nil
		if got := client.readStatus(statusRequest(), e); got.Reading != transfer.StatusUnknown {
			t.Errorf("%v by a body that broke off", got.Reading)
		}
	})
}

// checkAnswer checks that the answer is bounded and can be stored.
func checkAnswer(t *testing.T, a transfer.BankAnswer) {
	t.Helper()
	checkDetail(t, a.Detail)
	if a.RetryAfter < 0 || a.RetryAfter > maxRetryAfter {
		t.Errorf("Retry-After %v", a.RetryAfter)
	}
	if len(a.TransferID) > 256 || a.Status != "" && !shapeWord.MatchString(a.Status) {
		t.Errorf("kept: %+v", a)
	}
}

// maxProfileErrorBytes bounds the error of a profile, which becomes a log line.
const maxProfileErrorBytes = 32 << 10

// FuzzParseProfile checks that an error is bounded and has the expected value, and that
// an accepted profile is valid, makes a client, and survives writing and reading.
func FuzzParseProfile(f *testing.F) {
	for _, profile := range []string{minimalProfile, wholeProfile, "{}", "null", `{"name":1}`, `{"statuses.pending":[]}`, `{"statuses":{},"not_found":[]}`} {
		f.Add([]byte(profile))
	}
	addCases(f, func(member string) { f.Add([]byte(strings.TrimSuffix(minimalProfile, "}") + member)) })
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseProfile(data)
		if err != nil {
			if diff := cmp.Diff(Profile{}, p); diff != "" {
				t.Errorf("a profile beside the error:\n%s", diff)
			}
			if text := err.Error(); len(text) > maxProfileErrorBytes || !utf8.ValidString(text) || !strings.Contains(text, "expected") {
				t.Errorf("error of %d bytes: %.1000q", len(text), text)
			}
			return
		}
		if err := p.Validate(); err != nil {
			t.Errorf("parsed, but %v", err)
		}
		config := testConfig("https://bank.example")
		config.Profile = p
		c, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, mapped := c.readings[statusGroup]; mapped {
			t.Error("PART has a meaning")
		}
		again, err := ParseProfile(written(t, p))
		if err != nil {
			t.Fatalf("written and read again: %v", err)
		}
		if diff := cmp.Diff(p, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("written and read again (-before +after):\n%s", diff)
		}
	})
}

// written returns a profile as a file.
func written(t *testing.T, p Profile) []byte {
	t.Helper()
	notFound := map[string]any{"empty_list": p.NotFound.EmptyList}
	if p.NotFound.ProblemCode != "" {
		notFound["problem_code"] = p.NotFound.ProblemCode
	}
	s := p.Statuses
	file, err := json.Marshal(map[string]any{
		"name": p.Name, "transfer_path": p.TransferPath, "key_header": p.KeyHeader, "key_quoted": p.KeyQuoted,
		"key_lifetime": p.KeyLifetime.String(), "visibility_lag": p.VisibilityLag.String(),
		"reject": p.Reject, "problem_media_types": p.ProblemMediaTypes, "lookup_parameter": p.LookupParameter,
		"statuses": map[string]any{
			"pending": s.Pending, "confirmed": s.Confirmed, "rejected": s.Rejected, "returned": s.Returned,
			"manual": s.Manual, "manual_reasons": s.ManualReasons,
		},
		"not_found": notFound,
	})
	if err != nil {
		t.Fatal(err)
	}
	return file
}
