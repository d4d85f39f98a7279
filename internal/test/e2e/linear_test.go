package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
	"github.com/settleonce/settleonce/internal/test/linear"
	"github.com/settleonce/settleonce/schema"
)

// What the test of killed processes counts beside the history's operations, and
// what has to happen in it.
const (
	killedBefore = "process killed, its Commit not sent"
	killedAfter  = "process killed, its Commit answered"
	killedApart  = "process killed at another RPC"
	lostAnswer   = "answer of a Commit lost"
	goneCaller   = "caller gone"
)

// TestKilledProcessesAreLinearizable delivers to several instances of the
// function, processes of their own, on an emulator that aborts transactions at
// random. They are killed at random: just before a Commit reaches Spanner, just
// after it was answered, and at other RPCs. What was in flight then has an unknown
// outcome and is delivered again, to whoever is there.
func TestKilledProcessesAreLinearizable(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64N(1 << 40)
	t.Logf("seed %d", seed)
	e, err := emulator.StartSpanner(t.Context(), emulator.WithFaultInjection())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	f := newFleet(t, e, rand.New(rand.NewPCG(seed, 0)).IntN)
	messages := rand.New(rand.NewPCG(seed, 1)).IntN
	h := linear.NewHistory(time.Now)
	f.run(t, h, linear.Workload{Name: "stl", Settlements: 80, Messages: 2, Workers: 6, Again: 3, IntN: messages})
	h.Verify(t)
	f.db.snapshot(t) // which says what is wrong with it

	count := h.Count()
	count.Add(f.counted)
	count.Report(t,
		linear.Delivered(settle.OutcomeApplied), linear.Delivered(settle.OutcomeDuplicate),
		linear.Delivered(settle.OutcomeConflict), linear.Delivered(settle.OutcomeUnknown),
		linear.Looks, linear.Concurrent, linear.Unseen, killedBefore, killedAfter, lostAnswer, goneCaller)
}

// fleet is several instances of the function on one database.
type fleet struct {
	db     database
	places []*place
	empty  chan *place // whose process was killed

	mu      sync.Mutex
	intN    func(n int) int
	counted linear.Tally
}

// newFleet returns a fleet that has not started yet.
func newFleet(t *testing.T, e *emulator.Spanner, intN func(n int) int) *fleet {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	name, err := e.CreateDatabase(t.Context(), "", statements)
	if err != nil {
		t.Fatal(err)
	}
	const places = 3
	f := &fleet{db: openDatabase(t, e, name), intN: intN, counted: linear.Tally{}, empty: make(chan *place, places)}
	for n := range places {
		p := &place{number: n + 1, occupied: make(chan struct{})}
		if p.proxy, err = faultproxy.Start(t.Context(), e.GRPC, f.strikes(p)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.proxy.Close() })
		f.places = append(f.places, p)
		f.empty <- p
	}
	return f
}

// run delivers the workload while processes are killed and replaced. Whenever one
// was killed it looks at what that has left.
func (f *fleet) run(t *testing.T, h *linear.History, w linear.Workload) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(t.Context(), h, f.deliver)
	}()
	look := func() (audit.Snapshot, error) { return audit.Read(t.Context(), f.db.client) }
	for running := true; running; {
		select {
		case p := <-f.empty:
			p.occupy(startChild(t, f.db.env(p.proxy.Addr)...))
		case <-done:
			running = false
		}
		if _, err := h.Look("looker", look); err != nil {
			t.Fatal(err)
		}
	}
}

// deliver delivers to a process.
func (f *fleet) deliver(ctx context.Context, m linear.Message) linear.Answer {
	p := f.places[f.draw(len(f.places))]
	process, life := p.process(ctx)
	if process == nil {
		return linear.Answer{Err: ctx.Err().Error()}
	}
	limit := time.Minute
	if f.draw(10) == 0 {
		limit = time.Duration(f.draw(30)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a := process.deliver(ctx, m.ID, m.Data())
	if ctx.Err() != nil {
		f.count(goneCaller)
	}
	answer := linear.Answer{By: fmt.Sprintf("instance %d, process %d", p.number, life), AppliedAt: a.AppliedAt, Fields: a.Fields}
	if answer.Outcome = outcomeOf(a); answer.Outcome == settle.OutcomeUnknown {
		answer.Err = fmt.Sprintf("%d %s", a.Status, a.Error)
	}
	return answer
}

// outcomeOf reads an answer.
func outcomeOf(a answer) settle.Outcome {
	for o := settle.OutcomeApplied; o <= settle.OutcomeQuarantined && a.Status == http.StatusOK; o++ {
		if o.String() == a.Outcome {
			return o
		}
	}
	return settle.OutcomeUnknown
}

// strikes decides at which RPCs of a place's process it is killed, and which
// answers it loses.
func (f *fleet) strikes(p *place) faultproxy.Hook {
	return func(method string, at faultproxy.Stage) bool {
		killed, oneOf := killedApart, 100
		switch {
		case method == "Commit" && at == faultproxy.Requested:
			killed, oneOf = killedBefore, 25
		case method == "Commit":
			killed, oneOf = killedAfter, 25
		}
		if f.draw(oneOf) == 0 && p.vacate() {
			f.count(killed)
			f.empty <- p
			return false
		}
		if killed == killedAfter && f.draw(10) == 0 {
			f.count(lostAnswer)
			return false
		}
		return true
	}
}

// draw draws a number from 0 to n-1.
func (f *fleet) draw(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.intN(n)
}

func (f *fleet) count(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counted[what]++
}

// place is where one process after another is an instance of the function, behind
// a proxy of its own.
type place struct {
	number int
	proxy  *faultproxy.Proxy

	mu       sync.Mutex
	current  *function     // nil while there is none
	occupied chan struct{} // closed when there is one
	lives    int
}

// process waits until there is a process, and returns it with its number; nil when
// ctx ends before.
func (p *place) process(ctx context.Context) (*function, int) {
	for {
		p.mu.Lock()
		current, lives, occupied := p.current, p.lives, p.occupied
		p.mu.Unlock()
		if current != nil {
			return current, lives
		}
		select {
		case <-occupied:
		case <-ctx.Done():
			return nil, 0
		}
	}
}

func (p *place) occupy(f *function) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current, p.lives = f, p.lives+1
	close(p.occupied)
}

// vacate kills the process; false means that there is none any more.
func (p *place) vacate() bool {
	p.mu.Lock()
	victim := p.current
	if victim != nil {
		p.current, p.occupied = nil, make(chan struct{})
	}
	p.mu.Unlock()
	if victim == nil {
		return false
	}
	victim.kill()
	return true
}
