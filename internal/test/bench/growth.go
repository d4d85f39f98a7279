package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// duplicatesUpTo is the highest number of rows for measured duplicates. The emulator
// scans all rows in a query, half a minute with a million.
const duplicatesUpTo = 100_000

// measureGrowth measures events by the number of stored settlements.
func (r *run) measureGrowth(ctx context.Context) error {
	for _, c := range r.contenders {
		if err := r.growth(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.Key, err)
		}
	}
	return nil
}

// loaded is a fixture with stored settlements, and the figures of its rounds.
type loaded struct {
	*fixture
	rows  int
	meter *meter
	taken map[string]rounds
	cpu   []float64 // microseconds of this process for a fresh event
}

// growth measures one contender. Its numbers of rows take turns, each with its own
// database.
func (r *run) growth(ctx context.Context, c contender.Contender) (err error) {
	sizes := slices.Clone(r.sizes.rows)
	if c.Name == settleOnce {
		sizes = append(sizes, r.sizes.moreRows...)
	}
	slices.Sort(sizes)
	var all []*loaded
	defer func() {
		for _, l := range all {
			err = errors.Join(err, l.close(ctx))
		}
	}()
	for _, rows := range slices.Compact(sizes) {
		l := &loaded{rows: rows, meter: &meter{}, taken: map[string]rounds{eventFresh: {}, eventDuplicate: {}}}
		if l.fixture, err = r.connected(ctx, c, 0, l.meter); err != nil {
			return err
		}
		all = append(all, l)
		if err := l.load(ctx); err != nil {
			return fmt.Errorf("load %d rows: %w", rows, err)
		}
	}
	return r.growthRounds(ctx, c, all)
}

func (r *run) growthRounds(ctx context.Context, c contender.Contender, all []*loaded) error {
	r.log("growth of %s: rounds", c.Name)
	for range r.sizes.rounds {
		for _, l := range all {
			if err := l.measure(ctx); err != nil {
				return fmt.Errorf("with %d rows: %w", l.rows, err)
			}
		}
	}
	first := all[0].taken[eventFresh][c.Name]
	for _, l := range all {
		trips, err := l.roundTrips(ctx)
		if err != nil {
			return fmt.Errorf("with %d rows: %w", l.rows, err)
		}
		fresh := l.taken[eventFresh][c.Name]
		set := func(column string, cell report.Cell) {
			r.report.Table(titleGrowth).Set(column, cell, c.Name, fmt.Sprint(l.rows))
		}
		set("round trips", report.Figure(trips))
		set("fresh, ms", report.Figure(fresh...))
		set("ratio to the first", report.Cell{Figure: report.Ratios(fresh, first)})
		set("client µs", report.Figure(l.cpu...))
		set("duplicate, ms", report.Figure(l.taken[eventDuplicate][c.Name]...))
	}
	return nil
}

// load prepares the connections while the tables are small, then inserts the rows.
func (l *loaded) load(ctx context.Context) error {
	l.run.log("growth of %s: load %d rows", l.Name, l.rows)
	if err := l.prepare(ctx); err != nil {
		return err
	}
	return l.Load(ctx, l.place("", nil), 0, l.rows)
}

// measure takes a turn.
func (l *loaded) measure(ctx context.Context) error {
	kinds := events[:2]
	if l.rows > duplicatesUpTo {
		kinds = events[:1]
	}
	if err := l.turn(ctx, kinds, l.taken, l.run.sizes.turn); err != nil {
		return err
	}
	before, err := readUsage()
	if err != nil {
		return err
	}
	settled, err := l.settleTurn(ctx)
	if err != nil {
		return err
	}
	after, err := readUsage()
	l.cpu = append(l.cpu, micros(after.cpu-before.cpu)/float64(settled))
	return err
}

// settleTurn settles the fresh events of a turn and returns their number.
func (l *loaded) settleTurn(ctx context.Context) (settled int, err error) {
	for start := time.Now(); settled < l.run.sizes.events && (settled == 0 || time.Since(start) < l.run.sizes.turn); settled++ {
		if err := l.settleFresh(ctx); err != nil {
			return settled, err
		}
	}
	return settled, nil
}

// roundTrips returns the round trips of a fresh event.
func (l *loaded) roundTrips(ctx context.Context) (float64, error) {
	before := l.meter.read()
	settled, err := l.settleTurn(ctx)
	if err != nil {
		return 0, err
	}
	return l.meter.read().since(before).roundTrips(l.System) / float64(settled), nil
}
