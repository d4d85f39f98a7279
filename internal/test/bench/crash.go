package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/latencyproxy"
	"github.com/settleonce/settleonce/internal/test/bench/report"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

// crashes is a contender's result. Message(1) to Message(kills) are those of the kills.
type crashes struct {
	correct, lost, doubled, waited int
	points                         map[string]int // kills by step, such as "before Commit"
}

// measureCrashes kills processes at every step of a delivery in turn, delivers their
// messages again, and counts the movements. It measures no times, so contenders run
// concurrently.
func (r *run) measureCrashes(ctx context.Context) error {
	results := make([]crashes, len(r.contenders))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for i, c := range r.contenders {
		group.Go(func() error {
			err := r.withDatabase(ctx, c, func(f *fixture) (err error) {
				results[i], err = f.crash(ctx)
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", c.Key, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, c := range r.contenders {
		result := results[i]
		set := func(column string, n int) {
			r.report.Table(titleCrashes).Set(column, report.Figure(float64(n)), c.Name)
		}
		set("kills", r.sizes.kills)
		set("correct", result.correct)
		set("lost", result.lost)
		set("doubled", result.doubled)
		set("waited", result.waited)
		r.report.Table(titleCrashes).Set("steps", report.Text("%s", result.steps()), c.Name)
	}
	return nil
}

// steps lists the steps and the number of their kills.
func (c crashes) steps() string {
	const longest = 8
	if len(c.points) > longest {
		return fmt.Sprintf("%d different steps", len(c.points))
	}
	var list []string
	for _, point := range slices.Sorted(maps.Keys(c.points)) {
		list = append(list, fmt.Sprintf("%s %d", point, c.points[point]))
	}
	return strings.Join(list, ", ")
}

func (f *fixture) crash(ctx context.Context) (result crashes, err error) {
	kills := f.run.sizes.kills
	result.points = map[string]int{}
	undisturbed := &killer{}
	outcome, err := f.settleInChild(ctx, contender.Message(0), undisturbed)
	if err == nil && (outcome != settle.OutcomeApplied.String() || undisturbed.steps == 0) {
		err = fmt.Errorf("a child without a kill ended with %q after %d steps", outcome, undisturbed.steps)
	}
	if err != nil {
		return crashes{}, err
	}
	if f.client, err = f.Open(ctx, f.place("")); err != nil {
		return crashes{}, err
	}
	for i := range kills {
		step := 1 + i%undisturbed.steps
		// The emulator keeps a dead process's transaction until the next one. This event
		// ends it, so that the next process does not need additional steps for that.
		if _, err := f.client.Settle(ctx, f.run.message()); err != nil {
			return crashes{}, fmt.Errorf("settle before kill %d: %w", i+1, err)
		}
		k := &killer{at: step}
		outcome, err := f.settleInChild(ctx, contender.Message(1+i), k)
		if err == nil && outcome != "" {
			err = fmt.Errorf("the child ended with %q before the kill", outcome)
		}
		if err != nil {
			return crashes{}, fmt.Errorf("kill %d at step %d: %w", i+1, step, err)
		}
		result.points[k.point]++
	}
	if result.waited, err = f.redeliver(ctx); err != nil {
		return crashes{}, fmt.Errorf("redeliver: %w", err)
	}
	movements, err := f.Movements(ctx, f.place(""))
	result.count(kills, movements)
	return result, err
}

// count counts the movements of the kills.
func (c *crashes) count(kills int, movements map[string]int) {
	for i := range kills {
		switch movements[contender.SettlementID(1+i)] {
		case 0:
			c.lost++
		case 1:
			c.correct++
		default:
			c.doubled++
		}
	}
}

// settleInChild settles a message in a new process behind a proxy that reports its steps
// to k.
func (f *fixture) settleInChild(ctx context.Context, message []byte, k *killer) (outcome string, err error) {
	addr, closeProxy, err := f.startProxy(ctx, k)
	if err != nil {
		return "", err
	}
	defer closeProxy()
	return k.settle(ctx, f.Key, f.place(addr).Database, addr, string(message))
}

// startProxy starts a proxy for the contender's protocol that reports its steps to k.
func (f *fixture) startProxy(ctx context.Context, k *killer) (addr string, closeProxy func(), err error) {
	if f.System == contender.Postgres {
		p, err := latencyproxy.Start(ctx, f.server(), 0, func() bool { return k.step(turn) })
		if err != nil {
			return "", nil, err
		}
		return p.Addr, p.Close, nil
	}
	p, err := faultproxy.Start(ctx, f.server(), func(method string, at faultproxy.Stage) bool {
		if strings.HasSuffix(method, "CreateSession") {
			return true
		}
		if at == faultproxy.Requested {
			return k.step("before " + method)
		}
		return k.step("after " + method)
	})
	if err != nil {
		return "", nil, err
	}
	return p.Addr, func() { _ = p.Close() }, nil // the process has ended
}

// redeliver delivers the messages of the kills again. A contender may reject a message as
// in progress; waited counts these. They are delivered once more after the expiry.
func (f *fixture) redeliver(ctx context.Context) (waited int, err error) {
	var rejected [][]byte
	for i := range f.run.sizes.kills {
		message := contender.Message(1 + i)
		_, err := f.client.Settle(ctx, message)
		switch {
		case errors.Is(err, contender.ErrInProgress):
			rejected = append(rejected, message)
		case err != nil:
			return 0, err
		}
	}
	place := f.place("")
	place.Now = func() time.Time { return time.Now().Add(2 * contender.InProgressExpiry) }
	later, err := f.Open(ctx, place)
	if err != nil {
		return 0, err
	}
	defer later.Close()
	for _, message := range rejected {
		if _, err := later.Settle(ctx, message); err != nil {
			return 0, err
		}
	}
	return len(rejected), nil
}
