package event_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// reconcilerFunc is a reconciler that is a function.
type reconcilerFunc func(ctx context.Context) (transfer.Reconciled, error)

func (f reconcilerFunc) Reconcile(ctx context.Context) (transfer.Reconciled, error) { return f(ctx) }

func TestReconcileAnswers(t *testing.T) {
	t.Parallel()
	const marker = "marker-of-a-secret"
	for _, test := range []struct {
		name     string
		method   string
		run      reconcilerFunc
		draining bool
		status   int
		body     string
		log      string
	}{
		{"nothing due", http.MethodPost, func(context.Context) (transfer.Reconciled, error) { return transfer.Reconciled{}, nil }, false, 200, `{"due":0,"oldest_uncertain_seconds":0,"manual":0}`, `"severity":"INFO"`},
		{"manual instructions", http.MethodPost, func(context.Context) (transfer.Reconciled, error) { return transfer.Reconciled{Manual: 2}, nil }, false, 200, `"manual":2}`, `"manual":2`},
		{"no bank", http.MethodPost, func(context.Context) (transfer.Reconciled, error) {
			return transfer.Reconciled{Due: 3}, transfer.ErrNoBank
		}, false, 500, `{"due":3,"oldest_uncertain_seconds":0,"manual":0,"error":"bank instructions are due and no bank is configured"}`, `"severity":"ERROR"`},
		{"store down", http.MethodPost, func(context.Context) (transfer.Reconciled, error) { return transfer.Reconciled{}, errors.New("down") }, false, 500, `{"due":0,"oldest_uncertain_seconds":0,"manual":0,"error":"the run failed; see the log; the next run continues"}`, `"error":"down"`},
		{"panic", http.MethodPost, func(context.Context) (transfer.Reconciled, error) { panic(marker) }, false, 500, `"error":"unknown whether settled: a fault of the program`, `"severity":"CRITICAL"`},
		{"GET", http.MethodGet, nil, false, 405, `only POST`, `"severity":"WARNING"`},
		{"draining", http.MethodPost, nil, true, 503, `shutting down`, `"severity":"INFO"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			drainer := &event.Drainer{}
			if test.draining {
				if err := drainer.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			handler := &event.Handler{Work: event.Reconcile(test.run), Log: event.NewLogger(&log, 0), Now: time.Now, Timeout: time.Minute, Drainer: drainer}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), test.method, "/", strings.NewReader(event.Tick)))
			if answer.Code != test.status || !strings.Contains(answer.Body.String(), test.body) {
				t.Errorf("answer %d %s, want %d %s", answer.Code, answer.Body, test.status, test.body)
			}
			if !strings.Contains(log.String(), test.log) {
				t.Errorf("log %s, want %s", &log, test.log)
			}
			if strings.Contains(log.String()+answer.Body.String(), marker) {
				t.Error("the answer or the log contains the panic's value")
			}
		})
	}
}

// A run in progress stops when the instance drains, and one that begins then makes no
// step.
func TestDrainStopsARun(t *testing.T) {
	t.Parallel()
	drainer, begun := &event.Drainer{}, make(chan struct{})
	run := reconcilerFunc(func(ctx context.Context) (transfer.Reconciled, error) {
		close(begun)
		<-ctx.Done()
		return transfer.Reconciled{}, ctx.Err()
	})
	var log bytes.Buffer
	handler := &event.Handler{Work: event.Reconcile(run), Log: event.NewLogger(&log, 0), Now: time.Now, Drainer: drainer}
	answer, answered := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(answered)
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(event.Tick)))
	}()
	<-begun
	if err := drainer.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-answered
	if answer.Code != http.StatusServiceUnavailable || !strings.Contains(log.String(), "reconciler run stopped") {
		t.Errorf("answer %d %s, log %s", answer.Code, answer.Body, &log)
	}
}

// A payouts topic that is bound to the wrong function must not lose a payout, also one that
// SettlePayout would quarantine.
func TestReconcilerAcknowledgesTicksOnly(t *testing.T) {
	t.Parallel()
	const payout = `{"settlement_id":"stl-1","account_id":"a","amount_cents":1}`
	wrapped := func(data string) string {
		return `{"message":{"messageId":"7","data":"` + base64.StdEncoding.EncodeToString([]byte(data)) + `"},"subscription":"s"}`
	}
	structured := http.Header{"Content-Type": {"application/cloudevents+json"}}
	unwrapped := http.Header{"X-Goog-Pubsub-Message-Id": {"7"}}
	wholeEvent := func(data string) string {
		return `{"specversion":"1.0","id":"1","source":"s","type":"` + event.TypeMessagePublished + `","data":` + data + `}`
	}
	for _, test := range []struct {
		name   string
		header http.Header
		body   string
		runs   bool
	}{
		{"pushed", nil, wrapped(payout), false},
		{"structured", structured, wholeEvent(wrapped(payout)), false},
		{"unwrapped", unwrapped, payout, false},
		{"without an envelope", nil, payout, false},
		{"not valid", nil, wrapped(`{"settlement_id":null,"x":1}`), false},
		{"cut off", nil, wrapped(payout[:30]), false},
		{"with a duplicate member", nil, wrapped(`{"settlement_id":"a","settlement_id":"b"}`), false},
		{"with invalid UTF-8", nil, wrapped("{\"settlement_id\":\"\xff\"}"), false},
		{"with a fault before the settlement ID", nil, wrapped(`{"amount_cents":4731.00.0,"settlement_id":"stl-1"}`), false},
		{"in an array", nil, wrapped(`[` + payout + `]`), false},
		{"in a string", nil, wrapped(`"{\"settlement_id\":\"stl-1\"}"`), false},
		{"in another letter case", nil, wrapped(`{"Settlement_id":"stl-1"}`), false},
		{"after a byte order mark", nil, wrapped("\ufeff" + payout), false},
		{"no data", nil, `{"message":{"attributes":{"a":"b"}}}`, false},
		{"an empty object", nil, "{}", false},
		{"an empty body", nil, "", false},
		{"a tick with more", nil, wrapped("tick\n"), false},
		{"a tick in another letter case", nil, wrapped("Tick"), false},
		{"a tick", nil, wrapped("tick"), true},
		{"a structured tick", structured, wholeEvent(wrapped("tick")), true},
		{"an unwrapped tick", unwrapped, "tick", true},
		{"a tick without an envelope", nil, "tick", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			ran := false
			run := reconcilerFunc(func(context.Context) (transfer.Reconciled, error) { ran = true; return transfer.Reconciled{}, nil })
			handler := &event.Handler{Work: event.Reconcile(run), Log: event.NewLogger(&log, 0), Now: time.Now}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(test.body))
			if test.header != nil {
				request.Header = test.header
			}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			want := http.StatusInternalServerError
			if test.runs {
				want = http.StatusOK
			}
			if answer.Code != want || ran != test.runs {
				t.Errorf("answer %d %s, ran %t", answer.Code, answer.Body, ran)
			}
			if alarmed := strings.Contains(log.String(), `"severity":"CRITICAL"`); alarmed == test.runs || alarmed && !strings.Contains(log.String(), "message misrouted") || strings.Contains(log.String(), "stl-1") {
				t.Errorf("log %s", &log)
			}
		})
	}
}
