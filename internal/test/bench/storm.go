package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// measureStorm delivers one settlement many times concurrently, in waves, and other
// settlements meanwhile.
func (r *run) measureStorm(ctx context.Context) error {
	for _, c := range contender.Stormed() {
		r.log("storm for %s", c.Name)
		if err := r.withFixture(ctx, c, &meter{}, func(f *fixture) error { return f.storm(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", c.Key, err)
		}
	}
	return nil
}

const (
	// calmEvents is the highest number of events without a wave.
	calmEvents = 200
	// stormTurns is the minimum duration of a storm, in turns.
	stormTurns = 3
	// waveInterval is the minimum time between the starts of two waves.
	waveInterval = 100 * time.Millisecond
)

func (f *fixture) storm(ctx context.Context) error {
	sizes := f.run.sizes
	var calm, during, waves []float64
	for range min(calmEvents, sizes.storm) {
		began := time.Now()
		if err := f.settleFresh(ctx); err != nil {
			return err
		}
		calm = append(calm, millis(time.Since(began)))
		time.Sleep(sizes.stormPause)
	}
	message, before := f.run.message(), f.meter.read()
	outcomes := map[settle.Outcome]int{}
	for began := time.Now(); len(waves) == 0 || time.Since(began) < stormTurns*sizes.turn; {
		next := time.NewTimer(waveInterval)
		w := &wave{fixture: f, outcomes: outcomes}
		took, err := w.run(ctx, message)
		if err != nil {
			return err
		}
		during, waves = append(during, w.others...), append(waves, millis(took))
		<-next.C
	}
	if applied := outcomes[settle.OutcomeApplied]; applied != 1 {
		return fmt.Errorf("the settlement was applied %d times: %v", applied, outcomes)
	}
	set := func(column string, c report.Cell) { f.run.report.Table(titleStorm).Set(column, c, f.Name) }
	set("waves", report.Text("%d × %d", len(waves), sizes.storm))
	set("wave, ms", report.Figure(waves...))
	set("RPCs", report.Figure(float64(f.meter.read().since(before).rpcs)))
	set("calm p50 / p99 / max, ms", quantiles(calm))
	set("in a wave p50 / p99 / max, ms", quantiles(during))
	set("events", report.Figure(float64(len(during))))
	return nil
}

func quantiles(times []float64) report.Cell {
	return report.Text("%.1f / %.1f / %.1f", report.Median(times), report.Quantile(times, 0.99), report.Quantile(times, 1))
}

// wave delivers one settlement many times concurrently, and other settlements
// meanwhile.
type wave struct {
	*fixture

	mu       sync.Mutex
	outcomes map[settle.Outcome]int // of the one settlement
	others   []float64              // milliseconds
}

// run returns the time until all deliveries of the one settlement are answered.
func (w *wave) run(ctx context.Context, message []byte) (took time.Duration, err error) {
	began, done := time.Now(), make(chan struct{})
	var same, others errgroup.Group
	for range w.fixture.run.sizes.storm {
		same.Go(func() error {
			outcome, err := w.client.Settle(ctx, message)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.outcomes[outcome]++
			return err
		})
	}
	others.Go(func() error { return w.settleOthers(ctx, &others, done) })
	err = same.Wait()
	took = time.Since(began)
	close(done)
	return took, errors.Join(err, others.Wait())
}

// settleOthers starts another settlement after every pause until done is closed.
func (w *wave) settleOthers(ctx context.Context, others *errgroup.Group, done <-chan struct{}) error {
	tick := time.NewTicker(w.fixture.run.sizes.stormPause)
	defer tick.Stop()
	for {
		others.Go(func() error {
			began := time.Now()
			err := w.settleFresh(ctx)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.others = append(w.others, millis(time.Since(began)))
			return err
		})
		select {
		case <-done:
			return nil
		case <-tick.C:
		}
	}
}
