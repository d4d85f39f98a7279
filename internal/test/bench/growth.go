package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// duplicatesUpTo is the greatest number of rows with which duplicates are timed. A
// query makes the emulator look through all of them, which takes it half a minute
// where there are a million.
const duplicatesUpTo = 100_000

// sizesFor are the numbers of rows of a contender, rising.
func (l *lab) sizesFor(c contender.Contender) []int {
	sizes := slices.Clone(l.Sizes.Rows)
	if c.Key == Baseline {
		sizes = append(sizes, l.Sizes.OnlyRows...)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// loadSteps is in how many parts the rows of a database are loaded.
const loadSteps = 10

func (l *lab) growthSteps() int {
	steps := 0
	for _, c := range l.contenders {
		steps += len(l.sizesFor(c)) * (loadSteps + l.Sizes.Rounds)
	}
	return steps
}

// measureGrowth settles where more and more is stored already. Contenders do not take
// turns here: the sizes of one do, each in a database of its own.
func (l *lab) measureGrowth(ctx context.Context) error {
	for _, c := range l.contenders {
		if err := l.growth(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.Key, err)
		}
	}
	return nil
}

// stocked is a ring with rows in it, and what is measured there.
type stocked struct {
	*ring
	rows  int
	meter *meter
	taken map[string]series
	costs []float64 // microseconds of this process's CPU for a fresh event, by rounds
}

func (l *lab) growth(ctx context.Context, c contender.Contender) (err error) {
	var all []*stocked
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	for _, rows := range l.sizesFor(c) {
		s := &stocked{rows: rows, meter: &meter{}, taken: map[string]series{EventFresh: {}, EventDuplicate: {}}}
		if s.ring, err = l.ring(ctx, c, 0, s.meter); err != nil {
			return err
		}
		all = append(all, s)
		if err := s.stock(ctx); err != nil {
			return fmt.Errorf("at %d rows: %w", rows, err)
		}
	}
	for range l.Sizes.Rounds {
		for _, s := range all {
			if err := s.measure(ctx); err != nil {
				return fmt.Errorf("at %d rows: %w", s.rows, err)
			}
			l.Progress.Step()
		}
	}
	least := all[0].taken[EventFresh][c.Key]
	for _, s := range all {
		trips, err := s.roundTrips(ctx)
		if err != nil {
			return fmt.Errorf("at %d rows: %w", s.rows, err)
		}
		fresh := s.taken[EventFresh][c.Key]
		l.report.Growth = append(l.report.Growth, Growth{
			Contender: c.Key, Rows: s.rows, RoundTrips: trips, Millis: summarise(fresh), MicrosCPU: summarise(s.costs),
			DuplicateMillis: summarise(s.taken[EventDuplicate][c.Key]), Ratio: ratios(fresh, least),
		})
	}
	return nil
}

// stock lets the client meet every kind of event while there is little, and then
// loads the rows.
func (s *stocked) stock(ctx context.Context) error {
	if err := s.lab.meetAll(ctx, s.ring); err != nil {
		return err
	}
	loader, err := s.place("", nil)
	if err != nil {
		return err
	}
	for part := range loadSteps {
		from, to := part*s.rows/loadSteps, (part+1)*s.rows/loadSteps
		if err := s.Load(ctx, loader, from, to-from); err != nil {
			return err
		}
		s.lab.Progress.Step()
	}
	return nil
}

// measure takes a turn.
func (s *stocked) measure(ctx context.Context) error {
	kinds := wireEvents[:2]
	if s.rows > duplicatesUpTo {
		kinds = wireEvents[:1]
	}
	if err := s.lab.turn(ctx, s.ring, kinds, s.taken, s.lab.Sizes.Turn); err != nil {
		return err
	}
	before, err := readUsage()
	if err != nil {
		return err
	}
	settled, err := s.settleSome(ctx)
	if err != nil {
		return err
	}
	after, err := readUsage()
	s.costs = append(s.costs, micros(after.cpu-before.cpu)/float64(settled))
	return err
}

// settleSome settles fresh events and returns how many.
func (s *stocked) settleSome(ctx context.Context) (settled int, err error) {
	for start := time.Now(); settled < s.lab.Sizes.Events && (settled == 0 || time.Since(start) < s.lab.Sizes.Turn); settled++ {
		if err := s.settle(ctx, s.lab.message(), wireEvents[0].want); err != nil {
			return settled, err
		}
	}
	return settled, nil
}

// roundTrips counts those of a fresh event.
func (s *stocked) roundTrips(ctx context.Context) (float64, error) {
	before := s.meter.read()
	settled, err := s.settleSome(ctx)
	if err != nil {
		return 0, err
	}
	traffic := s.meter.read().since(before)
	trips := traffic.rpcs
	if s.System == contender.Postgres {
		trips = traffic.turns
	}
	return float64(trips) / float64(settled), nil
}
