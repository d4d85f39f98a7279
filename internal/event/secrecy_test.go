package event

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// marker is the value of every secret in these tests. No answer and no log may contain
// it.
const marker = "XYZZY-8b1f"

// secretPayout is a payout message with the marker in every secret member.
const secretPayout = `{"settlement_id":"stl-1","account_id":"a","amount_cents":777123456789,"currency":"EUR",` +
	`"creditor_account":"` + marker + `","reference":"` + marker + `","metadata":{"` + marker + `":"` + marker + `"}}`

// secretPush returns a push body with the given data, and the marker in its attributes
// and ordering key.
func secretPush(data string) string {
	return `{"message":{"data":"` + base64.StdEncoding.EncodeToString([]byte(data)) + `","messageId":"1","orderingKey":"` + marker +
		`","attributes":{"` + marker + `":"` + marker + `"}},"subscription":"` + subscription + `","` + marker + `":"` + marker + `"}`
}

type fakeStore struct {
	settle.Store
	settle     func(settle.Settlement) (settle.Result, error)
	quarantine func(settle.Quarantined) error
}

func (s fakeStore) Settle(_ context.Context, x settle.Settlement) (settle.Result, error) {
	if x.Unroutable() {
		return settle.Result{}, transfer.ErrNoBank
	}
	return s.settle(x)
}

func (s fakeStore) Quarantine(_ context.Context, q settle.Quarantined) (bool, error) {
	return false, s.quarantine(q)
}

type secretBank struct{ transfer.Bank }

func (secretBank) Compose(p payout.Payout, _ uuid.UUID) ([]byte, error) {
	return []byte(p.CreditorAccount), nil
}

