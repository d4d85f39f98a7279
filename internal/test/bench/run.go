package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	database "cloud.google.com/go/spanner/admin/database/apiv1"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// sizes are the sizes of a run.
type sizes struct {
	name string
	// rounds is the number of turns of each contender.
	rounds int
	// events is the number of events in a turn, one at a time; cpuEvents in a turn that
	// measures the CPU.
	events, cpuEvents int
	// roundTrips are those of the simulated network, 0 first.
	roundTrips []time.Duration
	// inFlight are the numbers of concurrent deliveries; turn is the duration of a
	// turn with each.
	inFlight []int
	turn     time.Duration
	// rows are the numbers of stored settlements for all contenders, moreRows further
	// ones for Settle Once only.
	rows, moreRows []int
	// kills is the number of killed processes of each contender.
	kills int
	// storm is the number of concurrent deliveries of one settlement, stormPause the
	// pause between other deliveries.
	storm      int
	stormPause time.Duration
	// requests is the number of largest requests.
	requests int
	// starts is the number of cold starts of each function.
	starts int
	// loop is the duration of each loop of the baseline.
	loop time.Duration
}

// The usual sizes take 22 minutes. The quick ones show in about two minutes that
// everything works.
var (
	usual = sizes{
		name: report.Full, rounds: 5, events: 15, cpuEvents: 100,
		roundTrips: []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond},
		inFlight:   []int{1, 8, 64}, turn: time.Second,
		rows: []int{1_000, 10_000, 100_000}, moreRows: []int{1_000_000}, kills: 200,
		storm: 1_000, stormPause: 20 * time.Millisecond, requests: 1_000, starts: 10, loop: 200 * time.Millisecond,
	}
	quick = sizes{
		name: "quick", rounds: 3, events: 5, cpuEvents: 30,
		roundTrips: usual.roundTrips,
		inFlight:   usual.inFlight, turn: 100 * time.Millisecond,
		rows: []int{100, 1_000}, kills: 8,
		storm: 50, stormPause: 10 * time.Millisecond, requests: 20, starts: 2, loop: 20 * time.Millisecond,
	}
)

type measure struct {
	name         string
	emulatorOnly bool
	take         func(*run, context.Context) error
}

// measures are in the order of a run. Each has its own emulator.
var measures = []measure{
	{"baseline", false, (*run).measureBaseline},
	{"cold_start", true, (*run).measureColdStart},
	{"input", true, (*run).measureInput},
	{"wire", false, (*run).measureWire},
	{"cpu", false, (*run).measureCPU},
	{"latency", false, (*run).measureLatency},
	{"throughput", false, (*run).measureThroughput},
	{"crashes", true, (*run).measureCrashes},
	{"storm", false, (*run).measureStorm},
	{"fairness", false, (*run).measureFairness},
	{"growth", false, (*run).measureGrowth},
}

func measureNames() (names []string) {
	for _, m := range measures {
		names = append(names, m.name)
	}
	return names
}

// run is a run with its servers.
type run struct {
	sizes sizes
	// only are the names of the measures; empty means all.
	only []string
	// instance is a Spanner instance, projects/P/instances/I. Empty means the emulator.
	// The simulated network, kills and cold starts need the emulator.
	instance string
	// progress gets a line for each measure and for the parts of long ones.
	progress io.Writer

	report     report.Report
	contenders []contender.Contender
	emulator   *emulator.Spanner             // nil: real instance
	admin      *database.DatabaseAdminClient // of a real instance; nil: emulator
	postgres   *contender.Cluster            // nil: not installed
	settlement atomic.Int64                  // the last number
}

// all takes the measures and fills the report.
func (r *run) all(ctx context.Context) (err error) {
	began := time.Now()
	r.report = report.Report{Machine: describeMachine(), Sizes: r.sizes.name, Tables: newTables()}
	if r.instance != "" {
		if r.admin, err = database.NewDatabaseAdminClient(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.admin.Close()) }()
		r.report.Machine.Spanner = "Cloud Spanner, " + r.instance
	}
	r.postgres, err = contender.StartPostgres(ctx)
	if err != nil && !errors.Is(err, contender.ErrNoPostgres) {
		return err
	}
	if r.postgres != nil {
		r.report.Machine.Postgres = r.postgres.Version
		defer func() { err = errors.Join(err, r.postgres.Close()) }()
	}
	r.enrol()
	for i, m := range measures {
		if len(r.only) > 0 && !slices.Contains(r.only, m.name) || m.emulatorOnly && r.instance != "" {
			continue
		}
		r.log("%s (%d of %d)", m.name, i+1, len(measures))
		if err := r.withEmulator(ctx, func() error { return m.take(r, ctx) }); err != nil {
			return fmt.Errorf("measure %s: %w", m.name, err)
		}
	}
	r.checkLimits()
	r.report.Chart = r.chart()
	r.report.Tables = slices.DeleteFunc(r.report.Tables, func(t *report.Table) bool { return len(t.Rows) == 0 })
	r.report.Duration = time.Since(began)
	return nil
}

func (r *run) log(format string, args ...any) {
	_, _ = fmt.Fprintf(r.progress, "bench: "+format+"\n", args...) // progress is not essential
}

// withEmulator calls use with a new emulator, unless a real instance is measured. The
// emulator's clock gains about two microseconds in each transaction, and a read without
// locks waits for the system's clock to reach it.
func (r *run) withEmulator(ctx context.Context, use func() error) (err error) {
	if r.instance != "" {
		return use()
	}
	before := r.emulator
	started, err := emulator.StartSpanner(ctx)
	if err != nil {
		return err
	}
	r.emulator = started
	defer func() { //nolint:contextcheck // the emulator stops even after ctx has ended
		r.emulator = before
		err = errors.Join(err, started.Close())
	}()
	if r.report.Machine.Spanner == "" {
		r.report.Machine.Spanner = spannerVersion(ctx, started.Source)
	}
	return use()
}

// enrol lists the contenders and leaves out PostgreSQL if it is not installed.
func (r *run) enrol() {
	for _, c := range contender.All() {
		about := c.About
		if c.Postgres && r.postgres == nil {
			about = leftOut + contender.ErrNoPostgres.Error()
		} else {
			r.contenders = append(r.contenders, c)
		}
		r.report.Table(titleContenders).Text("method", about, c.Name)
	}
}

const leftOut = "left out: "

// Loaded settlements have lower numbers.
const firstNumber = 100_000_000

// number returns the number of a new settlement.
func (r *run) number() int { return firstNumber + int(r.settlement.Add(1)) }
