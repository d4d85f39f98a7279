package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/api/option"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// settleOnce is the name of the contender to which ratios refer.
const settleOnce = "Settle Once"

// fixture is a contender with its own database and client.
type fixture struct {
	contender.Contender
	run      *run
	database string
	network  *network
	client   contender.Settler
}

// withDatabase calls use with a new database with the contender's tables, and drops it.
func (r *run) withDatabase(ctx context.Context, c contender.Contender, use func(database string) error) error {
	statements, err := c.Statements()
	if err != nil {
		return err
	}
	var (
		name string
		drop = func() error { return nil } // those of PostgreSQL end with their server
	)
	switch {
	case c.Postgres:
		name, err = r.postgres.CreateDatabase(ctx, statements)
	case r.instance == "":
		name, err = r.emulator.CreateDatabase(ctx, "", statements)
		drop = func() error { return r.emulator.DropDatabase(ctx, name) }
	default:
		name, err = createIn(ctx, r.admin, r.instance, statements)
		drop = func() error {
			return r.admin.DropDatabase(context.WithoutCancel(ctx), &databasepb.DropDatabaseRequest{Database: name})
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(use(name), drop())
}

// place locates a database.
func (r *run) place(database string, n *network, options ...option.ClientOption) contender.Place {
	p := contender.Place{Database: database, Dial: n.dial, Options: append(n.options(), options...), Now: time.Now}
	if r.instance == "" {
		p.Emulator = r.emulator.GRPC
	}
	return p
}

// withFixture calls use with a fixture in the given network. Its client has no connection
// yet.
func (r *run) withFixture(ctx context.Context, c contender.Contender, n *network, use func(*fixture) error) error {
	return r.withDatabase(ctx, c, func(database string) (err error) {
		f := &fixture{Contender: c, run: r, database: database, network: n}
		n.byTurn = c.Postgres
		if f.client, err = c.Open(ctx, r.place(database, f.network)); err != nil {
			return err
		}
		defer f.client.Close()
		return use(f)
	})
}

// figure is the figure of a turn.
type figure struct {
	title, column string
	value         float64
}

// inTurn takes the rounds of a measure: a turn of each contender in a network with the
// given round trip. Each round has its own emulator. It reports the figures with their
// ratios to those of Settle Once, which has the first turn.
func (r *run) inTurn(ctx context.Context, roundTrip time.Duration, turn func(*fixture) ([]figure, error)) error {
	round := func() error {
		var base []figure
		for _, c := range r.contenders {
			n := &network{roundTrip: roundTrip, precise: true}
			err := r.withFixture(ctx, c, n, func(f *fixture) error {
				figures, err := turn(f)
				for i, g := range figures {
					of := 0.0
					if base != nil {
						of = base[i].value
					}
					r.report.Table(g.title).AddCompared(g.column, g.value, of, c.Name)
				}
				if base == nil {
					base = figures
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	for range r.sizes.rounds {
		if err := r.withEmulator(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

// withFixtures calls use with a fixture for each contender.
func (r *run) withFixtures(ctx context.Context, contenders []contender.Contender, use func([]*fixture) error) error {
	if len(contenders) == 0 {
		return use(nil)
	}
	return r.withFixture(ctx, contenders[0], &network{}, func(first *fixture) error {
		return r.withFixtures(ctx, contenders[1:], func(others []*fixture) error {
			return use(append([]*fixture{first}, others...))
		})
	})
}

// kind is a kind of event.
type kind struct {
	name     string
	delivery func(n int) settle.Delivery
	want     settle.Outcome
}

// The events are in the order of one settlement's deliveries.
var (
	fresh     = kind{"fresh", contender.Message, settle.OutcomeApplied}
	duplicate = kind{"duplicate", contender.Message, settle.OutcomeDuplicate}
	conflict  = kind{"conflict", conflicting, settle.OutcomeConflict}
	events    = []kind{fresh, duplicate, conflict}

	// furtherEvents are those that only Settle Once treats in a way of its own.
	unsettled        = kind{"redelivered, not settled", redelivered(func(n int) settle.Delivery { return contender.Message(-n) }), settle.OutcomeApplied}
	duplicateAgain   = kind{"duplicate, redelivered", redelivered(contender.Message), settle.OutcomeDuplicate}
	conflictAgain    = kind{"known conflict, redelivered", redelivered(conflicting), settle.OutcomeConflict}
	quarantined      = kind{"quarantined", contender.Malformed, settle.OutcomeQuarantined}
	quarantinedAgain = kind{"known in quarantine", contender.Malformed, settle.OutcomeQuarantined}
	furtherEvents    = []kind{unsettled, duplicateAgain, conflictAgain, quarantined, quarantinedAgain}
)

func conflicting(n int) settle.Delivery { return contender.Conflicting(n, 1) }

// redelivered makes deliveries redeliveries.
func redelivered(of func(n int) settle.Delivery) func(n int) settle.Delivery {
	return func(n int) settle.Delivery {
		d := of(n)
		d.Attempt++
		return d
	}
}

// settle settles an event of settlement n and checks the outcome.
func (f *fixture) settle(ctx context.Context, e kind, n int) (took time.Duration, err error) {
	d := e.delivery(n)
	began := time.Now()
	got, err := f.client.Settle(ctx, d)
	took = time.Since(began)
	if err == nil && got != e.want {
		err = fmt.Errorf("outcome %v, want %v", got, e.want)
	}
	if err != nil {
		return 0, fmt.Errorf("%s, %s event: %w", f.Name, e.name, err)
	}
	return took, nil
}

// events returns the contender's kinds of events.
func (f *fixture) events() []kind {
	if f.Name == settleOnce {
		return slices.Concat(events, furtherEvents)
	}
	return events
}

// warmEvents is the number of events before a measurement, enough for every connection
// of a client.
const warmEvents = 8

// prepare settles events of the given kinds on every connection, because a connection
// prepares statements at the first event of a kind.
func (f *fixture) prepare(ctx context.Context, kinds ...kind) error {
	for range warmEvents {
		n := f.run.number()
		for _, e := range kinds {
			if _, err := f.settle(ctx, e, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// turn settles events of one kind, one at a time, and returns their times in
// milliseconds. After the limit it ends early, but not without an event.
func (f *fixture) turn(ctx context.Context, e kind, numbers []int, limit time.Duration) (times []float64, err error) {
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
