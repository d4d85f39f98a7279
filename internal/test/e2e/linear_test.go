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

// The events that the fleet counts, besides those of the history.
const (
	killedBefore    = "process killed before its Commit arrived"
	killedAfter     = "process killed after its Commit"
	killedElsewhere = "process killed at another RPC"
	lostAnswer      = "answer of a Commit lost"
	goneCaller      = "caller left"
)

// TestKilledProcessesAreLinearizable delivers to several instances of the function, on an
// emulator that aborts transactions at random. The test kills processes at random: just
// before a Commit reaches Spanner, just after it was answered, and at other RPCs.
// Deliveries in flight then have an unknown outcome, and are redelivered to any instance.
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
	f.run(t, h, linear.Workload{Name: "stl", Settlements: 80, Messages: 2, Malformed: 20, Workers: 6, Again: 3, IntN: messages})
	h.Verify(t)
	f.db.snapshot(t) // checks the rows

	count := h.Count()
	count.Add(f.counted)
	count.Report(t,
		linear.Delivered(settle.OutcomeApplied), linear.Delivered(settle.OutcomeDuplicate),
		linear.Delivered(settle.OutcomeConflict), linear.Delivered(settle.OutcomeUnknown),
		linear.Delivered(settle.OutcomeQuarantined), linear.Known(settle.OutcomeConflict), linear.Known(settle.OutcomeQuarantined),
		linear.Redelivered(settle.OutcomeApplied), linear.Redelivered(settle.OutcomeDuplicate), linear.Redelivered(settle.OutcomeConflict),
		linear.Reads, linear.Concurrent, linear.Unanswered, killedBefore, killedAfter, lostAnswer, goneCaller)
}

// fleet is several instances of the function on one database.
type fleet struct {
	db     database
	slots  []*slot
	vacant chan *slot // slots whose process was killed

	mu      sync.Mutex
	intN    func(n int) int
	counted linear.Tally
}

// newFleet returns a fleet without processes.
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
	const slots = 3
	f := &fleet{db: openDatabase(t, e, name), intN: intN, counted: linear.Tally{}, vacant: make(chan *slot, slots)}
	for n := range slots {
		s := &slot{number: n + 1, occupied: make(chan struct{})}
		if s.proxy, err = faultproxy.Start(t.Context(), e.GRPC, f.faults(s)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.proxy.Close() })
		f.slots = append(f.slots, s)
		f.vacant <- s
	}
	return f
}

// run delivers the workload, and replaces killed processes. It reads the database after
// each replacement.
func (f *fleet) run(t *testing.T, h *linear.History, w linear.Workload) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(t.Context(), h, f.deliver)
	}()
	read := func() (audit.Snapshot, error) { return audit.Read(t.Context(), f.db.client) }
	for running := true; running; {
		select {
		case s := <-f.vacant:
			s.occupy(startFunction(t, f.db.env(s.proxy.Addr)...))
		case <-done:
			running = false
		}
		if _, err := h.Read("reader", read); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fleet) deliver(ctx context.Context, m linear.Message) linear.Answer {
	s := f.slots[f.draw(len(f.slots))]
	process, generation := s.process(ctx)
	if process == nil {
		return linear.Answer{Err: ctx.Err().Error()}
	}
	limit := time.Minute
	if f.draw(10) == 0 {
		limit = time.Duration(f.draw(30)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a := process.redeliver(ctx, m.ID, m.Data(), m.Attempt)
	if ctx.Err() != nil {
		f.count(goneCaller)
	}
	answer := linear.Answer{
		Server: fmt.Sprintf("instance %d, process %d", s.number, generation), AppliedAt: a.AppliedAt, Fields: a.Fields,
		Known: a.Known, Doubtful: true, // the proxy does not see whose answers it loses
	}
	if answer.Outcome = outcomeOf(a); answer.Outcome == settle.OutcomeUnknown {
		answer.Err = fmt.Sprintf("%d %s", a.Status, a.Error)
	}
	return answer
}

func outcomeOf(a answer) settle.Outcome {
	if a.Status != http.StatusOK {
		return settle.OutcomeUnknown
	}
	return settle.Outcome(a.Outcome)
}

// faults returns the hook that kills the slot's process, and drops answers, at random.
func (f *fleet) faults(s *slot) faultproxy.Hook {
	return func(method string, at faultproxy.Stage) bool {
		killed, oneOf := killedElsewhere, 100
		switch {
		case method == "Commit" && at == faultproxy.Requested:
			killed, oneOf = killedBefore, 25
		case method == "Commit":
			killed, oneOf = killedAfter, 25
		}
		if f.draw(oneOf) == 0 && s.kill() {
			f.count(killed)
			f.vacant <- s
			return false
		}
		if killed == killedAfter && f.draw(10) == 0 {
			f.count(lostAnswer)
			return false
		}
		return true
	}
}

// draw returns a random number from 0 to n-1.
func (f *fleet) draw(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.intN(n)
}

func (f *fleet) count(event string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counted[event]++
}

// slot runs one process after another as an instance of the function, behind one proxy.
type slot struct {
	number int
	proxy  *faultproxy.Proxy

	mu          sync.Mutex
	current     *function     // nil while the slot is vacant
	occupied    chan struct{} // closed while it is not
	generations int
}

// process waits until the slot has a process, and returns it with its number. When ctx
// ends before, it returns nil.
func (s *slot) process(ctx context.Context) (*function, int) {
	for {
		s.mu.Lock()
		current, generation, occupied := s.current, s.generations, s.occupied
		s.mu.Unlock()
		if current != nil {
			return current, generation
		}
		select {
		case <-occupied:
		case <-ctx.Done():
			return nil, 0
		}
	}
}

func (s *slot) occupy(f *function) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.generations = f, s.generations+1
	close(s.occupied)
}

// kill kills the process. It returns false if another RPC has killed it.
func (s *slot) kill() bool {
	s.mu.Lock()
	current := s.current
	if current != nil {
		s.current, s.occupied = nil, make(chan struct{})
	}
	s.mu.Unlock()
	if current == nil {
		return false
	}
	current.kill()
	return true
}
