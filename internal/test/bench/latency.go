package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// measureWire counts round trips, commits and bytes of each kind of event.
func (r *run) measureWire(ctx context.Context) error {
	return r.withFixtures(ctx, r.contenders, 0, func(fixtures []*fixture) error {
		for _, f := range fixtures {
			if err := f.wire(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *fixture) wire(ctx context.Context) error {
	if err := f.prepare(ctx, f.events()...); err != nil {
		return err
	}
	table, numbers := f.run.report.Table(titleWire), f.run.numbers()
	for _, e := range f.events() {
		before := f.network.read()
		for _, n := range numbers {
			start := f.network.read()
			if _, err := f.settle(ctx, e, n); err != nil {
				return err
			}
			table.Add("round trips", float64(f.network.read().since(start).roundTrips), f.Name, e.name)
		}
		t := f.network.read().since(before)
		mean := func(column string, sum int64) { table.Add(column, float64(sum)/float64(len(numbers)), f.Name, e.name) }
		mean("commits", t.commits)
		mean("bytes sent", t.sent)
		mean("bytes received", t.received)
	}
	return nil
}

// measureLatency measures fresh events and their duplicates, one at a time. Every round
// has its own emulator.
func (r *run) measureLatency(ctx context.Context) error {
	roundTrips := r.sizes.roundTrips
	if r.instance != "" {
		roundTrips = []time.Duration{0} // a real instance has its own network
	}
	for _, roundTrip := range roundTrips {
		r.log("latency with a round trip of %v", roundTrip)
		for range r.sizes.rounds {
			if err := r.withEmulator(ctx, func() error { return r.latency(ctx, roundTrip) }); err != nil {
				return fmt.Errorf("with a round trip of %v: %w", roundTrip, err)
			}
		}
	}
	return nil
}

// The rows of the simulated network.
const (
	networkRoundTrip = "network round trip"
	inRoundTrips     = settleOnce + ", in network round trips"
)

// latency takes a round.
func (r *run) latency(ctx context.Context, roundTrip time.Duration) error {
	network := &network{roundTrip: roundTrip}
	trip, err := network.probe(ctx, r.sizes.events)
	if err != nil {
		return err
	}
	column := fmt.Sprintf("%g ms", millis(roundTrip))
	base := map[string]float64{}
	for _, c := range r.contenders {
		err := r.withFixture(ctx, c, roundTrip, func(f *fixture) error {
			if err := f.prepare(ctx, fresh, duplicate); err != nil {
				return err
			}
			numbers := r.numbers()
			for i, title := range []string{titleFresh, titleDuplicate} {
				times, err := f.turn(ctx, events[i], numbers, noLimit)
				if err != nil {
					return err
				}
				took, table := report.Median(times), r.report.Table(title)
				if c.Name == settleOnce {
					table.Add(column, trip, networkRoundTrip)
					table.Add(column, took/trip, inRoundTrips)
				}
				table.AddCompared(column, took, base[title], c.Name)
				base[title] = cmp.Or(base[title], took) // Settle Once is the first
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noLimit exceeds the duration of every turn.
const noLimit = time.Hour
