package bench

import (
	"context"
	"errors"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

func (l *lab) wireSteps() int { return len(l.contenders) }

// measureWire counts what each kind of event costs on the wire.
func (l *lab) measureWire(ctx context.Context) error {
	for _, c := range l.contenders {
		m := &meter{}
		r, err := l.ring(ctx, c, 0, m)
		if err != nil {
			return err
		}
		err = l.wire(ctx, r, m)
		if err := errors.Join(err, r.close(ctx)); err != nil {
			return err
		}
		l.Progress.Step()
	}
	return nil
}

func (l *lab) wire(ctx context.Context, r *ring, m *meter) error {
	// What a connection prepares when it first meets a kind of event is not counted.
	if err := l.meetAll(ctx, r); err != nil {
		return err
	}
	numbers := make([]int, l.Sizes.Events)
	for i := range numbers {
		numbers[i] = l.number()
	}
	for _, event := range wireEvents {
		result := Wire{Contender: r.Key, Event: event.kind}
		for i, n := range numbers {
			before := m.read()
			if err := r.settle(ctx, event.message(n), event.want); err != nil {
				return err
			}
			result.add(i, len(numbers), r.System, m.read().since(before))
		}
		l.report.Wire = append(l.report.Wire, result)
	}
	return nil
}

// meetAll lets every connection of a client meet every kind of event.
func (l *lab) meetAll(ctx context.Context, r *ring) error {
	for range warmEvents {
		n := l.number()
		for _, event := range wireEvents {
			if err := r.settle(ctx, event.message(n), event.want); err != nil {
				return err
			}
		}
	}
	return nil
}

// wireEvent is a kind of event, in the order in which they come for one settlement.
type wireEvent struct {
	kind    string
	message func(n int) []byte
	want    settle.Outcome
}

var wireEvents = []wireEvent{
	{EventFresh, contender.Message, settle.OutcomeApplied},
	{EventDuplicate, contender.Message, settle.OutcomeDuplicate},
	{EventConflict, contender.Conflicting, settle.OutcomeConflict},
}

// add adds event i of n to the means.
func (w *Wire) add(i, n int, system contender.System, t traffic) {
	trips := t.rpcs
	if system == contender.Postgres {
		trips = t.turns
	}
	w.RoundTrips += float64(trips) / float64(n)
	w.Commits += float64(t.commits) / float64(n)
	w.Sent += float64(t.sent) / float64(n)
	w.Received += float64(t.received) / float64(n)
	if i == 0 {
		w.LeastTrips, w.MostTrips = trips, trips
	}
	w.LeastTrips, w.MostTrips = min(w.LeastTrips, trips), max(w.MostTrips, trips)
}
