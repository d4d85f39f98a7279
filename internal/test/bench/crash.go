package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

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
	var (
		wg      sync.WaitGroup
		results = make([]crashes, len(r.contenders))
		errs    = make([]error, len(r.contenders))
		slots   = make(chan struct{}, runtime.NumCPU())
	)
	for i, c := range r.contenders {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if results[i], errs[i] = r.crash(ctx, c); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", c.Key, errs[i])
			}
		})
	}
	wg.Wait()
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
	return errors.Join(errs...)
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

func (r *run) crash(ctx context.Context, c contender.Contender) (result crashes, err error) {
	f, err := r.newFixture(ctx, c)
	if err != nil {
		return crashes{}, err
	}
	defer func() { err = errors.Join(err, f.close(ctx)) }()
	result.points = map[string]int{}
	undisturbed := &killer{}
	outcome, err := f.settleInChild(ctx, contender.Message(0), undisturbed)
	if err == nil && (outcome != settle.OutcomeApplied.String() || undisturbed.steps == 0) {
		err = fmt.Errorf("a child without a kill ended with %q after %d steps", outcome, undisturbed.steps)
	}
	if err != nil {
		return crashes{}, err
	}
	if f.client, err = f.Open(ctx, f.place("", nil)); err != nil {
		return crashes{}, err
	}
	for i, step := range killSteps(r.sizes.kills, undisturbed.steps) {
		// The emulator keeps a dead process's transaction until the next one. This event
		// ends it, so that the next process does not need additional steps for that.
		if _, err := f.client.Settle(ctx, r.message()); err != nil {
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
	movements, err := f.Movements(ctx, f.place("", nil))
	result.count(r.sizes.kills, movements)
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

// killSteps returns the step of each kill: all steps equally often, in a random but
// reproducible order.
func killSteps(kills, steps int) []int {
	order := make([]int, kills)
	for i := range order {
		order[i] = 1 + i%steps
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(kills, func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// settleInChild settles a message in a new process behind a proxy that reports its steps
// to k.
func (f *fixture) settleInChild(ctx context.Context, message []byte, k *killer) (outcome string, err error) {
	addr, closeProxy, err := f.startProxy(ctx, k)
	if err != nil {
		return "", err
	}
	defer closeProxy()
	return k.settle(ctx, f.run.child, childConfig{Contender: f.Key, Database: f.place(addr, nil).Database, Emulator: addr, Message: message})
}

// startProxy starts a proxy for the contender's protocol that reports its steps to k.
func (f *fixture) startProxy(ctx context.Context, k *killer) (addr string, closeProxy func(), err error) {
	if f.System == contender.Postgres {
		p, err := latencyproxy.Start(ctx, f.server(), 0, func() bool { return k.step("turn") })
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
	place := f.place("", nil)
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
