package event

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/settle"
)

// Reconciler makes one run over the bank instructions that are due;
// [*settle.Reconciler] is one.
type Reconciler interface {
	Reconcile(ctx context.Context) (settle.Reconciled, error)
}

// ReconcileHandler answers the requests that ask for a run of the reconciler.
// What such a request says does not matter, only that it came, so its body is
// bounded and not read into anything. Its fields are as in [Handler].
type ReconcileHandler struct {
	Reconciler Reconciler
	Log        *slog.Logger
	Now        func() time.Time
	Timeout    time.Duration
	Gate       *Gate
}

// ServeHTTP answers one request: 200 with the run's summary, 500 with an error,
// and what [Handler] answers to requests that are not worked on.
func (h *ReconcileHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	leave, open := h.Gate.Enter()
	defer leave()
	requests := Handler{Log: h.Log, Now: h.Now}
	if !open {
		requests.turnAway(r.Context(), turnedAway{slog.LevelInfo, http.StatusServiceUnavailable, textDraining, nil}).write(w)
		return
	}
	if _, refused := readBody(w, r); refused != nil {
		requests.turnAway(r.Context(), *refused).write(w)
		return
	}
	h.run(r.Context()).write(w)
}

// reconcileAnswer is the answer to a run: the summary, or an error.
type reconcileAnswer struct {
	settle.Reconciled `json:",inline"`

	Error string `json:"error,omitzero"`
}

func (a reconcileAnswer) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if a.Error != "" {
		w.WriteHeader(http.StatusInternalServerError)
	}
	body, err := json.Marshal(a)
	if err != nil {
		return // counts and fixed texts only
	}
	_, _ = w.Write(append(body, '\n'))
}

func (h *ReconcileHandler) run(ctx context.Context) (a reconcileAnswer) {
	began := h.Now()
	defer func() {
		if p := recover(); p != nil {
			h.Log.LogAttrs(ctx, LevelCritical, "panic while reconciling",
				slog.String("panic_type", fmt.Sprintf("%T", p)), slog.Any("stack", stack()))
			a = reconcileAnswer{Error: textPanic}
		}
	}()
	if h.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.Timeout)
		defer cancel()
	}
	a.Reconciled, a.Error = h.reconcile(ctx, began)
	return a
}

func (h *ReconcileHandler) reconcile(ctx context.Context, began time.Time) (settle.Reconciled, string) {
	run, err := h.Reconciler.Reconcile(ctx)
	attrs := []slog.Attr{
		slog.Int("due", run.Due),
		slog.Float64("duration_ms", float64(h.Now().Sub(began).Microseconds())/1000),
	}
	if err == nil {
		h.Log.LogAttrs(ctx, slog.LevelInfo, "reconciled", attrs...)
		return run, ""
	}
	h.Log.LogAttrs(ctx, slog.LevelError, "not reconciled", append(attrs, slog.String("error", err.Error()))...)
	if errors.Is(err, settle.ErrNoBank) {
		return run, "bank instructions are due and no bank is configured"
	}
	return run, "not reconciled; see the log; the next run goes on"
}
