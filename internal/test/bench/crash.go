package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/link"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

func (l *lab) crashSteps() int { return l.Sizes.Kills * len(l.contenders) }

// measureCrashes kills processes of each contender at every step of a delivery in
// turn, delivers their messages again to a process that goes on, and looks at the
// ledger. Contenders work side by side here: nothing is timed, and each has a database
// of its own.
func (l *lab) measureCrashes(ctx context.Context) error {
	var (
		wg      sync.WaitGroup
		results = make([]Crashes, len(l.contenders))
		errs    = make([]error, len(l.contenders))
		slots   = make(chan struct{}, runtime.NumCPU())
	)
	for i, c := range l.contenders {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i], errs[i] = l.crashes(ctx, c)
		})
	}
	wg.Wait()
	l.report.Crashes = results
	return errors.Join(errs...)
}

func (l *lab) crashes(ctx context.Context, c contender.Contender) (result Crashes, err error) {
	a, err := l.arena(ctx, c)
	if err != nil {
		return Crashes{}, err
	}
	defer func() { err = errors.Join(err, a.drop(ctx)) }()
	result = Crashes{Contender: c.Key, Kills: l.Sizes.Kills, Points: map[string]int{}}
	steps, err := l.victim(ctx, a, contender.Message(0), -1, nil)
	if err != nil {
		return Crashes{}, err
	}
	if steps == 0 {
		return Crashes{}, fmt.Errorf("%s: a delivery without a step to be killed at", c.Key)
	}
	// Every step equally often, in an order that the seed draws.
	points := make([]int, result.Kills)
	for i := range points {
		points[i] = i % steps
	}
	rand.New(rand.NewPCG(l.Seed, uint64(len(c.Key)))).Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	settler, err := a.open(ctx)
	if err != nil {
		return Crashes{}, err
	}
	defer settler.Close()
	for i, point := range points {
		// The emulator keeps a dead process's transaction until another one comes: the next
		// process would begin with steps of its own to get past it.
		if _, err := settler.Settle(ctx, l.message()); err != nil {
			return Crashes{}, fmt.Errorf("%s: clear up before kill %d: %w", c.Key, i+1, err)
		}
		if _, err := l.victim(ctx, a, contender.Message(1+i), point, result.Points); err != nil {
			return Crashes{}, fmt.Errorf("%s: kill %d at step %d: %w", c.Key, i+1, point, err)
		}
		l.Progress.Step()
	}
	if err := l.deliverAgain(ctx, a, &result); err != nil {
		return Crashes{}, fmt.Errorf("%s: deliver again: %w", c.Key, err)
	}
	return result, l.takeStock(ctx, a, &result)
}

// victim lets a process of its own settle a message, and kills it at a step, counted
// from 0; below zero: never. met counts the step by its name. It returns the number of
// steps that there were.
func (l *lab) victim(ctx context.Context, a *arena, message []byte, point int, met map[string]int) (steps int, err error) {
	w := &watch{point: -1}
	config, closeProxy, err := l.watched(ctx, a, w)
	if err != nil {
		return 0, err
	}
	defer closeProxy()
	p, err := l.startChild(ctx, config)
	if err != nil {
		return 0, err
	}
	w.arm(p, point)
	answer := p.ask(message)
	steps = int(w.seen.Load()) // not those of taking leave
	if point >= 0 {
		p.kill() // where the delivery had fewer steps than that
	}
	_ = p.wait() // killed, mostly
	switch {
	case point < 0 && answer != settle.OutcomeApplied.String():
		return 0, fmt.Errorf("%s: a process that is not killed answers %q", a.Key, answer)
	case point >= 0 && answer != "":
		return 0, fmt.Errorf("the process was to be killed and answered %q", answer)
	}
	if met != nil {
		met[w.killedAt]++
	}
	return steps, nil
}

