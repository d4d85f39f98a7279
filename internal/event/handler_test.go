package event

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

var _ Deliverer = (*settle.Service)(nil)

type delivererFunc func(context.Context, settle.Delivery) (settle.Result, error)

func (f delivererFunc) Deliver(ctx context.Context, d settle.Delivery) (settle.Result, error) {
	return f(ctx, d)
}

// gives returns a deliverer with a fixed result.
func gives(r settle.Result, err error) delivererFunc {
	return func(context.Context, settle.Delivery) (settle.Result, error) { return r, err }
}

// unused returns a deliverer that must not be called.
func unused(t *testing.T) delivererFunc {
	return func(context.Context, settle.Delivery) (settle.Result, error) {
		t.Error("work was begun")
		return settle.Result{}, nil
	}
}

// noon is the clock's first time; each later call adds half a second.
var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

func clock() func() time.Time {
	var looks atomic.Int64
	return func() time.Time { return noon.Add(time.Duration(looks.Add(1)-1) * 500 * time.Millisecond) }
}

// lines is a log for concurrent use.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// only returns the only line of the log, without its time.
func (l *lines) only(t *testing.T) map[string]any {
	t.Helper()
	var line map[string]any
	if err := json.Unmarshal([]byte(l.String()), &line); err != nil {
		t.Fatalf("log is not one line of JSON: %v\n%s", err, l)
	}
	if _, err := time.Parse(time.RFC3339Nano, fmt.Sprint(line["time"])); err != nil {
		t.Errorf("time of the line: %v", err)
	}
	delete(line, "time")
	return line
}

func newHandler(d Deliverer) (*Handler, *lines) {
	log := new(lines)
	return &Handler{Work: Settle(d), Log: NewLogger(log, slog.LevelDebug), Now: clock(), Timeout: time.Minute}, log
}

// post serves a Pub/Sub push body.
func post(ctx context.Context, h http.Handler, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body)))
	return w
}

const wireHash = "v1:0f"

