// Package bench measures Settle Once against what people use instead, and against
// the least that it could cost.
//
// It exists so that a doubting engineer can see in one run, on their own machine, how
// they compare and why. Everything is real but the network's length: the Spanner
// emulator or a Spanner instance, PostgreSQL with fsync, the function under the
// functions framework, processes that are killed.
//
// # How it measures
//
// Contenders take turns within each round (A B C A B C …), so that what disturbs the
// machine disturbs all. A figure is the median of the rounds, with the least and the
// greatest; a ratio is computed within each round. What can be counted is counted:
// RPCs by gRPC's own statistics, bytes at the connection, commits as they go by.
//
// # What it does not show
//
// The emulator is not Spanner. It keeps everything in one process's memory, runs one
// read-write transaction at a time, and a query looks through all rows of a table. Times
// in front of it are those of the client and of the number of round trips; round
// trips, bytes and commits are the same with Spanner.
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"google.golang.org/api/option"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/link"
	"github.com/settleonce/settleonce/internal/test/bench/pgcluster"
)

// Sizes says how much is measured.
type Sizes struct {
	Name string `json:"name"`
	// Rounds is how often all contenders take their turn.
	Rounds int `json:"rounds"`
	// Events is how many events a contender settles in its turn, one at a time.
	Events int `json:"events"`
	// CPUEvents is the same for the client's CPU.
	CPUEvents int `json:"cpu_events"`
	// RoundTrips are the simulated network's, 0 first.
	RoundTrips []time.Duration `json:"-"`
	// InFlight are the numbers of deliveries at a time, and Turn how long a contender
	// settles with each in its turn.
	InFlight []int         `json:"in_flight"`
	Turn     time.Duration `json:"-"`
	// Rows are the numbers of settlements that are stored already.
	Rows []int `json:"rows"`
	// OnlyRows are further ones for Settle Once alone.
	OnlyRows []int `json:"only_rows"`
	// Kills is how many processes of each contender are killed.
	Kills int `json:"kills"`
	// Storm is how often one settlement is delivered at once.
	Storm int `json:"storm"`
	// Every is the pause between two of the storm's other events.
	Every time.Duration `json:"-"`
	// Starts is how often each function is started.
	Starts int `json:"starts"`
	// Loop is how long each loop of the floor runs.
	Loop time.Duration `json:"-"`
}

// Usual are the sizes of a whole run, Quick those that only show that all works, and
// Tiny those of the tests.
var (
	Usual = Sizes{
		Name: "usual", Rounds: 5, Events: 15, CPUEvents: 100,
		RoundTrips: []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond},
		InFlight:   []int{1, 8, 64}, Turn: time.Second,
		Rows: []int{1_000, 10_000, 100_000}, OnlyRows: []int{1_000_000}, Kills: 200, Storm: 1_000, Every: 20 * time.Millisecond, Starts: 10, Loop: 200 * time.Millisecond,
	}
	Quick = Sizes{
		Name: "quick", Rounds: 3, Events: 5, CPUEvents: 30,
		RoundTrips: []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond},
		InFlight:   []int{1, 8, 64}, Turn: 100 * time.Millisecond,
		Rows: []int{100, 1_000}, Kills: 8, Storm: 50, Every: 10 * time.Millisecond, Starts: 2, Loop: 20 * time.Millisecond,
	}
	Tiny = Sizes{
		Name: "tiny", Rounds: 1, Events: 2, CPUEvents: 5, RoundTrips: []time.Duration{0, 5 * time.Millisecond},
		InFlight: []int{1, 64}, Turn: 20 * time.Millisecond,
		Rows: []int{10, 50}, Kills: 2, Storm: 10, Every: 5 * time.Millisecond, Starts: 1, Loop: time.Millisecond,
	}
)

// Progress is told how far a run is. Calls come from one goroutine, but for Step.
type Progress interface {
	// Phase begins a measure of so many steps.
	Phase(name string, steps int)
	// Step ends a step.
	Step()
}

// Config says how to run.
type Config struct {
	Sizes Sizes
	// Only are the measures to take, by their names in [Measures]; empty: all.
	Only []string
	// Instance is a Spanner instance, projects/P/instances/I, to measure in place of
	// the emulator. Empty means the emulator. A simulated network, kills and cold
	// starts are for the emulator only.
	Instance string
	// Child is the command that runs [RunChild] in a process of its own. Required for
	// kills.
	Child []string
	// Module is the directory of this module's source, from which the functions are
	// built. Required for cold starts.
	Module string
	// Seed draws what is drawn.
	Seed uint64
	// Progress is told how far the run is. Nil means that nobody is.
	Progress Progress
}

// measure is one of the things that a run finds out.
type measure struct {
	name     string
	emulator bool // it needs the emulator
	steps    func(*lab) int
	take     func(*lab, context.Context) error
}

