package event

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Reconciler makes one run over the bank instructions that are due;
// [*transfer.Reconciler] is one.
type Reconciler interface {
	Reconcile(ctx context.Context) (transfer.Reconciled, error)
}

// ReconcileHandler answers the requests that ask for a run of the reconciler.
// What such a request says does not matter, only that it came, unless it brings a
// payout: that belongs to another topic, and is not acknowledged here. Its fields
// are as in [Handler].
type ReconcileHandler struct {
	Reconciler Reconciler
	Log        *slog.Logger
	Now        func() time.Time
	Timeout    time.Duration
	Gate       *Drainer
	Observer   Observer
}

// ServeHTTP answers one request: 200 with the run's summary, 500 with an error,
// and what [Handler] answers to requests that are not worked on.
func (h *ReconcileHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := h.Now()
	ctx, cancel := withBudget(withRequestTrace(r.Context(), r.Header), h.Timeout)
	defer cancel()
	limitBody(ctx, w, began)
	leave, open := h.Gate.Enter()
	defer leave()
	requests := Handler{Log: h.Log, Now: h.Now}
	if !open {
		requests.turnAway(ctx, turnedAway{slog.LevelInfo, http.StatusServiceUnavailable, textDraining, nil}).write(w, began)
		return
	}
	body, refused := readBody(w, r)
	if refused != nil {
		requests.turnAway(ctx, *refused).write(w, h.Now())
		return
	}
	a := h.run(ctx, began, r.Header, body)
	a.write(w, h.Now())
	observerOf(h.Observer).Answered()
}

// reconcileAnswer is the answer to a run, and the log's line: the summary, or an
// error.
type reconcileAnswer struct {
	status int // zero: 500 with an error, else 200

	Due             int                    `json:"due"`
	States          map[transfer.State]int `json:"states,omitempty"`
	Skipped         int                    `json:"skipped,omitzero"`
	Failed          int                    `json:"failed,omitzero"`
	Left            int                    `json:"left,omitzero"`
	OldestUncertain int64                  `json:"oldest_uncertain_seconds"`
	Manual          int                    `json:"manual"`
	NextDue         time.Time              `json:"next_due,omitzero"`
	Error           string                 `json:"error,omitzero"`
}

func summary(run transfer.Reconciled) reconcileAnswer {
	return reconcileAnswer{
		Due: run.Due, States: run.States, Skipped: run.Skipped, Failed: run.Failed, Left: run.Left,
		OldestUncertain: int64(run.OldestUncertain / time.Second), Manual: run.Manual, NextDue: run.NextDue,
	}
}

// attrs are the summary's for the log.
func (a reconcileAnswer) attrs() []slog.Attr {
	attrs := []slog.Attr{
		slog.Int("due", a.Due), slog.Any("states", a.States), slog.Int("skipped", a.Skipped), slog.Int("failed", a.Failed),
		slog.Int("left", a.Left), slog.Int64("oldest_uncertain_seconds", a.OldestUncertain), slog.Int("manual", a.Manual),
	}
	if !a.NextDue.IsZero() {
		attrs = append(attrs, slog.Time("next_due", a.NextDue))
	}
	return attrs
}

func (a reconcileAnswer) write(w http.ResponseWriter, now time.Time) {
	status := a.status
	switch {
	case status != 0:
	case a.Error != "":
		status = http.StatusInternalServerError
	default:
		status = http.StatusOK
	}
	body, err := json.Marshal(a, json.Deterministic(true))
	if err != nil {
		body = nil // cannot be: counts, times and fixed texts only
	}
	send(w, status, body, now)
}

func (h *ReconcileHandler) run(ctx context.Context, began time.Time, header http.Header, body []byte) (a reconcileAnswer) {
	defer func() {
		if p := recover(); p != nil {
			h.Log.LogAttrs(ctx, LevelCritical, "panic while reconciling", transfer.PanicAttrs(p)...)
			a = reconcileAnswer{Error: textPanic}
		}
	}()
	d := Read(header, body) //nolint:contextcheck // as in Handler
	ctx = withEventTrace(ctx, d)
	if bringsPayout(d.Message.Data) {
		h.Log.LogAttrs(ctx, LevelCritical, "payout delivered to the reconciler",
			slog.String("message_id", d.Message.ID), slog.String("subscription", d.Message.Subscription))
		return reconcileAnswer{Error: textNotHere}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer h.Gate.whenDraining(cancel)() // a run begins no further step then
	return h.reconcile(ctx, began)
}

// observed makes the run under the observer's eyes, in a context of its own that
// ends with ctx.
func (h *ReconcileHandler) observed(ctx context.Context) (_ context.Context, run transfer.Reconciled, err error) {
	ctx, ended := observerOf(h.Observer).Run(ctx)
	err = errNotFinal // what is told of a panic
	defer func() { ended(run, err) }()
	run, err = h.Reconciler.Reconcile(ctx)
	return ctx, run, err
}

func (h *ReconcileHandler) reconcile(ctx context.Context, began time.Time) reconcileAnswer {
	ctx, run, err := h.observed(ctx)
	a := summary(run)
	attrs := append(a.attrs(), slog.Float64("duration_ms", float64(h.Now().Sub(began).Microseconds())/1000))
	switch {
	case err == nil:
		h.Log.LogAttrs(ctx, slog.LevelInfo, "reconciled", attrs...)
		return a
	case errors.Is(ctx.Err(), context.Canceled):
		h.Log.LogAttrs(ctx, slog.LevelInfo, "reconciler stopped", append(attrs, slog.String("error", err.Error()))...)
		a.status, a.Error = http.StatusServiceUnavailable, textDraining
		return a
	case errors.Is(err, transfer.ErrNoBank):
		a.Error = "bank instructions are due and no bank is configured"
	default:
		a.Error = "not reconciled; see the log; the next run goes on"
	}
	h.Log.LogAttrs(ctx, slog.LevelError, "not reconciled", append(attrs, slog.String("error", err.Error()))...)
	return a
}

// bringsPayout reports whether data has what every payout message has, be it
// well-formed or not. To acknowledge a run for it would lose the payout.
func bringsPayout(data []byte) bool {
	var payout struct {
		SettlementID jsontext.Value `json:"settlement_id"`
	}
	lenient := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	_ = json.Unmarshal(data, &payout, lenient) // what was read before a fault counts
	return payout.SettlementID != nil
}
