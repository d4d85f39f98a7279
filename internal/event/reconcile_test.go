package event_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle"
)

// reconcilerFunc is a reconciler that is a function.
type reconcilerFunc func(ctx context.Context) (settle.Reconciled, error)

func (f reconcilerFunc) Reconcile(ctx context.Context) (settle.Reconciled, error) { return f(ctx) }

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
		{"nothing due", http.MethodPost, func(context.Context) (settle.Reconciled, error) { return settle.Reconciled{}, nil }, false, 200, `{"due":0,"oldest_uncertain_seconds":0}`, `"severity":"INFO"`},
		{"no bank", http.MethodPost, func(context.Context) (settle.Reconciled, error) { return settle.Reconciled{Due: 3}, settle.ErrNoBank }, false, 500, `{"due":3,"oldest_uncertain_seconds":0,"error":"bank instructions are due and no bank is configured"}`, `"severity":"ERROR"`},
		{"store down", http.MethodPost, func(context.Context) (settle.Reconciled, error) { return settle.Reconciled{}, errors.New("down") }, false, 500, `{"due":0,"oldest_uncertain_seconds":0,"error":"not reconciled; see the log; the next run goes on"}`, `"error":"down"`},
		{"panic", http.MethodPost, func(context.Context) (settle.Reconciled, error) { panic(marker) }, false, 500, `"error":"unknown whether settled: a fault of the program`, `"severity":"CRITICAL"`},
		{"GET", http.MethodGet, nil, false, 405, `only POST`, `"severity":"WARNING"`},
		{"draining", http.MethodPost, nil, true, 503, `shutting down`, `"severity":"INFO"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			gate := &event.Gate{}
			if test.draining {
				if err := gate.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			handler := &event.ReconcileHandler{Reconciler: test.run, Log: event.NewLogger(&log, 0), Now: time.Now, Timeout: time.Minute, Gate: gate}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), test.method, "/", strings.NewReader("{}")))
			if answer.Code != test.status || !strings.Contains(answer.Body.String(), test.body) {
				t.Errorf("answer %d %s, want %d %s", answer.Code, answer.Body, test.status, test.body)
			}
			if !strings.Contains(log.String(), test.log) {
				t.Errorf("log %s, want %s", &log, test.log)
			}
			if strings.Contains(log.String()+answer.Body.String(), marker) {
				t.Error("the value of a panic got out")
			}
		})
	}
}
