package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

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
	meter    *meter              // counts the client's traffic; nil: not counted
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
func (f *fixture) place(addr string) contender.Place {
	p := contender.Place{Database: f.database, Now: time.Now}
	if f.System == contender.Postgres {
		p.Database = f.run.postgres.Connection(f.database, cmp.Or(addr, f.server()))
		if f.meter != nil {
			p.Dial = f.meter.dial
		}
		return p
	}
	if f.run.emulator != nil {
		p.Emulator = cmp.Or(addr, f.server())
	}
	if f.meter != nil {
		p.Options = f.meter.options()
	}
	return p
}

// warmEvents is the number of events before a measurement, enough for every connection
// of a client.
const warmEvents = 12

// connect opens a warm client behind a network with the given round trip; 0 means
// without a proxy.
func (f *fixture) connect(ctx context.Context, roundTrip time.Duration) (err error) {
	addr := ""
	if roundTrip > 0 {
		if f.proxy, err = latencyproxy.Start(ctx, f.server(), roundTrip, nil); err != nil {
			return err
		}
		addr = f.proxy.Addr
	}
	if f.client, err = f.Open(ctx, f.place(addr)); err != nil {
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

// withDatabase calls use with a fixture that is not connected.
func (r *run) withDatabase(ctx context.Context, c contender.Contender, use func(*fixture) error) error {
	f, err := r.newFixture(ctx, c)
	if err != nil {
		return err
	}
	return errors.Join(use(f), f.close(ctx))
}

// withFixture calls use with a connected fixture. m, if not nil, counts its traffic.
func (r *run) withFixture(ctx context.Context, c contender.Contender, m *meter, use func(*fixture) error) error {
	return r.withFixtures(ctx, []contender.Contender{c}, 0, m, func(fixtures []*fixture) error { return use(fixtures[0]) })
}

// withFixtures calls use with a connected fixture for each contender, behind a network
// with the given round trip. m, if not nil, counts the traffic of all.
func (r *run) withFixtures(ctx context.Context, contenders []contender.Contender, roundTrip time.Duration, m *meter, use func([]*fixture) error) (err error) {
	var fixtures []*fixture
	defer func() {
		for _, f := range fixtures {
			err = errors.Join(err, f.close(ctx))
		}
	}()
	for _, c := range contenders {
		f, err := r.newFixture(ctx, c)
		if err != nil {
			return err
		}
		f.meter, fixtures = m, append(fixtures, f)
		if err := f.connect(ctx, roundTrip); err != nil {
			return err
		}
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
