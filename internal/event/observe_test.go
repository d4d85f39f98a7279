package event

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// A line has the event's trace, otherwise the publisher's, otherwise the request's.
func TestTraceOfALine(t *testing.T) {
	t.Parallel()
	const (
		request   = "11111111111111111111111111111111"
		publisher = "22222222222222222222222222222222"
		event     = "33333333333333333333333333333333"
	)
	parent := func(trace string) string { return "00-" + trace + "-4444444444444444-00" }
	published := strings.Replace(payoutPush, `"attributes":{`, `"attributes":{"googclient_traceparent":"`+parent(publisher)+`",`, 1)
	if published == payoutPush {
		t.Fatal("the push body has no attributes to add to")
	}
	for _, tt := range []struct {
		name   string
		header http.Header
		body   string
		want   string
	}{
		{"no trace", headers(), payoutPush, ""},
		{"request's", headers("Traceparent", parent(request)), payoutPush, request},
		{"publisher's", headers("Traceparent", parent(request)), published, publisher},
		{"event's, binary", binaryHeaders("Traceparent", parent(request), "Ce-Traceparent", parent(event)), published, event},
		{"event's, structured", structuredHeaders, structured(`"traceparent":"` + parent(event) + `","data":` + published), event},
		{"malformed", binaryHeaders("Traceparent", "00-x-y-z", "Ce-Traceparent", "00-1-2-3"), payoutPush, ""},
		{"malformed beside a valid one", binaryHeaders("Traceparent", parent(request), "Ce-Traceparent", "00-1-2-3"), payoutPush, request},
		{"not an event", headers("Traceparent", parent(request)), "{", request},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			log := new(lines)
			deliverer := gives(settle.Result{Outcome: settle.OutcomeApplied}, nil)
			h := &Handler{Work: Settle(deliverer), Log: NewLoggerIn("p", log, 0), Now: clock()}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(tt.body))
			r.Header = tt.header.Clone()
			h.ServeHTTP(httptest.NewRecorder(), r)
			got := map[string]any{}
			for key, value := range log.only(t) {
				if strings.HasPrefix(key, "logging.googleapis.com/") {
					got[key] = value
				}
			}
			want := map[string]any{}
			if tt.want != "" {
				want = map[string]any{
					"logging.googleapis.com/trace":         "projects/p/traces/" + tt.want,
					"logging.googleapis.com/spanId":        "4444444444444444",
					"logging.googleapis.com/trace_sampled": false,
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTraceWithoutAProject(t *testing.T) {
	t.Parallel()
	log := new(lines)
	ctx := withTrace(t.Context(), "00-11111111111111111111111111111111-4444444444444444-01")
	NewLogger(log, 0).With("a", 1).InfoContext(ctx, "text")
	if line := log.only(t); line["logging.googleapis.com/trace"] != "11111111111111111111111111111111" || line["a"] != 1.0 {
		t.Errorf("line %v", line)
	}
}

type observed struct {
	result   settle.Result
	err      error
	ended    int
	answered bool
	sent     *httptest.ResponseRecorder
	body     string // the body sent before the call of Answered
}

type markedContext struct{}

func (o *observed) Delivery(ctx context.Context, _ settle.Delivery) (context.Context, func(settle.Result, error)) {
	return context.WithValue(ctx, markedContext{}, true), func(r settle.Result, err error) {
		o.result, o.err, o.ended = r, err, o.ended+1
	}
}

func (o *observed) Run(ctx context.Context) (context.Context, func(transfer.Reconciled, error)) {
	return context.WithValue(ctx, markedContext{}, true), func(_ transfer.Reconciled, err error) { o.err, o.ended = err, o.ended+1 }
}

func (o *observed) Answered() { o.answered, o.body = true, o.sent.Body.String() }

type reconcilerFunc func(context.Context) (transfer.Reconciled, error)

func (f reconcilerFunc) Reconcile(ctx context.Context) (transfer.Reconciled, error) { return f(ctx) }

// The observer is called once for each delivery and run, also after a panic, and once
// more after the answer.
func TestObserverSeesEveryDelivery(t *testing.T) {
	t.Parallel()
	failed := errors.New("x")
	for name, works := range map[string]func() error{
		"well": func() error { return nil }, "failed": func() error { return failed }, "panic": func() error { panic("x") },
	} {
		check := func(kind string, o *observed) {
			o.sent = httptest.NewRecorder()
			marked := false
			mark := func(ctx context.Context) error { marked = ctx.Value(markedContext{}) != nil; return works() }
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(payoutPush))
			if kind == "delivery" {
				(&Handler{Work: Settle(delivererFunc(func(ctx context.Context, _ settle.Delivery) (settle.Result, error) {
					return settle.Result{Outcome: settle.OutcomeApplied, SettlementID: "stl-1"}, mark(ctx)
				})), Log: NewLogger(&bytes.Buffer{}, 0), Now: clock(), Observer: o}).ServeHTTP(o.sent, r)
			} else {
				r.Body = io.NopCloser(strings.NewReader(Tick))
				(&Handler{Work: Reconcile(reconcilerFunc(func(ctx context.Context) (transfer.Reconciled, error) {
					return transfer.Reconciled{}, mark(ctx)
				})), Log: NewLogger(&bytes.Buffer{}, 0), Now: clock(), Observer: o}).ServeHTTP(o.sent, r)
			}
			if !marked || o.ended != 1 || !o.answered || !strings.HasSuffix(o.body, "}\n") || (o.err == nil) != (name == "well") {
				t.Errorf("%s, %s: in the observer's context %t, ended %d times with error %v; answered %t: %s",
					name, kind, marked, o.ended, o.err, o.answered, o.body)
			}
			if kind == "delivery" && name == "well" && o.result.SettlementID != "stl-1" {
				t.Errorf("observed %+v", o.result)
			}
		}
		check("delivery", &observed{})
		check("run", &observed{})
	}
}
