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
		if err := r.withFixture(ctx, c, &network{}, func(f *fixture) error { return f.storm(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
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
	sizes, table := f.run.sizes, f.run.report.Table(titleStorm)
	calm, during := &others{}, &others{}
	if err := f.prepare(ctx, fresh); err != nil {
		return err
	}
	for range min(calmEvents, sizes.storm) {
		if err := calm.settle(ctx, f); err != nil {
			return err
		}
		time.Sleep(sizes.stormPause)
	}
	waves, before, outcomes := []time.Duration{}, f.network.read(), map[settle.Outcome]int{}
	message := contender.Message(f.run.number())
	for began := time.Now(); len(waves) == 0 || time.Since(began) < stormTurns*sizes.turn; {
		next := time.NewTimer(waveInterval)
		var beside errgroup.Group
		done := make(chan struct{})
		pace(&beside, sizes.stormPause, done, func(int) error { return during.settle(ctx, f) })
		took, err := f.wave(ctx, message, outcomes)
		close(done)
		if err := errors.Join(err, beside.Wait()); err != nil {
			return err
		}
		waves = append(waves, took)
		<-next.C
	}
	if applied := outcomes[settle.OutcomeApplied]; applied != 1 {
		return fmt.Errorf("the settlement was applied %d times: %v", applied, outcomes)
	}
	table.Text("waves", fmt.Sprintf("%d × %d", len(waves), sizes.storm), f.Name)
	for _, took := range waves {
		table.Add("wave, ms", millis(took), f.Name)
	}
	table.Add("RPCs", float64(f.network.read().since(before).roundTrips), f.Name)
	table.Text("calm p50 / p99 / max, ms", calm.quantiles(0.5, 0.99, 1), f.Name)
	table.Text("in a wave p50 / p99 / max, ms", during.quantiles(0.5, 0.99, 1), f.Name)
	table.Add("events", float64(len(during.millis)), f.Name)
	return nil
}

// wave delivers one settlement many times concurrently, and counts the outcomes.
func (f *fixture) wave(ctx context.Context, message settle.Delivery, outcomes map[settle.Outcome]int) (took time.Duration, err error) {
	var (
		same errgroup.Group
		mu   sync.Mutex
	)
	began := time.Now()
	for range f.run.sizes.storm {
		same.Go(func() error {
			outcome, err := f.client.Settle(ctx, message)
			mu.Lock()
			defer mu.Unlock()
			outcomes[outcome]++
			return err
		})
	}
	err = same.Wait()
	return time.Since(began), err
}

// others are the times of fresh events beside others. Each holds a slot, unless slots is
// nil.
type others struct {
	slots chan struct{}

	mu     sync.Mutex
	millis []float64
}

// settle settles a fresh event. Its time includes the wait for a slot.
func (o *others) settle(ctx context.Context, f *fixture) error {
	began := time.Now()
	if o.slots != nil {
		o.slots <- struct{}{}
		defer func() { <-o.slots }()
	}
	_, err := f.settle(ctx, fresh, f.run.number())
	o.mu.Lock()
	defer o.mu.Unlock()
	o.millis = append(o.millis, millis(time.Since(began)))
	return err
}

// pace calls start in a goroutine of the group after every pause, until done is closed.
func pace(group *errgroup.Group, pause time.Duration, done <-chan struct{}, start func(i int) error) {
	group.Go(func() error {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for i := 0; ; i++ {
			group.Go(func() error { return start(i) })
			select {
			case <-done:
				return nil
			case <-tick.C:
			}
		}
	})
}

// quantiles prints quantiles of the times.
func (o *others) quantiles(shares ...float64) string {
	text := ""
	for _, share := range shares {
		if text != "" {
			text += " / "
		}
		text += fmt.Sprintf("%.1f", report.Quantile(o.millis, share))
	}
	return text
}
