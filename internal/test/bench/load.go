package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// measureCPU measures this process's CPU time and allocations for a fresh event.
func (r *run) measureCPU(ctx context.Context) error {
	return r.withFixtures(ctx, r.contenders, 0, func(fixtures []*fixture) error {
		table := r.report.Table(titleCPU)
		for range r.sizes.rounds {
			var base float64
			for _, f := range fixtures {
				if err := f.prepare(ctx, fresh); err != nil {
					return err
				}
				runtime.GC()
				cost, err := f.cost(ctx)
				if err != nil {
					return err
				}
				events := float64(r.sizes.cpuEvents)
				used := micros(cost.cpu) / events
				table.AddCompared("µs", used, base, f.Name)
				table.Add("allocations", float64(cost.mallocs)/events, f.Name)
				base = cmp.Or(base, used) // Settle Once is the first
			}
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
		if _, err := f.settle(ctx, fresh, f.run.number()); err != nil {
			return usage{}, err
		}
	}
	after := readUsage()
	share := float64(after.at.Sub(idle.at)) / float64(idle.at.Sub(before.at))
	after.cpu -= idle.cpu + time.Duration(float64(idle.cpu-before.cpu)*share)
	after.mallocs -= idle.mallocs
	return after, nil
}

// measureThroughput settles fresh events concurrently. Every turn has its own database,
// because the emulator slows down with every row.
func (r *run) measureThroughput(ctx context.Context) error {
	table := r.report.Table(titleThroughput)
	for _, inFlight := range r.sizes.inFlight {
		column := fmt.Sprintf("%d in flight", inFlight)
		r.log("throughput with %s", column)
		for range r.sizes.rounds {
			var base float64
			for _, c := range r.contenders {
				err := r.withFixture(ctx, c, 0, func(f *fixture) error {
					rate, err := f.throughput(ctx, inFlight)
					table.AddCompared(column, rate, base, c.Name)
					base = cmp.Or(base, rate) // Settle Once is the first
					return err
				})
				if err != nil {
					return fmt.Errorf("%s: %w", column, err)
				}
			}
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
				if _, err := f.settle(ctx, fresh, f.run.number()); err != nil {
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