func TestAnswersAndLines(t *testing.T) {
	t.Parallel()
	appliedAt := noon.Add(-time.Hour - 876543211*time.Nanosecond).In(time.FixedZone("", 3600))
	settled := settle.Result{SettlementID: "stl-8472", PayloadHash: wireHash, AppliedAt: appliedAt}
	with := func(change func(*settle.Result)) settle.Result {
		r := settled
		change(&r)
		return r
	}
	unsettled := settle.Result{SettlementID: "stl-8472", PayloadHash: wireHash}
	const known = `"settlement_id":"stl-8472","payload_hash":"v1:0f"`
	const appliedText = `"applied_at":"2026-11-02T10:59:59.123456789Z"`

	tests := []struct {
		name   string
		result settle.Result
		err    error
		status int
		answer string
		line   map[string]any // without the message's and the payout's IDs and times
	}{
		{
			name:   "applied",
			result: with(func(r *settle.Result) { r.Outcome = settle.OutcomeApplied }),
			status: 200,
			answer: `{"outcome":"applied",` + known + `,` + appliedText + `}`,
			line:   map[string]any{"severity": "INFO", "message": "delivery acknowledged", "outcome": "applied"},
		},
		{
			name: "applied with an instruction",
			result: with(func(r *settle.Result) {
				r.Outcome, r.Instruction = settle.OutcomeApplied, transfer.StateUncertain
			}),
			status: 200,
			answer: `{"outcome":"applied",` + known + `,` + appliedText + `,"instruction":"uncertain"}`,
			line:   map[string]any{"severity": "INFO", "message": "delivery acknowledged", "outcome": "applied", "instruction": "uncertain"},
		},
		{
			name: "duplicate of an expired receipt",
			result: with(func(r *settle.Result) {
				r.Outcome, r.ReceiptExpired = settle.OutcomeDuplicate, true
			}),
			status: 200,
			answer: `{"outcome":"duplicate",` + known + `,` + appliedText + `,"receipt_expired":true}`,
			line:   map[string]any{"severity": "INFO", "message": "delivery acknowledged", "outcome": "duplicate", "replay_age_ms": 3601376.0, "receipt_expired": true},
		},
		{
			name: "conflict",
			result: with(func(r *settle.Result) {
				r.Outcome, r.Fields = settle.OutcomeConflict, []string{"amount_cents", "currency"}
			}),
			status: 200,
			answer: `{"outcome":"conflict",` + known + `,` + appliedText + `,"fields":["amount_cents","currency"]}`,
			line: map[string]any{
				"severity": "WARNING", "message": "delivery acknowledged", "outcome": "conflict",
				"replay_age_ms": 3601376.0, "conflict_fields": []any{"amount_cents", "currency"},
			},
		},
		{
			name: "quarantined",
			result: settle.Result{Outcome: settle.OutcomeQuarantined, Refusal: &payout.Refusal{
				Reason: payout.ReasonInvalidField, Member: "amount_cents", Detail: "never told",
			}},
			status: 200,
			answer: `{"outcome":"quarantined","reason":"invalid_field","member":"amount_cents"}`,
			line: map[string]any{
				"severity": "WARNING", "message": "delivery acknowledged", "outcome": "quarantined",
				"reason": "invalid_field", "member": "amount_cents",
			},
		},
		{
			name: "no bank", result: unsettled, err: fmt.Errorf("settle: %w", transfer.ErrNoBank), status: 500,
			answer: `{"outcome":"unknown",` + known + `,"error":"` + textNoBank + `"}`,
			line:   map[string]any{"error": "settle: the payout names a creditor_account and no bank is configured"},
		},
		{
			name: "outcome unknown", result: unsettled, err: fmt.Errorf("%w: %w", settle.ErrOutcomeUnknown, context.DeadlineExceeded), status: 500,
			answer: `{"outcome":"unknown",` + known + `,"error":"` + textUnknown + `"}`,
			line:   map[string]any{"error": "outcome of the commit is unknown: context deadline exceeded"},
		},
		{
			name: "known message", result: settle.Result{Outcome: settle.OutcomeQuarantined, Known: true}, status: 200,
			answer: `{"outcome":"quarantined","known":true}`,
			line:   map[string]any{"severity": "INFO", "message": "delivery acknowledged", "outcome": "quarantined", "known": true},
		},
		{
			name: "rows that contradict each other", result: settle.Result{Outcome: settle.OutcomeQuarantined, Disagreement: "x"}, status: 200,
			answer: `{"outcome":"quarantined","disagreement":"x"}`,
			line:   map[string]any{"severity": "ERROR", "message": "delivery acknowledged", "outcome": "quarantined", "disagreement": "x"},
		},
		{
			name: "deadline", result: unsettled, err: context.DeadlineExceeded, status: 500,
			answer: `{"outcome":"unknown",` + known + `,"error":"` + textDeadline + `"}`,
			line:   map[string]any{"error": "context deadline exceeded"},
		},
		{
			name: "cancelled", result: unsettled, err: context.Canceled, status: 500,
			answer: `{"outcome":"unknown",` + known + `,"error":"` + textCancelled + `"}`,
			line:   map[string]any{"error": "context canceled"},
		},
		{
			name: "any other error", result: unsettled, err: errors.New("rpc: broken pipe"), status: 500,
			answer: `{"outcome":"unknown",` + known + `,"error":"` + textOther + `"}`,
			line:   map[string]any{"error": "rpc: broken pipe"},
		},
		{
			name: "error beside an outcome", result: with(func(r *settle.Result) { r.Outcome = settle.OutcomeApplied }), err: errors.New("x"), status: 500,
			answer: `{"outcome":"unknown",` + known + `,"error":"` + textOther + `"}`,
			line:   map[string]any{"error": "x"},
		},
		{
			name: "too large to keep", err: settle.ErrTooLargeToKeep, status: 413,
			answer: `{"outcome":"unknown","error":"` + textTooLarge + `"}`,
			line:   map[string]any{"error": "message is too large to keep in quarantine"},
		},
		{
			name: "neither outcome nor error", result: unsettled, status: 500,
			answer: `{"outcome":"unknown",` + known + `,"error":"` + textOther + `"}`,
			line:   map[string]any{"error": "deliverer gave neither an outcome nor an error"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var delivered settle.Delivery
			h, log := newHandler(delivererFunc(func(_ context.Context, d settle.Delivery) (settle.Result, error) {
				delivered = d
				return tt.result, tt.err
			}))
			w := post(t.Context(), h, payoutPush)
			if w.Code != tt.status || w.Body.String() != tt.answer+"\n" {
				t.Errorf("answer %d %s\nwant   %d %s", w.Code, w.Body, tt.status, tt.answer)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("content type %q", got)
			}
			if diff := cmp.Diff(payoutDelivery, delivered); diff != "" {
				t.Errorf("delivery (-want +got):\n%s", diff)
			}
			want := map[string]any{
				"severity": "ERROR", "message": "delivery not acknowledged", "outcome": "unknown",
				"message_id": "2070443601311540", "subscription": subscription, "source": subscription, "delivery_attempt": 3.0,
				"publish_lag_ms": 9000376.0, "duration_ms": 500.0,
			}
			if tt.result.SettlementID != "" {
				want["settlement_id"], want["payload_hash"] = "stl-8472", wireHash
			}
			for key, value := range tt.line {
				want[key] = value
			}
			if diff := cmp.Diff(want, log.only(t)); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLineOmitsUnknownFields(t *testing.T) {
	t.Parallel()
	h, log := newHandler(gives(settle.Result{Outcome: settle.OutcomeQuarantined, Refusal: &payout.Refusal{Reason: payout.ReasonEmptyData}}, nil))
	post(t.Context(), h, `{"message":{}}`)
	want := map[string]any{
		"severity": "WARNING", "message": "delivery acknowledged", "outcome": "quarantined", "reason": "empty_data", "duration_ms": 500.0,
	}
	if diff := cmp.Diff(want, log.only(t)); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestRejectedRequests(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var closed Drainer
	if err := closed.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name     string
		ctx      context.Context
		drainer  *Drainer
		method   string
		body     io.Reader
		status   int
		header   http.Header
		text     string
		severity string
	}{
		{"GET", t.Context(), nil, http.MethodGet, nil, 405, headers("Allow", "POST"), textMethod, "WARNING"},
		{"draining", t.Context(), &closed, http.MethodPost, strings.NewReader(payoutPush), 503, headers("Retry-After", "1"), textDraining, "INFO"},
		{"caller gone", gone, nil, http.MethodPost, strings.NewReader(payoutPush), 503, headers("Retry-After", "1"), textGone, "INFO"},
		{"body breaks off", t.Context(), nil, http.MethodPost, io.MultiReader(strings.NewReader(payoutPush), brokenReader{}), 400, nil, textBroken, "WARNING"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, log := newHandler(unused(t))
			h.Drainer = tt.drainer
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(tt.ctx, tt.method, "/", tt.body))
			if want := `{"outcome":"unknown","error":"` + tt.text + "\"}\n"; w.Code != tt.status || w.Body.String() != want {
				t.Errorf("answer %d %s, want %d %s", w.Code, w.Body, tt.status, want)
			}
			for name := range tt.header {
				if got, want := w.Header().Get(name), tt.header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			line := log.only(t)
			if line["severity"] != tt.severity || line["message"] != "request rejected" || line["error"] != tt.text {
				t.Errorf("line %v", line)
			}
		})
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		size      int
		announced bool
		status    int
	}{
		{"16 MiB announced", MaxBodyBytes, true, 200},
		{"16 MiB not announced", MaxBodyBytes, false, 200},
		{"a byte more announced", MaxBodyBytes + 1, true, 413},
		{"a byte more not announced", MaxBodyBytes + 1, false, 413},
		{"17 MiB announced", 17 << 20, true, 413},
		{"17 MiB not announced", 17 << 20, false, 413},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body := bytes.Repeat([]byte(" "), tt.size)
			h, log := newHandler(delivererFunc(func(_ context.Context, d settle.Delivery) (settle.Result, error) {
				if tt.status != 200 {
					t.Error("work was begun")
				}
				if !bytes.Equal(d.Message.Data, body) {
					t.Errorf("data has %d bytes", len(d.Message.Data))
				}
				return settle.Result{Outcome: settle.OutcomeQuarantined, Refusal: d.Refusal}, nil
			}))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
			if !tt.announced {
				r.ContentLength = -1
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.status {
				t.Errorf("status %d, want %d", w.Code, tt.status)
			}
			if line := log.only(t); tt.status == 413 && (line["severity"] != "ERROR" || line["error"] != textBodySize) {
				t.Errorf("line %v", line)
			}
		})
	}
	if want := fmt.Sprint(MaxBodyBytes); !strings.Contains(textBodySize, want) {
		t.Errorf("text %q does not name the limit %s", textBodySize, want)
	}
}

func TestAnnouncedBodyIsNotRead(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(unused(t))
	body := strings.NewReader("x")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
	r.ContentLength = MaxBodyBytes + 1
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge || body.Len() != 1 {
		t.Errorf("status %d, %d bytes left, want 413 and all", w.Code, body.Len())
	}
}

// With and without a Content-Length, over a connection.
func TestBodyLimitOverHTTP(t *testing.T) {
	t.Parallel()
	h := realTime(unused(t))
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	for name, hide := range map[string]func(io.Reader) io.Reader{
		"announced":     func(r io.Reader) io.Reader { return r },
		"not announced": func(r io.Reader) io.Reader { return io.MultiReader(r) },
	} {
		t.Run(name, func(t *testing.T) {
			body := hide(bytes.NewReader(make([]byte, MaxBodyBytes+1)))
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := server.Client().Do(r)
			if err != nil {
				t.Logf("the server closed the connection while the body was sent, as it may: %v", err)
				return
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("status %d", answer.StatusCode)
			}
		})
	}
}

func TestDeliveryHasABudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, log := newHandler(delivererFunc(func(ctx context.Context, _ settle.Delivery) (settle.Result, error) {
			<-ctx.Done()
			return settle.Result{}, errors.New("rpc: code = DeadlineExceeded") // like a database client
		}))
		begin := time.Now()
		w := post(t.Context(), h, payoutPush)
		if took := time.Since(begin); took != h.Timeout {
			t.Errorf("answered after %v, want %v", took, h.Timeout)
		}
		if want := `{"outcome":"unknown","error":"` + textDeadline + "\"}\n"; w.Code != 500 || w.Body.String() != want {
			t.Errorf("answer %d %s, want %s", w.Code, w.Body, want)
		}
		if got := log.only(t)["error"]; got != "rpc: code = DeadlineExceeded (context deadline exceeded)" {
			t.Errorf("error in the log: %q", got)
		}
	})
}

