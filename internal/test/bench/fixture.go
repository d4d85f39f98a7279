package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/latencyproxy"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// fixture is a contender with its own database and, after connect, a warm client.
type fixture struct {
	contender.Contender
	run      *run
	database string
	client   contender.Settler   // nil before connect
	proxy    *latencyproxy.Proxy // nil: no simulated network
}

// newFixture creates a database with the contender's tables.
func (r *run) newFixture(ctx context.Context, c contender.Contender) (*fixture, error) {
	statements, err := c.Statements()
	if err != nil {
		return nil, err
	}
	f := &fixture{Contender: c, run: r}
	switch {
	case c.System == contender.Postgres:
		f.database, err = r.postgres.CreateDatabase(ctx, statements)
	case r.emulator != nil:
		f.database, err = r.emulator.CreateDatabase(ctx, "", statements)
	default:
		f.database, err = r.databases.create(ctx, statements)
	}
	return f, err
}

// close closes the client and drops the database.
func (f *fixture) close(ctx context.Context) error {
	if f.client != nil {
		f.client.Close()
	}
	if f.proxy != nil {
		f.proxy.Close()
	}
	switch {
	case f.System == contender.Postgres:
		return f.run.postgres.DropDatabase(ctx, f.database)
	case f.run.emulator != nil:
		return f.run.emulator.DropDatabase(ctx, f.database)
	}
	return f.run.databases.drop(ctx, f.database)
}

// server returns the server's host:port. There is none for a real instance.
func (f *fixture) server() string {
	if f.System == contender.Postgres {
		return f.run.postgres.Addr
	}
	return f.run.emulator.GRPC
}

// place locates the database. addr is the host:port of a proxy; empty means the server.
// m, if not nil, counts the traffic.
func (f *fixture) place(addr string, m *meter) contender.Place {
	p := contender.Place{Database: f.database, Now: time.Now, NewID: uuid.NewString}
	if f.System == contender.Postgres {
		p.Database = f.run.postgres.Connection(f.database, cmp.Or(addr, f.server()))
		if m != nil {
			p.Dial = m.dial
		}
		return p
	}
	if f.run.emulator != nil {
		p.Emulator = true
		p.Options = (&emulator.Spanner{GRPC: cmp.Or(addr, f.server())}).ClientOptions()
	}
	if m != nil {
		p.Options = append(p.Options, m.options()...)
	}
	return p
}

// warmEvents is the number of events before a measurement, enough for every connection
// of a client.
const warmEvents = 12

// connect opens a warm client behind a network with the given round trip; 0 means
// without a proxy.
func (f *fixture) connect(ctx context.Context, roundTrip time.Duration, m *meter) (err error) {
	addr := ""
	if roundTrip > 0 {
		if f.proxy, err = latencyproxy.Start(ctx, f.server(), roundTrip, nil); err != nil {
			return err
		}
		addr = f.proxy.Addr
	}
	if f.client, err = f.Open(ctx, f.place(addr, m)); err != nil {
		return err
	}
	for range warmEvents {
		if err := f.settleFresh(ctx); err != nil {
			return err
		}
	}
	return nil
}

// settle settles a message and checks the outcome.
func (f *fixture) settle(ctx context.Context, message []byte, want settle.Outcome) error {
	got, err := f.client.Settle(ctx, message)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Key, err)
	}
	if got != want {
		return fmt.Errorf("%s: outcome %v, want %v", f.Key, got, want)
	}
	return nil
}

func (f *fixture) settleFresh(ctx context.Context) error {
	return f.settle(ctx, f.run.message(), settle.OutcomeApplied)
}

// connected returns a connected fixture.
func (r *run) connected(ctx context.Context, c contender.Contender, roundTrip time.Duration, m *meter) (*fixture, error) {
	f, err := r.newFixture(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := f.connect(ctx, roundTrip, m); err != nil {
		return nil, errors.Join(err, f.close(ctx))
	}
	return f, nil
}

// withFixture calls use with a connected fixture.
func (r *run) withFixture(ctx context.Context, c contender.Contender, m *meter, use func(*fixture) error) error {
	f, err := r.connected(ctx, c, 0, m)
	if err != nil {
		return err
	}
	return errors.Join(use(f), f.close(ctx))
}

// withFixtures calls use with a connected fixture of every contender.
func (r *run) withFixtures(ctx context.Context, roundTrip time.Duration, use func([]*fixture) error) (err error) {
	var fixtures []*fixture
	defer func() {
		for _, f := range fixtures {
			err = errors.Join(err, f.close(ctx))
		}
	}()
	for _, c := range r.contenders {
		f, err := r.connected(ctx, c, roundTrip, nil)
		if err != nil {
			return err
		}
		fixtures = append(fixtures, f)
	}
	return use(fixtures)
}

// rounds are the figures of the rounds by the contenders' names.
type rounds map[string][]float64

// compared returns a contender's figure and its ratio to Settle Once's.
func (r rounds) compared(name string) report.Cell {
	c := report.Figure(r[name]...)
	if name != settleOnce {
		c.Ratio = report.Ratios(r[name], r[settleOnce])
	}
	return c
}

// settleOnce is the name of the contender in the tables. Ratios refer to it.
const settleOnce = "Settle Once"

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
