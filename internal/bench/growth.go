package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/bench/contender"
)

// sizesFor are the numbers of rows of a contender, rising.
func (l *lab) sizesFor(c contender.Contender) []int {
	sizes := slices.Clone(l.Sizes.Rows)
	if c.Key == Baseline {
		sizes = append(sizes, l.Sizes.OnlyRows...)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

func (l *lab) growthSteps() int {
	steps := 0
	for _, c := range l.contenders {
		steps += len(l.sizesFor(c))
	}
	return steps
}

// measureGrowth settles where more and more is stored already. Contenders do not take
// turns here, since each keeps its rows in one database.
func (l *lab) measureGrowth(ctx context.Context) error {
	for _, c := range l.contenders {
		if err := l.growth(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.Key, err)
		}
	}
	return nil
}

func (l *lab) growth(ctx context.Context, c contender.Contender) (err error) {
	m := &meter{}
	r, err := l.ring(ctx, c, 0, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	if err := l.meetAll(ctx, r); err != nil {
		return err
	}
	loader, err := r.place("", nil)
	if err != nil {
		return err
	}
	stored := 0
	var least []float64
	for _, rows := range l.sizesFor(c) {
		if err := c.Load(ctx, loader, stored, rows-stored); err != nil {
			return err
		}
		stored = rows
		result, fresh, err := l.atSize(ctx, r, m)
		if err != nil {
			return fmt.Errorf("at %d rows: %w", rows, err)
		}
		if least == nil {
			least = fresh
		}
		result.Rows, result.Ratio = rows, ratios(fresh, least)
		l.report.Growth = append(l.report.Growth, result)
		l.Progress.Step()
	}
	return nil
}

// atSize measures at the present number of rows.
func (l *lab) atSize(ctx context.Context, r *ring, m *meter) (result Growth, fresh []float64, err error) {
	taken := map[string]series{EventFresh: {}, EventDuplicate: {}}
	for range l.Sizes.Rounds {
		if err := l.turn(ctx, r, taken, l.Sizes.Turn); err != nil {
			return Growth{}, nil, err
		}
	}
	before := m.read()
	used, err := readUsage()
	if err != nil {
		return Growth{}, nil, err
	}
	counted := 0
	for start := time.Now(); counted < l.Sizes.Events && (counted == 0 || time.Since(start) < l.Sizes.Turn); counted++ {
		if err := r.settle(ctx, l.message(), wireEvents[0].want); err != nil {
			return Growth{}, nil, err
		}
	}
	after, err := readUsage()
	if err != nil {
		return Growth{}, nil, err
	}
	traffic := m.read().since(before)
	trips := traffic.rpcs
	if r.System == contender.Postgres {
		trips = traffic.turns
	}
	fresh = taken[EventFresh][r.Key]
	n := float64(counted)
	return Growth{
		Contender: r.Key, RoundTrips: float64(trips) / n, Millis: summarise(fresh), MicrosCPU: micros(after.cpu-used.cpu) / n,
		DuplicateMillis: summarise(taken[EventDuplicate][r.Key]),
	}, fresh, nil
}