// slowReader takes longer than the handler's budget, without a connection that limits it.
type slowReader struct{ io.Reader }

func (r slowReader) Read(p []byte) (int, error) {
	time.Sleep(2 * time.Minute)
	return r.Reader.Read(p)
}

func TestReadingEndsWithTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, work := range map[string]Work{
			"settle": Settle(unused(t)),
			"reconcile": Reconcile(runs(func(context.Context) (transfer.Reconciled, error) {
				t.Error("work was begun")
				return transfer.Reconciled{}, nil
			})),
		} {
			h, log := newHandler(nil)
			h.Work = work
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", slowReader{strings.NewReader("tick")}))
			if want := `{"outcome":"unknown","error":"` + textDeadline + "\"}\n"; w.Code != 500 || w.Body.String() != want {
				t.Errorf("%s: answer %d %s, want %s", name, w.Code, w.Body, want)
			}
			if line := log.only(t); line["severity"] != "ERROR" || line["message"] != "delivery not acknowledged" || line["outcome"] != "unknown" {
				t.Errorf("%s: line %v", name, line)
			}
		}
	})
}

func TestDrainWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var drainer Drainer
		work := make(chan struct{})
		h, _ := newHandler(delivererFunc(func(context.Context, settle.Delivery) (settle.Result, error) {
			<-work
			return settle.Result{Outcome: settle.OutcomeApplied}, nil
		}))
		h.Drainer = &drainer
		w := httptest.NewRecorder()
		go h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(payoutPush)))
		synctest.Wait()

		drained := make(chan error, 1)
		go func() { drained <- drainer.Drain(t.Context()) }()
		synctest.Wait()
		if late := post(t.Context(), h, payoutPush); late.Code != http.StatusServiceUnavailable {
			t.Errorf("status %d while draining, want 503", late.Code)
		}
		close(work)
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
		if w.Code != 200 || w.Body.Len() == 0 {
			t.Errorf("answer %d %s of the delivery in progress", w.Code, w.Body)
		}
	})
}

