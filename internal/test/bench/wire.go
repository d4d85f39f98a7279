package main

import (
	"context"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

const (
	eventFresh     = "fresh"
	eventDuplicate = "duplicate"
	eventConflict  = "conflict"
)

// event is a kind of event.
type event struct {
	kind    string
	message func(n int) []byte
	want    settle.Outcome
}

// events are in the order of one settlement's deliveries.
var events = []event{
	{eventFresh, contender.Message, settle.OutcomeApplied},
	{eventDuplicate, contender.Message, settle.OutcomeDuplicate},
	{eventConflict, contender.Conflicting, settle.OutcomeConflict},
}

// measureWire counts round trips, commits and bytes of each kind of event.
func (r *run) measureWire(ctx context.Context) error {
	for _, c := range r.contenders {
		if err := r.withFixture(ctx, c, &meter{}, func(f *fixture) error { return f.wire(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

func (f *fixture) wire(ctx context.Context) error {
	if err := f.prepare(ctx); err != nil {
		return err
	}
	numbers := f.run.numbers()
	for _, e := range events {
		var trips []float64
		before := f.meter.read()
		for _, n := range numbers {
			start := f.meter.read()
			if err := f.settle(ctx, e.message(n), e.want); err != nil {
				return err
			}
			trips = append(trips, f.meter.read().since(start).roundTrips(f.System))
		}
		t := f.meter.read().since(before)
		set := func(column string, c report.Cell) { f.run.report.Table(titleWire).Set(column, c, f.Name, e.kind) }
		mean := func(sum int64) report.Cell { return report.Figure(float64(sum) / float64(len(numbers))) }
		set("round trips", report.Figure(trips...))
		set("commits", mean(t.commits))
		set("bytes sent", mean(t.sent))
		set("bytes received", mean(t.received))
	}
	return nil
}

// numbers returns the numbers of a turn's settlements.
func (r *run) numbers() []int {
	numbers := make([]int, r.sizes.events)
	for i := range numbers {
		numbers[i] = r.number()
	}
	return numbers
}

// prepare settles each kind of event on every connection, because a connection prepares
// statements at the first event of a kind.
func (f *fixture) prepare(ctx context.Context) error {
	for range warmEvents {
		n := f.run.number()
		for _, e := range events {
			if err := f.settle(ctx, e.message(n), e.want); err != nil {
				return err
			}
		}
	}
	return nil
}
