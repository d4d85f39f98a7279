package main

import (
	"context"
	"fmt"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// measureWire counts round trips, commits and bytes of each kind of event.
func (r *run) measureWire(ctx context.Context) error {
	for _, c := range r.contenders {
		if err := r.withFixture(ctx, c, &network{}, func(f *fixture) error { return f.wire(ctx) }); err != nil {
			return err
		}
	}
	return nil
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
			table.Add(columnRPCs, float64(f.network.read().since(start).roundTrips), f.Name, e.name)
		}
		t := f.network.read().since(before)
		mean := func(column string, sum int64) { table.Add(column, float64(sum)/float64(len(numbers)), f.Name, e.name) }
		mean("commits", t.commits)
		mean("bytes sent", t.sent)
		mean("bytes received", t.received)
	}
	return nil
}

// The rows of the simulated network.
const (
	networkRoundTrip = "network round trip"
	inRoundTrips     = settleOnce + ", in network round trips"
)

// measureLatency measures fresh events and their duplicates, one at a time.
func (r *run) measureLatency(ctx context.Context) error {
	roundTrips := r.sizes.roundTrips
	if r.instance != "" {
		roundTrips = []time.Duration{0} // a real instance has its own network
	}
	for _, roundTrip := range roundTrips {
		r.log("latency with a round trip of %v", roundTrip)
		column := fmt.Sprintf("%g ms", millis(roundTrip))
		err := r.inTurn(ctx, roundTrip, func(f *fixture) (figures []figure, err error) {
			if err := f.prepare(ctx, fresh, duplicate); err != nil {
				return nil, err
			}
			trip, err := f.network.probe(ctx, r.sizes.events)
			if err != nil {
				return nil, err
			}
			numbers := r.numbers()
			for i, title := range []string{titleFresh, titleDuplicate} {
				times, err := f.turn(ctx, events[i], numbers, noLimit)
				if err != nil {
					return nil, err
				}
				took := report.Median(times)
				figures = append(figures, figure{title, column, took})
				if f.Name == settleOnce {
					r.report.Table(title).Add(column, trip, networkRoundTrip)
					if r.report.Table(title).Text(column, "", inRoundTrips); roundTrip > 0 {
						r.report.Table(title).Add(column, took/trip, inRoundTrips)
					}
				}
			}
			return figures, nil
		})
		if err != nil {
			return fmt.Errorf("with a round trip of %v: %w", roundTrip, err)
		}
	}
	return nil
}

// noLimit exceeds the duration of every turn.
const noLimit = time.Hour
