package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

const (
	// slots is the number of concurrent requests of an instance in deploy/.
	slots = 32
	// fairnessRoundTrip makes a conflict so slow that one after another would be slower
	// than they arrive.
	fairnessRoundTrip = 5 * time.Millisecond
)

// background are deliveries beside fresh events: conflicts of the settlements own, of
// which all are settled.
type background struct {
	name     string
	delivery func(own []int, i int) settle.Delivery
}

// backgrounds have the base of the ratios first: the same writes without a common
// settlement.
var backgrounds = []background{
	{"a conflict of each of many settlements", func(own []int, i int) settle.Delivery { return contender.Conflicting(own[i%len(own)], 1+i/len(own)) }},
	{"distinct conflicts of one settlement", func(own []int, i int) settle.Delivery { return contender.Conflicting(own[0], 1+i) }},
	{"one conflict, published again and again", func(own []int, _ int) settle.Delivery { return contender.Conflicting(own[0], 1) }},
}

// measureFairness measures fresh events at one instance beside conflicts. The backgrounds
// take turns, each with its own database.
func (r *run) measureFairness(ctx context.Context) error {
	n := &network{roundTrip: fairnessRoundTrip}
	if r.instance != "" {
		n.roundTrip = 0
	}
	table := r.report.Table(titleFairness)
	for range r.sizes.rounds {
		var base []float64
		for _, b := range backgrounds {
			err := r.withFixture(ctx, r.contenders[0], n, func(f *fixture) error {
				o, delivered, err := f.beside(ctx, b)
				if err != nil {
					return fmt.Errorf("beside %s: %w", b.name, err)
				}
				found := []float64{report.Quantile(o.millis, 0.5), report.Quantile(o.millis, 0.95), report.Quantile(o.millis, 0.99)}
				if base == nil {
					base = found
				}
				for i, column := range []string{"p50, ms", columnP95, columnP99} {
					table.AddCompared(column, found[i], base[i], b.name)
				}
				table.Add("conflicts a second", float64(delivered)/(stormTurns*r.sizes.turn).Seconds(), b.name)
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	columnP95 = "p95, ms"
	columnP99 = "p99, ms"
)

// beside settles fresh events and delivers a background, each at a constant rate. Both
// wait for a free slot of the instance.
func (f *fixture) beside(ctx context.Context, b background) (o *others, delivered int64, err error) {
	own := f.run.numbers()
	for _, n := range own {
		if _, err := f.settle(ctx, fresh, n); err != nil {
			return nil, 0, err
		}
	}
	var (
		group     errgroup.Group
		conflicts atomic.Int64
		free      = make(chan struct{}, slots)
		done      = make(chan struct{})
		deliver   = func(i int) error {
			free <- struct{}{}
			defer func() { <-free }()
			outcome, err := f.client.Settle(ctx, b.delivery(own, i))
			if err == nil && outcome != settle.OutcomeConflict {
				err = fmt.Errorf("outcome %v", outcome)
			}
			conflicts.Add(1)
			return err
		}
	)
	o = &others{slots: free}
	pace(&group, f.run.sizes.stormPause, done, func(int) error { return o.settle(ctx, f) })
	pace(&group, f.run.sizes.stormPause/2, done, deliver)
	time.AfterFunc(stormTurns*f.run.sizes.turn, func() { close(done) })
	err = group.Wait()
	return o, conflicts.Load(), err
}
