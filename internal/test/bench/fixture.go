package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/api/option"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// settleOnce is the name of the contender to which ratios refer.
const settleOnce = "Settle Once"

// fixture is a contender with its own database and a warm client.
type fixture struct {
	contender.Contender
	run      *run
	database string
	network  *network
	client   contender.Settler
}

// createDatabase creates a database with the contender's tables.
func (r *run) createDatabase(ctx context.Context, c contender.Contender) (string, error) {
	statements, err := c.Statements()
	switch {
	case err != nil:
		return "", err
	case c.Postgres:
		return r.postgres.CreateDatabase(ctx, statements)
	case r.emulator != nil:
		return r.emulator.CreateDatabase(ctx, "", statements)
	}
	return r.databases.create(ctx, statements)
}

// dropDatabase drops a database of Spanner. Those of PostgreSQL end with their server.
func (r *run) dropDatabase(ctx context.Context, c contender.Contender, name string) error {
	switch {
	case c.Postgres:
		return nil
	case r.emulator != nil:
		return r.emulator.DropDatabase(ctx, name)
	}
	return r.databases.drop(ctx, name)
}

// place locates a database.
func (r *run) place(database string, n *network, options ...option.ClientOption) contender.Place {
	p := contender.Place{Database: database, Dial: n.dial, Options: append(n.options(), options...), Now: time.Now}
	if r.emulator != nil {
		p.Emulator = r.emulator.GRPC
	}
	return p
}

// withDatabase calls use with a database of a contender.
func (r *run) withDatabase(ctx context.Context, c contender.Contender, use func(database string) error) error {
	database, err := r.createDatabase(ctx, c)
	if err != nil {
		return err
	}
	return errors.Join(use(database), r.dropDatabase(ctx, c, database))
}

// warmEvents is the number of events before a measurement, enough for every connection
// of a client.
const warmEvents = 12

// withFixture calls use with a fixture.
func (r *run) withFixture(ctx context.Context, c contender.Contender, roundTrip time.Duration, use func(*fixture) error) error {
	return r.withDatabase(ctx, c, func(database string) (err error) {
		f := &fixture{Contender: c, run: r, database: database, network: &network{roundTrip: roundTrip, byTurn: c.Postgres}}
		if f.client, err = c.Open(ctx, r.place(database, f.network)); err != nil {
			return err
		}
		defer f.client.Close()
		for range warmEvents {
			if _, err := f.settle(ctx, fresh, r.number()); err != nil {
				return err
			}
		}
		return use(f)
	})
}

// withFixtures calls use with a fixture for each contender.
func (r *run) withFixtures(ctx context.Context, contenders []contender.Contender, roundTrip time.Duration, use func([]*fixture) error) error {
	if len(contenders) == 0 {
		return use(nil)
	}
	return r.withFixture(ctx, contenders[0], roundTrip, func(first *fixture) error {
		return r.withFixtures(ctx, contenders[1:], roundTrip, func(others []*fixture) error {
			return use(append([]*fixture{first}, others...))
		})
	})
}

// event is a kind of event.
type event struct {
	kind     string
	delivery func(n int) settle.Delivery
	want     settle.Outcome
}

// The events are in the order of one settlement's deliveries.
var (
	fresh     = event{"fresh", contender.Message, settle.OutcomeApplied}
	duplicate = event{"duplicate", contender.Message, settle.OutcomeDuplicate}
	conflict  = event{"conflict", func(n int) settle.Delivery { return contender.Conflicting(n, 1) }, settle.OutcomeConflict}
	events    = []event{fresh, duplicate, conflict}
)

// settle settles an event of settlement n and checks the outcome.
func (f *fixture) settle(ctx context.Context, e event, n int) (took time.Duration, err error) {
	d := e.delivery(n)
	began := time.Now()
	got, err := f.client.Settle(ctx, d)
	took = time.Since(began)
	if err == nil && got != e.want {
		err = fmt.Errorf("outcome %v, want %v", got, e.want)
	}
	if err != nil {
		return 0, fmt.Errorf("%s, %s event: %w", f.Name, e.kind, err)
	}
	return took, nil
}

// prepare settles each kind of event on every connection, because a connection prepares
// statements at the first event of a kind.
func (f *fixture) prepare(ctx context.Context) error {
	for range warmEvents {
		n := f.run.number()
		for _, e := range events {
			if _, err := f.settle(ctx, e, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// turn settles events of one kind, one at a time, and returns their times in
// milliseconds. After the limit it ends early, but not without an event.
func (f *fixture) turn(ctx context.Context, e event, numbers []int, limit time.Duration) (times []float64, err error) {
	start := time.Now()
	for _, n := range numbers {
		if len(times) > 0 && time.Since(start) >= limit {
			break
		}
		took, err := f.settle(ctx, e, n)
		if err != nil {
			return nil, err
		}
		times = append(times, millis(took))
	}
	return times, nil
}

// numbers returns the numbers of a turn's settlements.
func (r *run) numbers() []int {
	numbers := make([]int, r.sizes.events)
	for i := range numbers {
		numbers[i] = r.number()
	}
	return numbers
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
