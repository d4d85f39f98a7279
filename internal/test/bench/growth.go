package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// duplicatesUpTo is the highest number of rows for measured duplicates. The emulator
// scans all rows in a query, half a minute with a million.
const duplicatesUpTo = 100_000

// measureGrowth measures events by the number of stored settlements.
func (r *run) measureGrowth(ctx context.Context) error {
	for _, c := range r.contenders {
		rows := slices.Clone(r.sizes.rows)
		if c.Name == settleOnce {
			rows = append(rows, r.sizes.moreRows...)
		}
		slices.Sort(rows)
		rows = slices.Compact(rows)
		err := r.withFixtures(ctx, slices.Repeat([]contender.Contender{c}, len(rows)), 0, &meter{}, func(fixtures []*fixture) error {
			return r.growth(ctx, c, fixtures, rows)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.Key, err)
		}
	}
	return nil
}

// loaded is a fixture with stored settlements, and the figures of its rounds.
type loaded struct {
	*fixture
	rows int

	trips, fresh, cpu, duplicate []float64
}

// growth measures one contender. Its numbers of rows take turns, each with its own
// database.
func (r *run) growth(ctx context.Context, c contender.Contender, fixtures []*fixture, rows []int) error {
	var all []*loaded
	for i, f := range fixtures {
		l := &loaded{fixture: f, rows: rows[i]}
		all = append(all, l)
		if err := l.load(ctx); err != nil {
			return fmt.Errorf("load %d rows: %w", l.rows, err)
		}
	}
	r.log("growth of %s: rounds", c.Name)
	for range r.sizes.rounds {
		for _, l := range all {
			if err := l.measure(ctx); err != nil {
				return fmt.Errorf("with %d rows: %w", l.rows, err)
			}
		}
	}
	for _, l := range all {
		set := func(column string, cell report.Cell) {
			r.report.Table(titleGrowth).Set(column, cell, c.Name, fmt.Sprint(l.rows))
		}
		set("round trips", report.Figure(l.trips...))
		set("fresh, ms", report.Figure(l.fresh...))
		set("ratio to the first", report.Cell{Figure: report.Ratios(l.fresh, all[0].fresh)})
		set("client µs", report.Figure(l.cpu...))
		set("duplicate, ms", report.Figure(l.duplicate...))
	}
	return nil
}

// load prepares the connections while the tables are small, then inserts the rows.
func (l *loaded) load(ctx context.Context) error {
	l.run.log("growth of %s: load %d rows", l.Name, l.rows)
	if err := l.prepare(ctx); err != nil {
		return err
	}
	return l.Load(ctx, l.place(""), 0, l.rows)
}

// measure takes a turn.
func (l *loaded) measure(ctx context.Context) error {
	numbers, limit := l.run.numbers(), l.run.sizes.turn
	traffic := l.meter.read()
	before := readUsage()
	fresh, err := l.turn(ctx, events[0], numbers, limit)
	if err != nil {
		return err
	}
	after := readUsage()
	settled := float64(len(fresh))
	l.trips = append(l.trips, l.meter.read().since(traffic).roundTrips(l.System)/settled)
	l.fresh = append(l.fresh, report.Median(fresh))
	l.cpu = append(l.cpu, micros(after.cpu-before.cpu)/settled)
	if l.rows > duplicatesUpTo {
		return nil
	}
	duplicate, err := l.turn(ctx, events[1], numbers[:len(fresh)], limit)
	l.duplicate = append(l.duplicate, report.Median(duplicate))
	return err
}
