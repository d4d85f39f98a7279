package main

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// measureCPU measures this process's CPU time and allocations for a fresh event.
func (r *run) measureCPU(ctx context.Context) error {
	return r.withFixtures(ctx, r.contenders, 0, nil, func(fixtures []*fixture) error {
		used, allocated, events := rounds{}, rounds{}, float64(r.sizes.cpuEvents)
		for range r.sizes.rounds {
			for _, f := range fixtures {
				runtime.GC()
				cost, err := f.cost(ctx)
				if err != nil {
					return err
				}
				used[f.Name] = append(used[f.Name], micros(cost.cpu)/events)
				allocated[f.Name] = append(allocated[f.Name], float64(cost.mallocs)/events)
			}
		}
		for _, f := range fixtures {
			r.report.Table(titleCPU).Set("µs", used.compared(f.Name), f.Name)
			r.report.Table(titleCPU).Set("allocations", report.Figure(allocated[f.Name]...), f.Name)
		}
		return nil
	})
}

// usage is the use of resources by this process.
type usage struct {
	cpu     time.Duration // user and system
	mallocs uint64
	at      time.Time
}

func readUsage() usage {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for other arguments only
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{cpu: time.Duration(u.Utime.Nano() + u.Stime.Nano()), mallocs: m.Mallocs, at: time.Now()}
}

// idleTime is the duration of the measurement of the idle process.
const idleTime = 100 * time.Millisecond

// cost returns the usage of a turn's events, less the usage of the idle process with
// open connections in the same time.
func (f *fixture) cost(ctx context.Context) (usage, error) {
	before := readUsage()
	time.Sleep(idleTime)
	idle := readUsage()
	for range f.run.sizes.cpuEvents {
		if err := f.settleFresh(ctx); err != nil {
			return usage{}, err
		}
	}
	after := readUsage()
	share := float64(after.at.Sub(idle.at)) / float64(idle.at.Sub(before.at))
	after.cpu -= idle.cpu + time.Duration(float64(idle.cpu-before.cpu)*share)
	after.mallocs -= idle.mallocs
	return after, nil
}

// measureLatency measures fresh events and their duplicates, one at a time.
func (r *run) measureLatency(ctx context.Context) error {
	roundTrips := r.sizes.roundTrips
	if r.emulator == nil {
		roundTrips = []time.Duration{0} // a real instance has its own network
	}
	for _, roundTrip := range roundTrips {
		r.log("latency with a round trip of %v", roundTrip)
		err := r.withFixtures(ctx, r.contenders, roundTrip, nil, func(fixtures []*fixture) error { return r.latency(ctx, fixtures, roundTrip) })
		if err != nil {
			return fmt.Errorf("with a round trip of %v: %w", roundTrip, err)
		}
	}
	return nil
}

// The rows of the simulated network.
const (
	networkRoundTrip = "network round trip"
	inRoundTrips     = settleOnce + ", in network round trips"
)

func (r *run) latency(ctx context.Context, fixtures []*fixture, roundTrip time.Duration) error {
	fresh, duplicate := rounds{}, rounds{}
	var network []float64
	for range r.sizes.rounds {
		trip, err := probe(ctx, roundTrip, r.sizes.events)
		if err != nil {
			return err
		}
		network = append(network, trip)
		for _, f := range fixtures {
			numbers := r.numbers()
			for i, taken := range []rounds{fresh, duplicate} {
				times, err := f.turn(ctx, events[i], numbers, noLimit)
				if err != nil {
					return err
				}
				taken[f.Name] = append(taken[f.Name], report.Median(times))
			}
		}
	}
	column := fmt.Sprintf("%g ms", millis(roundTrip))
	if r.emulator != nil {
		r.report.Table(titleFresh).Set(column, report.Figure(network...), networkRoundTrip)
		if roundTrip > 0 {
			r.report.Table(titleFresh).Set(column, report.Cell{Figure: report.Ratios(fresh[settleOnce], network)}, inRoundTrips)
		}
	}
	for _, f := range fixtures {
		r.report.Table(titleFresh).Set(column, fresh.compared(f.Name), f.Name)
		r.report.Table(titleDuplicate).Set(column, duplicate.compared(f.Name), f.Name)
	}
	return nil
}

// noLimit exceeds the duration of every turn.
const noLimit = time.Hour

// turn settles events of one kind, one at a time, and returns their times in
// milliseconds. After the limit it ends early, but not without an event.
func (f *fixture) turn(ctx context.Context, e event, numbers []int, limit time.Duration) (times []float64, err error) {
	start := time.Now()
	for _, n := range numbers {
		if len(times) > 0 && time.Since(start) >= limit {
			break
		}
		message := e.message(n)
		began := time.Now()
		if err := f.settle(ctx, message, e.want); err != nil {
			return nil, err
		}
		times = append(times, millis(time.Since(began)))
	}
	return times, nil
}

// measureThroughput settles fresh events concurrently. In the emulator every turn has its
// own database, because the emulator slows down with every row. A real instance takes
// long to create one, so there every contender has one.
func (r *run) measureThroughput(ctx context.Context) error {
	if r.emulator == nil {
		return r.withFixtures(ctx, r.contenders, 0, nil, func(fixtures []*fixture) error {
			return r.throughput(func(i, inFlight int) (float64, error) { return fixtures[i].throughput(ctx, inFlight) })
		})
	}
	return r.throughput(func(i, inFlight int) (rate float64, err error) {
		err = r.withFixture(ctx, r.contenders[i], nil, func(f *fixture) error {
			rate, err = f.throughput(ctx, inFlight)
			return err
		})
		return rate, err
	})
}

// throughput takes the rounds; turn is the turn of contender i.
func (r *run) throughput(turn func(i, inFlight int) (rate float64, err error)) error {
	for _, inFlight := range r.sizes.inFlight {
		column := fmt.Sprintf("%d in flight", inFlight)
		r.log("throughput with %s", column)
		rates := rounds{}
		for range r.sizes.rounds {
			for i, c := range r.contenders {
				rate, err := turn(i, inFlight)
				if err != nil {
					return fmt.Errorf("%s: %w", column, err)
				}
				rates[c.Name] = append(rates[c.Name], rate)
			}
		}
		for _, c := range r.contenders {
			r.report.Table(titleThroughput).Set(column, rates.compared(c.Name), c.Name)
		}
	}
	return nil
}

func (f *fixture) throughput(ctx context.Context, inFlight int) (perSecond float64, err error) {
	if _, err := f.settleConcurrently(ctx, inFlight, 0); err != nil { // opens the connections
		return 0, err
	}
	began := time.Now()
	settled, err := f.settleConcurrently(ctx, inFlight, f.run.sizes.turn)
	return float64(settled) / time.Since(began).Seconds(), err
}

// settleConcurrently settles fresh events for the given time, at least one for each
// delivery in flight, and returns their number.
func (f *fixture) settleConcurrently(ctx context.Context, inFlight int, limit time.Duration) (int64, error) {
	var (
		group   errgroup.Group
		settled atomic.Int64
		began   = time.Now()
	)
	for range inFlight {
		group.Go(func() error {
			for again := true; again; again = time.Since(began) < limit {
				if err := f.settleFresh(ctx); err != nil {
					return err
				}
				settled.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return settled.Load(), err
}