// measures are taken in this order, each in front of a new emulator: a read without
// locks takes it a microsecond longer for every transaction that it has run.
var measures = []measure{
	{"floor", false, (*lab).floorSteps, (*lab).measureFloor},
	{"cold_start", true, (*lab).coldStartSteps, (*lab).measureColdStart},
	{"wire", false, (*lab).wireSteps, (*lab).measureWire},
	{"cpu", false, (*lab).cpuSteps, (*lab).measureCPU},
	{"latency", false, (*lab).latencySteps, (*lab).measureLatency},
	{"throughput", false, (*lab).throughputSteps, (*lab).measureThroughput},
	{"crashes", true, (*lab).crashSteps, (*lab).measureCrashes},
	{"storm", false, (*lab).stormSteps, (*lab).measureStorm},
	{"growth", false, (*lab).growthSteps, (*lab).measureGrowth},
}

// Measures returns the names of what can be measured, in order.
func Measures() []string {
	var names []string
	for _, m := range measures {
		names = append(names, m.name)
	}
	return names
}

// lab is a run with all that it has started.
type lab struct {
	Config
	report     Report
	contenders []contender.Contender
	databases  *Databases
	emulator   *emulator.Spanner  // nil: a real instance
	postgres   *pgcluster.Cluster // nil: not installed
	next       atomic.Int64       // the next settlement
	closers    []func() error
}

// Run measures, and leaves nothing behind.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	began := time.Now()
	for _, name := range cfg.Only {
		if !slices.Contains(Measures(), name) {
			return Report{}, fmt.Errorf("measure %q: it is none of %v", name, Measures())
		}
	}
	if cfg.Progress == nil {
		cfg.Progress = silence{}
	}
	l := &lab{Config: cfg}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.open(ctx); err != nil {
		return Report{}, err
	}
	for _, m := range measures {
		if len(cfg.Only) > 0 && !slices.Contains(cfg.Only, m.name) || m.emulator && l.emulator == nil {
			continue
		}
		cfg.Progress.Phase(m.name, m.steps(l))
		if err := l.renew(ctx); err != nil {
			return Report{}, err
		}
		if err := m.take(l, ctx); err != nil {
			return Report{}, fmt.Errorf("measure %s: %w", m.name, err)
		}
	}
	l.report.Claims = claims(l.report)
	l.report.Seconds = time.Since(began).Seconds()
	return l.report, nil
}

type silence struct{}

func (silence) Phase(string, int) {}
func (silence) Step()             {}

// emulatorInstance is the instance of the emulator's databases.
const emulatorInstance = "projects/emulator/instances/emulator"

func (l *lab) open(ctx context.Context) (err error) {
	l.report.Machine, l.report.Sizes = describeMachine(ctx), l.Sizes
	if l.Instance == "" {
		l.closers = append(l.closers, l.closeEmulator)
		if err := l.startEmulator(ctx); err != nil {
			return err
		}
		l.report.Machine.Spanner = spannerVersion(ctx, l.emulator.Source)
	} else {
		l.report.Machine.Spanner = "Cloud Spanner, " + l.Instance
		if l.databases, err = NewDatabases(l.Instance); err != nil {
			return err
		}
	}
	l.closers = append(l.closers, func() error { return l.dropAll(context.WithoutCancel(ctx)) })
	return l.enter(ctx)
}

// closeEmulator closes the emulator, if there is one.
func (l *lab) closeEmulator() error {
	if l.emulator == nil {
		return nil
	}
	return l.emulator.Close()
}

// startEmulator starts an emulator with an instance.
func (l *lab) startEmulator(ctx context.Context) (err error) {
	if l.emulator, err = emulator.StartSpanner(ctx); err != nil {
		return err
	}
	if err := l.makeInstance(ctx); err != nil {
		return err
	}
	l.databases, err = NewDatabases(emulatorInstance, l.emulator.ClientOptions()...)
	return err
}

// renew replaces an emulator.
func (l *lab) renew(ctx context.Context) error {
	if l.emulator == nil {
		return nil
	}
	if err := l.closeEmulator(); err != nil { //nolint:contextcheck // it ends whether ctx does or not
		return err
	}
	return l.startEmulator(ctx)
}

// makeInstance lets the emulator's instance be there.
func (l *lab) makeInstance(ctx context.Context) error {
	name, err := l.emulator.CreateDatabase(ctx, "", nil)
	if err != nil {
		return err
	}
	return l.emulator.DropDatabase(ctx, name)
}

// enter decides who takes part.
func (l *lab) enter(ctx context.Context) error {
	missing := ""
	cluster, err := pgcluster.Start(ctx)
	switch {
	case err == nil:
		l.postgres = cluster
		l.closers = append(l.closers, cluster.Close)
		l.report.Machine.Postgres = cluster.Version
	case errors.Is(err, pgcluster.ErrNotFound):
		missing = err.Error()
	default:
		return err
	}
	for _, c := range contender.All() {
		entrant := Entrant{Key: c.Key, Name: c.Name, About: c.About}
		if c.System == contender.Postgres && missing != "" {
			entrant.Missing = missing
		} else {
			l.contenders = append(l.contenders, c)
		}
		l.report.Contenders = append(l.report.Contenders, entrant)
	}
	return nil
}

