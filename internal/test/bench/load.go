package main

import (
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
	return r.inTurn(ctx, 0, func(f *fixture) ([]figure, error) {
		if err := f.prepare(ctx, fresh); err != nil {
			return nil, err
		}
		runtime.GC()
		before := readUsage()
		for range r.sizes.cpuEvents {
			if _, err := f.settle(ctx, fresh, r.number()); err != nil {
				return nil, err
			}
		}
		after, events := readUsage(), float64(r.sizes.cpuEvents)
		return []figure{
			{titleCPU, "µs", micros(after.cpu-before.cpu) / events},
			{titleCPU, "allocations", float64(after.mallocs-before.mallocs) / events},
		}, nil
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

// measureThroughput settles fresh events concurrently.
func (r *run) measureThroughput(ctx context.Context) error {
	for _, inFlight := range r.sizes.inFlight {
		column := fmt.Sprintf("%d in flight", inFlight)
		r.log("throughput with %s", column)
		err := r.inTurn(ctx, 0, func(f *fixture) ([]figure, error) {
			rate, err := f.throughput(ctx, inFlight)
			return []figure{{titleThroughput, column, rate}}, err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", column, err)
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