// watched is what leads a child through a proxy that watches it.
func (l *lab) watched(ctx context.Context, a *arena, w *watch) (config ChildConfig, closeProxy func(), err error) {
	place, err := a.place("", nil)
	if err != nil {
		return ChildConfig{}, nil, err
	}
	config = ChildConfig{Contender: a.Key, Database: place.Database}
	if a.System == contender.Postgres {
		proxy, err := link.Start(ctx, a.upstream(), 0, func() bool { return w.step("turn %d") })
		if err != nil {
			return ChildConfig{}, nil, err
		}
		if place, err = a.place(proxy.Addr, nil); err != nil {
			return ChildConfig{}, nil, err
		}
		config.Database = place.Database
		return config, proxy.Close, nil
	}
	proxy, err := faultproxy.Start(ctx, a.upstream(), func(method string, at faultproxy.Stage) bool {
		if strings.HasSuffix(method, "CreateSession") {
			return true
		}
		return w.step(stageName(at) + " " + method)
	})
	if err != nil {
		return ChildConfig{}, nil, err
	}
	config.Spanner = proxy.Addr
	return config, func() { _ = proxy.Close() }, nil // an error loses nothing
}

func stageName(at faultproxy.Stage) string {
	if at == faultproxy.Requested {
		return "before"
	}
	return "after"
}

// watch counts the steps of a process, and kills it at one of them.
type watch struct {
	seen atomic.Int64

	mu       sync.Mutex
	process  *child // nil: nothing counts yet
	point    int
	killedAt string
}

func (w *watch) arm(p *child, point int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process, w.point = p, point
}

// step is called at each step, before it is passed on. %d in its name is its number.
func (w *watch) step(name string) (pass bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.process == nil:
		return true
	case w.killedAt != "":
		return false // the last words of a process that is killed
	}
	n := int(w.seen.Add(1))
	if n-1 != w.point {
		return true
	}
	w.killedAt = strings.ReplaceAll(name, "%d", strconv.Itoa(n))
	w.process.kill()
	return false
}

// deliverAgain delivers what was never answered to a process that is not killed, and
// what that refuses as in progress to one for which the record has expired.
func (l *lab) deliverAgain(ctx context.Context, a *arena, result *Crashes) error {
	place, err := a.place("", nil)
	if err != nil {
		return err
	}
	config := ChildConfig{Contender: a.Key, Database: place.Database}
	if a.System == contender.Spanner {
		config.Spanner = a.upstream()
	}
	var messages [][]byte
	for i := range result.Kills {
		messages = append(messages, contender.Message(1+i))
	}
	left, err := l.deliver(ctx, config, messages)
	if err != nil {
		return err
	}
	result.Waited = len(left)
	if len(left) == 0 {
		return nil
	}
	config.Ahead = 2 * contender.InProgressExpiry
	if left, err = l.deliver(ctx, config, left); err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%d messages are in progress for ever", len(left))
	}
	return nil
}

// deliver lets a fresh process settle messages, and returns those that it finds in
// progress.
func (l *lab) deliver(ctx context.Context, config ChildConfig, messages [][]byte) (left [][]byte, err error) {
	p, err := l.startChild(ctx, config)
	if err != nil {
		return nil, err
	}
	for _, message := range messages {
		switch answer := p.ask(message); {
		case answer == settle.OutcomeApplied.String(), answer == settle.OutcomeDuplicate.String():
		case strings.Contains(answer, contender.ErrInProgress.Error()):
			left = append(left, message)
		default:
			p.kill()
			return nil, errors.Join(fmt.Errorf("answer %q", answer), p.wait())
		}
	}
	return left, p.wait()
}

// takeStock counts what is left of the kills.
func (l *lab) takeStock(ctx context.Context, a *arena, result *Crashes) error {
	place, err := a.place("", nil)
	if err != nil {
		return err
	}
	movements, err := a.Movements(ctx, place)
	if err != nil {
		return err
	}
	for i := range result.Kills {
		switch movements[contender.SettlementID(1+i)] {
		case 0:
			result.Lost++
		case 1:
			result.Correct++
		default:
			result.Doubled++
		}
	}
	return nil
}
