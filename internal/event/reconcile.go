package event

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

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

// Tick is the data of the scheduler's message, or the body of a request without a message:
// the only request that [Reconcile] acknowledges.
const Tick = "tick"

// Reconcile returns the work of ReconcileBank: at a [Tick] it makes one run and answers 200
// with its summary, or an error status. Any other message is not acknowledged, because it
// can be a payout, which belongs to SettlePayout.
func Reconcile(reconciler Reconciler) Work {
	return func(c *call) reply {
		if string(c.delivery.Message.Data) != Tick {
			c.log(c.Now(), LevelCritical, "message misrouted")
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
