package event

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Reconciler makes one run over the due bank instructions; [*transfer.Reconciler] is
// one.
type Reconciler interface {
	Reconcile(ctx context.Context) (transfer.Reconciled, error)
}

// runFailure is the body of the answer to a run that failed.
type runFailure struct {
	transfer.Reconciled

	Error string `json:"error"`
}

// Reconcile returns the work of ReconcileBank: it makes one run and answers 200 with
// its summary, or an error status. It ignores the content of the request, but never
// acknowledges a payout, which belongs to SettlePayout.
func Reconcile(reconciler Reconciler) Work {
	return func(c *call) reply {
		if isPayout(c.delivery.Message.Data) {
			c.log(c.Now(), LevelCritical, "payout misrouted")
			return reply{http.StatusInternalServerError, runFailure{Error: textMisrouted}}
		}
		ctx, cancel := context.WithCancel(c.ctx)
		defer cancel()
		draining := c.Drainer.Draining()
		select {
		case <-draining:
			cancel() // before the run begins a step
		default:
			go cancelWhenDraining(ctx, cancel, draining)
		}
		c.ctx = ctx
		run, err := observedRun(c, reconciler)
		if err == nil {
			c.log(c.Now(), slog.LevelInfo, "reconciler run completed", slog.Any("", run))
			return reply{http.StatusOK, run}
		}
		summary, failure := slog.Any("", run), slog.String("error", err.Error())
		if errors.Is(c.ctx.Err(), context.Canceled) {
			c.log(c.Now(), slog.LevelInfo, "reconciler run stopped", summary, failure)
			return reply{http.StatusServiceUnavailable, runFailure{run, textDraining}}
		}
		c.log(c.Now(), slog.LevelError, "reconciler run failed", summary, failure)
		text := "the run failed; see the log; the next run continues"
		if errors.Is(err, transfer.ErrNoBank) {
			text = "bank instructions are due and no bank is configured"
		}
		return reply{http.StatusInternalServerError, runFailure{run, text}}
	}
}

// observedRun makes the run and reports it to the observer, also after a panic.
func observedRun(c *call, reconciler Reconciler) (run transfer.Reconciled, err error) {
	if c.Observer == nil {
		return reconciler.Reconcile(c.ctx)
	}
	ctx, ended := c.Observer.Run(c.ctx)
	c.ctx = ctx
	err = errNotFinal // reported after a panic
	defer func() { ended(run, err) }()
	run, err = reconciler.Reconcile(ctx)
	return run, err
}

// cancelWhenDraining calls cancel when the instance drains, so the run begins no further
// step. It returns when ctx ends.
func cancelWhenDraining(ctx context.Context, cancel context.CancelFunc, draining <-chan struct{}) {
	select {
	case <-draining:
		cancel()
	case <-ctx.Done():
	}
}

// isPayout reports whether data has a member settlement_id, well-formed or not.
func isPayout(data []byte) bool {
	var message struct {
		SettlementID jsontext.Value `json:"settlement_id"`
	}
	lenient := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	_ = json.Unmarshal(data, &message, lenient) // the members before a fault count
	return message.SettlementID != nil
}