func (l *lab) close() error {
	var errs []error
	for _, c := range slices.Backward(l.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// dropAll drops what a measure that failed has left.
func (l *lab) dropAll(ctx context.Context) error {
	var errs []error
	for _, name := range l.databases.Left() {
		errs = append(errs, l.databases.Drop(ctx, name))
	}
	return errors.Join(errs...)
}

// message returns a fresh message.
func (l *lab) message() []byte { return contender.Message(l.number()) }

// firstNumber is above all numbers of rows that are loaded.
const firstNumber = 100_000_000

func (l *lab) number() int { return firstNumber + int(l.next.Add(1)) }

// arena is an empty database with a contender's tables.
type arena struct {
	contender.Contender
	lab      *lab
	database string
}

// arena creates a database for a contender.
func (l *lab) arena(ctx context.Context, c contender.Contender) (*arena, error) {
	statements, err := c.Statements()
	if err != nil {
		return nil, err
	}
	a := &arena{Contender: c, lab: l}
	if c.System == contender.Postgres {
		a.database, err = l.postgres.CreateDatabase(ctx, statements)
	} else {
		a.database, err = l.databases.Create(ctx, statements)
	}
	return a, err
}

// drop drops the database.
func (a *arena) drop(ctx context.Context) error {
	if a.System == contender.Postgres {
		return a.lab.postgres.DropDatabase(ctx, a.database)
	}
	return a.lab.databases.Drop(ctx, a.database)
}

// upstream is the host:port of the contender's server; only with the emulator.
func (a *arena) upstream() string {
	if a.System == contender.Postgres {
		return a.lab.postgres.Addr
	}
	return a.lab.emulator.GRPC
}

// place is where the arena is, by way of an address; empty: directly.
func (a *arena) place(through string, m *meter) (contender.Place, error) {
	p := contender.Place{Database: a.database, Now: time.Now, NewID: uuid.NewString}
	if a.System == contender.Postgres {
		if through != "" {
			var err error
			if p.Database, err = pgcluster.Through(a.database, through); err != nil {
				return contender.Place{}, err
			}
		}
		if m != nil {
			p.Dial = m.dial
		}
		return p, nil
	}
	if a.lab.emulator != nil {
		p.Emulator, p.Options = true, a.lab.emulator.ClientOptions()
		if through != "" {
			p.Options = append(p.Options, option.WithEndpoint("passthrough:///"+through))
		}
	}
	if m != nil {
		p.Options = append(p.Options, m.options()...)
	}
	return p, nil
}

// open opens the arena's contender directly.
func (a *arena) open(ctx context.Context) (contender.Settler, error) {
	p, err := a.place("", nil)
	if err != nil {
		return nil, err
	}
	return a.Open(ctx, p)
}

// warmEvents are settled by a client before anything is measured: one and more for
// each of its connections.
const warmEvents = 12

// ring is an arena with a client that is connected and warm.
type ring struct {
	*arena
	settler contender.Settler
	link    *link.Link // nil: directly
}

// ring opens a contender in a database of its own, behind a network of the given
// round trip; zero: no proxy.
func (l *lab) ring(ctx context.Context, c contender.Contender, roundTrip time.Duration, m *meter) (r *ring, err error) {
	a, err := l.arena(ctx, c)
	if err != nil {
		return nil, err
	}
	r = &ring{arena: a}
	through := ""
	if roundTrip > 0 {
		if r.link, err = link.Start(ctx, a.upstream(), roundTrip, nil); err != nil {
			return nil, err
		}
		through = r.link.Addr
	}
	p, err := a.place(through, m)
	if err != nil {
		return nil, err
	}
	if r.settler, err = c.Open(ctx, p); err != nil {
		return nil, err
	}
	for range warmEvents {
		if err := r.settle(ctx, l.message(), settle.OutcomeApplied); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *ring) close(ctx context.Context) error {
	r.settler.Close()
	if r.link != nil {
		r.link.Close()
	}
	return r.drop(ctx)
}

// settle settles a message whose outcome is known beforehand.
func (r *ring) settle(ctx context.Context, message []byte, want settle.Outcome) error {
	got, err := r.settler.Settle(ctx, message)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Key, err)
	}
	if got != want {
		return fmt.Errorf("%s: the outcome is %v and has to be %v", r.Key, got, want)
	}
	return nil
}

// rings opens all contenders, and returns what closes them.
func (l *lab) rings(ctx context.Context, roundTrip time.Duration) (rs []*ring, closeAll func() error, err error) {
	closeAll = func() error {
		var errs []error
		for _, r := range rs {
			errs = append(errs, r.close(ctx))
		}
		return errors.Join(errs...)
	}
	for _, c := range l.contenders {
		r, err := l.ring(ctx, c, roundTrip, nil)
		if err != nil {
			return nil, closeAll, errors.Join(err, closeAll())
		}
		rs = append(rs, r)
	}
	return rs, closeAll, nil
}

// series are the rounds of each contender, by its key.
type series map[string][]float64

// against divides a contender's rounds by Settle Once's.
func (s series) against(key string) Summary { return ratios(s[key], s[Baseline]) }

// Baseline is the key of the contender that ratios are against: Settle Once.
const Baseline = "settle_once"
