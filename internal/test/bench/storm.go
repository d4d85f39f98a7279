package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

func (l *lab) stormSteps() int { return 2 * len(contender.Stormed()) }

// measureStorm delivers one settlement many times at once and again, in waves, and
// other settlements meanwhile.
func (l *lab) measureStorm(ctx context.Context) error {
	for _, c := range contender.Stormed() {
		if err := l.storm(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.Key, err)
		}
	}
	return nil
}

const (
	// stormCalm is how many events are timed without a storm, where that has as many.
	stormCalm = 200
	// stormTurns is how long a storm goes on at least, in turns.
	stormTurns = 3
	// wavePause is the least time from the beginning of one wave to that of the next.
	wavePause = 100 * time.Millisecond
)

func (l *lab) storm(ctx context.Context, c contender.Contender) (err error) {
	m := &meter{}
	r, err := l.ring(ctx, c, 0, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	result := Storm{Contender: c.Key, Name: c.Name, AtOnce: l.Sizes.Storm, Outcomes: map[string]int{}}
	var calm, during, waves []float64
	for range min(stormCalm, l.Sizes.Storm) {
		began := time.Now()
		if err := r.settle(ctx, l.message(), settle.OutcomeApplied); err != nil {
			return err
		}
		calm = append(calm, millis(time.Since(began)))
		time.Sleep(l.Sizes.Every)
	}
	l.Progress.Step()
	message, before := l.message(), m.read()
	for began := time.Now(); len(waves) == 0 || time.Since(began) < stormTurns*l.Sizes.Turn; {
		next := time.NewTimer(wavePause)
		w := &wave{lab: l, ring: r, over: make(chan struct{}), outcomes: result.Outcomes}
		if err := w.run(ctx, message); err != nil {
			return err
		}
		during, waves = append(during, w.others...), append(waves, w.millis)
		<-next.C
	}
	if result.Outcomes[settle.OutcomeApplied.String()] != 1 {
		return fmt.Errorf("a storm of one settlement ended with %v", result.Outcomes)
	}
	result.Calm, result.During, result.Wave, result.RPCs = quantiles(calm), quantiles(during), summarise(waves), m.read().since(before).rpcs
	l.Progress.Step()
	l.report.Storm = append(l.report.Storm, result)
	return nil
}

// wave is one settlement delivered many times at once, and others that come while it
// goes on.
type wave struct {
	lab    *lab
	ring   *ring
	over   chan struct{} // closed when all of the one settlement are answered
	millis float64       // until then

	mu       sync.Mutex
	outcomes map[string]int // of the one settlement
	others   []float64      // milliseconds of each
	failed   error
}

func (w *wave) run(ctx context.Context, message []byte) error {
	began := time.Now()
	var same, others sync.WaitGroup
	for range w.lab.Sizes.Storm {
		same.Go(func() {
			outcome, err := w.ring.settler.Settle(ctx, message)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.failed = errors.Join(w.failed, err)
			w.outcomes[outcome.String()]++
		})
	}
	others.Go(func() { w.trickle(ctx, &others) })
	same.Wait()
	w.millis = millis(time.Since(began))
	close(w.over)
	others.Wait()
	return w.failed
}

// trickle settles another settlement behind the wave, and one now and then until the
// wave is over.
func (w *wave) trickle(ctx context.Context, others *sync.WaitGroup) {
	tick := time.NewTicker(w.lab.Sizes.Every)
	defer tick.Stop()
	for {
		others.Go(func() {
			began := time.Now()
			err := w.ring.settle(ctx, w.lab.message(), settle.OutcomeApplied)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.others, w.failed = append(w.others, millis(time.Since(began))), errors.Join(w.failed, err)
		})
		select {
		case <-w.over:
			return
		case <-tick.C:
		}
	}
}

func quantiles(times []float64) Quantiles {
	sorted := slices.Sorted(slices.Values(times))
	return Quantiles{Events: len(sorted), P50: quantile(sorted, 0.5), P99: quantile(sorted, 0.99), Max: sorted[len(sorted)-1]}
}
