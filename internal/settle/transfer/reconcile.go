package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Reconciler makes the steps of due bank instructions. Its fields are set once, before
// the first call; it is safe for concurrent use. Runs of several instances can overlap,
// because each step leases its instruction.
type Reconciler struct {
	// Store keeps the instructions. Required.
	Store Store
	// Banking makes the steps. Nil means that no bank is configured: a run that finds due
	// instructions fails with [ErrNoBank].
	Banking *Stepper
	// Now returns the current time. Required.
	Now func() time.Time
	// Limit bounds the instructions of one query, Concurrency the concurrent steps. Both
	// are required.
	Limit, Concurrency int
	// Margin is the time before the run's deadline in which no step begins:
	// [Stepper.Longest].
	Margin time.Duration
}

// Reconciled is the summary of a run. Encoded as JSON it is the answer to the
// request; logged it gives the line's attributes.
type Reconciled struct {
	// Due counts the due instructions.
	Due int `json:"due"`
	// States counts the instructions with a completed step, by their new state.
	States map[State]int `json:"states,omitempty"`
	// Skipped counts the instructions that another step held.
	Skipped int `json:"skipped,omitzero"`
	// Failed counts the failed steps; the next run repeats them.
	Failed int `json:"failed,omitzero"`
	// Left counts the instructions without a step for lack of time; the next run
	// continues.
	Left int `json:"left,omitzero"`
	// OldestUncertainSeconds is the age of the oldest uncertain instruction; zero for
	// none.
	OldestUncertainSeconds int64 `json:"oldest_uncertain_seconds"`
	// Manual counts the manual instructions, up to [MaxManual].
	Manual int `json:"manual"`
	// NextDue is when the next instruction is due; zero for none.
	NextDue time.Time `json:"next_due,omitzero"`
}

// LogValue implements [slog.LogValuer]: the attributes of the run's log line.
func (r Reconciled) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.Int("due", r.Due), slog.Any("states", r.States), slog.Int("skipped", r.Skipped), slog.Int("failed", r.Failed),
		slog.Int("left", r.Left), slog.Int64("oldest_uncertain_seconds", r.OldestUncertainSeconds), slog.Int("manual", r.Manual),
	}
	if !r.NextDue.IsZero() {
		attrs = append(attrs, slog.Time("next_due", r.NextDue))
	}
	return slog.GroupValue(attrs...)
}

// backlogTimeout bounds the query of the backlog at the end of a run. The run's own
// deadline may be over by then.
const backlogTimeout = 10 * time.Second

// Reconcile makes one run: it tries each due instruction once, until its time is up.
func (r *Reconciler) Reconcile(ctx context.Context) (Reconciled, error) {
	run := Reconciled{States: map[State]int{}}
	tried := map[string]bool{}
	for more := true; more; {
		// Failed instructions are still due and must not fill the limit.
		limit := r.Limit + len(tried)
		due, err := r.Store.Due(ctx, r.Now(), limit)
		if err != nil {
			return run, fmt.Errorf("reconcile: %w", err)
		}
		todo := slices.DeleteFunc(slices.Clone(due), func(id string) bool { return tried[id] })
		for _, id := range todo {
			tried[id] = true
		}
		run.Due += len(todo)
		if len(todo) > 0 && r.Banking == nil {
			return run, fmt.Errorf("reconcile %d bank instructions: %w", len(todo), ErrNoBank)
		}
		r.steps(ctx, todo, &run)
		more = len(todo) > 0 && len(due) == limit && run.Left == 0
	}
	return r.withBacklog(ctx, run)
}

func (r *Reconciler) withBacklog(ctx context.Context, run Reconciled) (Reconciled, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backlogTimeout)
	defer cancel()
	backlog, err := r.Store.Backlog(ctx)
	if err != nil {
		return run, fmt.Errorf("reconcile: %w", err)
	}
	if !backlog.UncertainSince.IsZero() {
		run.OldestUncertainSeconds = int64(max(r.Now().Sub(backlog.UncertainSince), 0) / time.Second)
	}
	run.NextDue, run.Manual = backlog.NextDue, backlog.Manual
	return run, nil
}

// steps makes the steps, Concurrency at a time, and counts the rest as left.
func (r *Reconciler) steps(ctx context.Context, due []string, run *Reconciled) {
	var (
		mu      sync.Mutex
		workers sync.WaitGroup
		todo    = make(chan string, len(due))
	)
	for _, id := range due {
		todo <- id
	}
	close(todo)
	for range min(r.Concurrency, len(due)) {
		workers.Go(func() {
			for id := range todo {
				left := r.timeIsUp(ctx)
				var (
					state State
					err   error
				)
				if !left {
					state, err = r.step(ctx, id)
				}
				mu.Lock()
				run.count(left, state, err)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
}

// step makes one step and recovers from its panic.
func (r *Reconciler) step(ctx context.Context, id string) (state State, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic of type %T", p)
			r.Banking.Log.LogAttrs(ctx, LevelCritical, "bank step panicked",
				append([]slog.Attr{slog.String("settlement_id", id)}, PanicAttrs(p)...)...)
		}
	}()
	state, err = r.Banking.Step(ctx, id)
	if err != nil && !errors.Is(err, ErrNotDue) && !errors.Is(err, ErrLeaseLost) {
		r.Banking.Log.LogAttrs(ctx, slog.LevelError, "bank step failed",
			slog.String("settlement_id", id), slog.String("error", err.Error()))
	}
	return state, err
}

func (r *Reconciler) timeIsUp(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !r.Now().Add(r.Margin).Before(deadline)
}

func (r *Reconciled) count(left bool, state State, err error) {
	switch {
	case left:
		r.Left++
	case err == nil:
		r.States[state]++
	case errors.Is(err, ErrNotDue), errors.Is(err, ErrLeaseLost):
		r.Skipped++
	default:
		r.Failed++
	}
}