// An answer that has begun is an irrevocable acknowledgement.
func TestAnswerFollowsTheDelivery(t *testing.T) {
	t.Parallel()
	for want, err := range map[int]error{http.StatusOK: nil, http.StatusInternalServerError: settle.ErrOutcomeUnknown} {
		w := &httptest.ResponseRecorder{Body: new(bytes.Buffer)} // its Code is zero until an answer begins
		h, _ := newHandler(delivererFunc(func(context.Context, settle.Delivery) (settle.Result, error) {
			if w.Code != 0 || w.Body.Len() > 0 || w.Flushed {
				t.Errorf("answered %d %s before the end of the delivery", w.Code, w.Body)
			}
			return settle.Result{Outcome: settle.OutcomeApplied}, err
		}))
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(payoutPush)))
		if w.Code != want {
			t.Errorf("status %d, want %d", w.Code, want)
		}
	}
}

// The process may end after its last request, and then loses buffered data.
func TestAnswerIsFlushed(t *testing.T) {
	t.Parallel()
	h := realTime(gives(settle.Result{Outcome: settle.OutcomeApplied}, nil))
	h.Drainer = new(Drainer)
	held := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		<-held // after this the server flushes its buffer
	}))
	defer server.Close()
	defer close(held)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(payoutPush))
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(body), "applied") {
		t.Errorf("%q, %v", body, err)
	}
}

func TestConcurrentRequestsDoNotMix(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(delivererFunc(func(_ context.Context, d settle.Delivery) (settle.Result, error) {
		return settle.Result{Outcome: settle.OutcomeApplied, SettlementID: d.Message.ID + string(d.Message.Data)}, nil
	}))
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for j := range 50 {
				header, body := concurrentRequest(fmt.Sprintf("%d-%d", i, j), j)
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
				r.Header = header
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if want := fmt.Sprintf(`{"outcome":"applied","settlement_id":"%d-%d{}"}`+"\n", i, j); w.Body.String() != want {
					t.Errorf("answer %s, want %s", w.Body, want)
				}
			}
		})
	}
	wg.Wait()
}

// concurrentRequest returns a request with the message ID, in one of the formats.
func concurrentRequest(id string, form int) (http.Header, string) {
	push := `{"message":{"data":"e30=","messageId":"` + id + `"}}`
	switch form % 3 {
	case 0:
		return binaryHeaders(), push
	case 1:
		return structuredHeaders, structured(`"data":` + push)
	}
	return http.Header{}, push
}
