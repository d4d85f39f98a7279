package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// measureGrowth measures events by the number of stored settlements. A contender's
// numbers of rows take turns, each with its own database.
func (r *run) measureGrowth(ctx context.Context) error {
	for _, c := range r.contenders {
		rows := r.sizes.rows
		if c.Name == settleOnce {
			rows = slices.Concat(rows, r.sizes.moreRows)
		}
		err := r.withFixtures(ctx, slices.Repeat([]contender.Contender{c}, len(rows)), func(fixtures []*fixture) error {
			for i, f := range fixtures {
				r.log("growth of %s: load %d rows", c.Name, rows[i])
				if err := f.prepare(ctx, fresh, duplicate); err != nil { // while the tables are small
					return err
				}
				if err := contender.Load(ctx, f.client, rows[i]); err != nil {
					return fmt.Errorf("load %d rows: %w", rows[i], err)
				}
			}
			return r.growth(ctx, fixtures, rows)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// The columns of growth with a ratio to the first number of rows.
const (
	columnFresh     = "fresh, ms"
	columnDuplicate = "duplicate, ms"
)

func (r *run) growth(ctx context.Context, fixtures []*fixture, rows []int) error {
	r.log("growth of %s: rounds", fixtures[0].Name)
	for range r.sizes.rounds {
		var first grown
		for i, f := range fixtures {
			g, err := f.grow(ctx)
			if err != nil {
				return fmt.Errorf("with %d rows: %w", rows[i], err)
			}
			table, labels := r.report.Table(titleGrowth), []string{f.Name, fmt.Sprint(rows[i])}
			table.Add(columnRPCs, g.trips, labels...)
			table.AddCompared(columnFresh, g.fresh, first.fresh, labels...)
			table.AddCompared(columnDuplicate, g.duplicate, first.duplicate, labels...)
			if i == 0 {
				first = g
			}
		}
	}
	return nil
}

// grown are the figures of a turn with a number of stored rows.
type grown struct{ trips, fresh, duplicate float64 }

// grow takes a turn.
func (f *fixture) grow(ctx context.Context) (g grown, err error) {
	numbers, limit := f.run.numbers(), f.run.sizes.turn
	traffic := f.network.read()
	times, err := f.turn(ctx, fresh, numbers, limit)
	if err != nil {
		return grown{}, err
	}
	g.trips = float64(f.network.read().since(traffic).roundTrips) / float64(len(times))
	g.fresh = report.Median(times)
	if times, err = f.turn(ctx, duplicate, numbers[:len(times)], limit); err != nil {
		return grown{}, err
	}
	g.duplicate = report.Median(times)
	if s, ok := f.client.(interface {
		ClockWait(ctx context.Context) (time.Duration, error)
	}); ok && f.run.instance == "" {
		var waits []float64
		for range warmEvents {
			wait, err := s.ClockWait(ctx)
			if err != nil {
				return grown{}, err
			}
			waits = append(waits, millis(wait))
		}
		g.duplicate -= report.Median(waits)
	}
	return g, nil
}
