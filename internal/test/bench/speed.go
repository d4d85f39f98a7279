package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

func (l *lab) cpuSteps() int { return l.Sizes.Rounds * len(l.contenders) }

// measureCPU finds what a fresh event costs this process.
func (l *lab) measureCPU(ctx context.Context) (err error) {
	rs, closeAll, err := l.rings(ctx, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	used, allocated := series{}, series{}
	for range l.Sizes.Rounds {
		for _, r := range rs {
			runtime.GC()
			cost, err := l.cost(ctx, r)
			if err != nil {
				return err
			}
			used[r.Key] = append(used[r.Key], micros(cost.cpu)/float64(l.Sizes.CPUEvents))
			allocated[r.Key] = append(allocated[r.Key], float64(cost.mallocs)/float64(l.Sizes.CPUEvents))
			l.Progress.Step()
		}
	}
	for _, r := range rs {
		l.report.CPU = append(l.report.CPU, CPU{
			Contender: r.Key, MicrosEvent: summarise(used[r.Key]), Allocations: summarise(allocated[r.Key]), Ratio: used.against(r.Key),
		})
	}
	return nil
}

// usage is what this process has used.
type usage struct {
	cpu     time.Duration
	mallocs uint64
	at      time.Time
}

func readUsage() (usage, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return usage{}, fmt.Errorf("read the process's usage: %w", err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{cpu: time.Duration(u.Utime.Nano() + u.Stime.Nano()), mallocs: m.Mallocs, at: time.Now()}, nil
}

// idleTime is how long the process is watched while it does nothing.
const idleTime = 100 * time.Millisecond

// cost settles the events of a turn and returns what they used, less what the process
// uses in the same time with its connections open and nothing to do.
func (l *lab) cost(ctx context.Context, r *ring) (usage, error) {
	before, err := readUsage()
	if err != nil {
		return usage{}, err
	}
	time.Sleep(idleTime)
	idle, err := readUsage()
	if err != nil {
		return usage{}, err
	}
	for range l.Sizes.CPUEvents {
		if err := r.settle(ctx, l.message(), settle.OutcomeApplied); err != nil {
			return usage{}, err
		}
	}
	after, err := readUsage()
	if err != nil {
		return usage{}, err
	}
	share := float64(after.at.Sub(idle.at)) / float64(idle.at.Sub(before.at))
	after.cpu -= idle.cpu + time.Duration(float64(idle.cpu-before.cpu)*share)
	after.mallocs -= idle.mallocs
	return after, nil
}

func (l *lab) latencySteps() int { return len(l.distances()) * l.Sizes.Rounds * len(l.contenders) }

// distances are the round trips to measure: a real instance has its own.
func (l *lab) distances() []time.Duration {
	if l.emulator == nil {
		return []time.Duration{0}
	}
	return l.Sizes.RoundTrips
}

// measureLatency times single events, fresh ones and duplicates of them.
func (l *lab) measureLatency(ctx context.Context) error {
	for _, distance := range l.distances() {
		if err := l.latency(ctx, distance); err != nil {
			return fmt.Errorf("at a round trip of %v: %w", distance, err)
		}
	}
	return nil
}

func (l *lab) latency(ctx context.Context, distance time.Duration) (err error) {
	rs, closeAll, err := l.rings(ctx, distance)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	var e *echo
	if l.emulator != nil { // to a real instance the network is another one
		if e, err = newEcho(ctx, distance); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, e.close()) }()
	taken := map[string]series{EventFresh: {}, EventDuplicate: {}}
	for range l.Sizes.Rounds {
		if err := e.turn(l.Sizes.Events); err != nil {
			return err
		}
		for _, r := range rs {
			if err := l.turn(ctx, r, wireEvents[:2], taken, noLimit); err != nil {
				return err
			}
			l.Progress.Step()
		}
	}
	if e != nil {
		l.report.Network = append(l.report.Network, Network{
			RoundTripMillis: millis(distance), Millis: summarise(e.rounds), Fresh: ratios(taken[EventFresh][Baseline], e.rounds),
		})
	}
	for _, event := range []string{EventFresh, EventDuplicate} {
		for _, r := range rs {
			l.report.Latency = append(l.report.Latency, Latency{
				Contender: r.Key, Event: event, RoundTripMillis: millis(distance),
				Millis: summarise(taken[event][r.Key]), Ratio: taken[event].against(r.Key),
			})
		}
	}
	return nil
}

// noLimit is longer than any turn.
const noLimit = time.Hour

// turn settles fresh events one at a time, then those of further kinds with the same
// settlements, and adds their medians in milliseconds. Each kind ends with its events
// or, after one event at least, with the limit.
func (l *lab) turn(ctx context.Context, r *ring, kinds []wireEvent, taken map[string]series, limit time.Duration) error {
	numbers := make([]int, l.Sizes.Events)
	for i := range numbers {
		numbers[i] = l.number()
	}
	for _, event := range kinds {
		var times []float64
		for start := time.Now(); len(times) < len(numbers) && (len(times) == 0 || time.Since(start) < limit); {
			message := event.message(numbers[len(times)])
			began := time.Now()
			if err := r.settle(ctx, message, event.want); err != nil {
				return err
			}
			times = append(times, millis(time.Since(began)))
		}
		numbers = numbers[:len(times)] // only what is settled has duplicates
		taken[event.kind][r.Key] = append(taken[event.kind][r.Key], median(times))
	}
	return nil
}

func (l *lab) throughputSteps() int {
	return len(l.Sizes.InFlight) * l.Sizes.Rounds * len(l.contenders)
}

// measureThroughput settles fresh events, several at a time. Every turn has a
// database of its own, since the emulator slows down with every row; on a real
// instance, where a database takes long to create, every contender has one.
func (l *lab) measureThroughput(ctx context.Context) (err error) {
	kept := make([]*ring, len(l.contenders))
	if l.emulator == nil {
		var closeAll func() error
		if kept, closeAll, err = l.rings(ctx, 0); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
	}
	for _, inFlight := range l.Sizes.InFlight {
		rates := series{}
		for range l.Sizes.Rounds {
			for i, c := range l.contenders {
				rate, err := l.throughput(ctx, c, kept[i], inFlight)
				if err != nil {
					return fmt.Errorf("%d in flight: %w", inFlight, err)
				}
				rates[c.Key] = append(rates[c.Key], rate)
				l.Progress.Step()
			}
		}
		for _, c := range l.contenders {
			l.report.Throughput = append(l.report.Throughput, Throughput{
				Contender: c.Key, InFlight: inFlight, PerSecond: summarise(rates[c.Key]), Ratio: rates.against(c.Key),
			})
		}
	}
	return nil
}

// throughput is one turn, in r or, where that is nil, in a ring of its own.
func (l *lab) throughput(ctx context.Context, c contender.Contender, r *ring, inFlight int) (rate float64, err error) {
	if r == nil {
		if r, err = l.ring(ctx, c, 0, nil); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.close(ctx)) }()
	}
	if _, err := l.settleAtOnce(ctx, r, inFlight, 0); err != nil { // opens what is opened for so many
		return 0, err
	}
	began := time.Now()
	settled, err := l.settleAtOnce(ctx, r, inFlight, l.Sizes.Turn)
	return float64(settled) / time.Since(began).Seconds(), err
}

// settleAtOnce settles fresh events for a while, at least one for each of those in
// flight, and returns their number. Those in flight at the end are waited for.
func (l *lab) settleAtOnce(ctx context.Context, r *ring, inFlight int, while time.Duration) (int64, error) {
	var (
		wg      sync.WaitGroup
		settled atomic.Int64
		errs    = make([]error, inFlight)
		began   = time.Now()
	)
	for i := range inFlight {
		wg.Go(func() {
			for again := true; again && errs[i] == nil; again = time.Since(began) < while {
				errs[i] = r.settle(ctx, l.message(), settle.OutcomeApplied)
				settled.Add(1)
			}
		})
	}
	wg.Wait()
	return settled.Load(), errors.Join(errs...)
}