// TestAnswersAndLogsHoldNoPayload searches the answers and logs of every kind of delivery
// for the marker.
func TestAnswersAndLogsHoldNoPayload(t *testing.T) {
	t.Parallel()
	settlesAs := func(o settle.Outcome) func(settle.Settlement) (settle.Result, error) {
		return func(s settle.Settlement) (settle.Result, error) {
			if !strings.Contains(fmt.Sprint(s), marker) {
				t.Error("the marker does not reach the store")
			}
			return settle.Result{Outcome: o, SettlementID: s.Payout.SettlementID, PayloadHash: s.Hash, Fields: []string{"reference"}}, nil
		}
	}
	var quarantined atomic.Int64
	service := func(settles func(settle.Settlement) (settle.Result, error), bank transfer.Bank) *settle.Service {
		var banking *transfer.Stepper
		if bank != nil {
			banking = &transfer.Stepper{Bank: bank, NewID: func() string { return "id" }, Now: clock(), Log: slog.New(slog.DiscardHandler)}
		}
		return &settle.Service{
			Store: fakeStore{settle: settles, quarantine: func(q settle.Quarantined) error {
				if !bytes.Contains(q.Message.Data, []byte(marker)) && !strings.Contains(fmt.Sprint(q.Message.Attributes), marker) {
					t.Errorf("quarantine lost the marker: %+v", q)
				}
				quarantined.Add(1)
				return nil
			}},
			Banking: banking, NewID: func() string { return "id" }, Now: clock(),
		}
	}
	applies := service(settlesAs(settle.OutcomeApplied), secretBank{})
	panics := func(value any) Deliverer {
		return delivererFunc(func(_ context.Context, d settle.Delivery) (settle.Result, error) {
			panicWith(value, 777123456789, d.Message.Data)
			return settle.Result{}, nil
		})
	}
	refused := func(header http.Header, body string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?"+marker, strings.NewReader(body))
		r.Header = header
		r.Header.Set("Authorization", marker)
		r.Header.Set("Traceparent", marker) // malformed, so ignored
		return r
	}
	p := func() *http.Request { return refused(http.Header{}, secretPush(secretPayout)) }

	tests := []struct {
		name      string
		deliverer Deliverer
		request   *http.Request
		status    int
	}{
		{"applied", applies, p(), 200},
		{"duplicate", service(settlesAs(settle.OutcomeDuplicate), secretBank{}), p(), 200},
		{"conflict", service(settlesAs(settle.OutcomeConflict), secretBank{}), p(), 200},
		{"no bank", service(settlesAs(settle.OutcomeApplied), nil), p(), 500},
		{"unknown member", applies, refused(http.Header{}, secretPush(`{"`+marker+`":1}`)), 200},
		{"duplicate member", applies, refused(http.Header{}, secretPush(`{"`+marker+`":1,"`+marker+`":2}`)), 200},
		{"not JSON", applies, refused(http.Header{}, secretPush(marker)), 200},
		{"invalid value", applies, refused(http.Header{}, secretPush(strings.Replace(secretPayout, `"EUR"`, `"`+marker+`"`, 1))), 200},
		{"not an event", applies, refused(http.Header{}, marker), 200},
		{"bad base64", applies, refused(http.Header{}, `{"message":{"data":"`+marker+`%"}}`), 200},
		{"attribute of the wrong kind", applies, refused(http.Header{}, `{"message":{"attributes":{"`+marker+`":1}}}`), 200},
		{"duplicate attribute", applies, refused(http.Header{}, `{"message":{"attributes":{"`+marker+`":"1","`+marker+`":"1"}}}`), 200},
		{"event of another type", applies, refused(binaryHeaders("Ce-Type", marker), marker), 200},
		{"malformed event", applies, refused(binaryHeaders("Ce-"+marker, marker), `{}`), 200},
		{"malformed structured event", applies, refused(structuredHeaders.Clone(), structured(`"data_base64":"`+marker+`"`)), 200},
		{"event's SDK panics", applies, refused(binaryHeaders("Ce-", marker), marker), 200},
		{"too large to keep", applies, refused(http.Header{}, marker+strings.Repeat(" ", settle.MaxQuarantineBytes)), 413},
		{"panic with a string", panics(marker), p(), 500},
		{"panic with an error", panics(errors.New(marker)), p(), 500},
		{"panic with the payout", panics(payout.Payout{Reference: marker}), p(), 500},
		{"panic with http.ErrAbortHandler", panics(http.ErrAbortHandler), p(), 500},
		{"wrong method", applies, httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/?"+marker, strings.NewReader(marker)), 405},
	}
	for _, tt := range tests {
		h, log := newHandler(tt.deliverer)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, tt.request)
		if w.Code != tt.status {
			t.Errorf("%s: status %d %s, want %d", tt.name, w.Code, w.Body, tt.status)
		}
		for output, text := range map[string]string{
			"log": log.String(), "answer": w.Body.String(), "header": fmt.Sprint(w.Header()),
		} {
			for _, secret := range []string{marker, strings.ToLower(marker), base64.StdEncoding.EncodeToString([]byte(marker)), "777123456789", "b4f042d515"} {
				if strings.Contains(text, secret) {
					t.Errorf("%s: %s shows %q:\n%s", tt.name, output, secret, text)
				}
			}
		}
	}
	if quarantined.Load() == 0 {
		t.Error("nothing was quarantined")
	}
}

// panicWith has an amount among its arguments. debug.Stack would print it as
// 0xb4f042d515.
//
//go:noinline
func panicWith(value any, amountCents int64, data []byte) {
	if amountCents > 0 && len(data) > 0 {
		panic(value)
	}
}

func TestPanicIsAnsweredAndLogged(t *testing.T) {
	t.Parallel()
	var drainer Drainer
	h, log := newHandler(delivererFunc(func(context.Context, settle.Delivery) (settle.Result, error) {
		panicWith(errors.New("x"), 1, []byte("x"))
		return settle.Result{}, nil
	}))
	h.Drainer = &drainer
	w := post(t.Context(), h, payoutPush)
	if want := `{"outcome":"unknown","error":"` + textPanic + "\"}\n"; w.Code != 500 || w.Body.String() != want {
		t.Errorf("answer %d %s, want 500 %s", w.Code, w.Body, want)
	}
	line := log.only(t)
	if line["severity"] != "CRITICAL" || line["panic_type"] != "*errors.errorString" || line["message_id"] != payoutDelivery.Message.ID {
		t.Errorf("line %v", line)
	}
	if frames := fmt.Sprint(line["stack"]); !strings.Contains(frames, "event.panicWith /") || !strings.Contains(frames, "secrecy_test.go:") {
		t.Errorf("the stack lacks the function or the file: %s", frames)
	}
	if err := drainer.Drain(t.Context()); err != nil {
		t.Errorf("the panicked delivery is still in progress: %v", err)
	}
}
