package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

// world is the state of a sequence.
type world struct {
	*tape

	store     ledger
	bank      *Bank
	pubsub    *PubSub
	policy    transfer.Policy
	instances []*instance // running
	started   int         // number of instances ever
	producer  producer

	calls      []*call     // parked
	late       []*call     // pending commits whose caller is gone or got an error
	network    []arrival   // requests on their way to the bank
	deliveries []*delivery // pushes that wait for an answer
	running    []*delivery // deliveries that an instance processes

	// usualSend and usualProcessing have a higher probability than their choices give
	// them; "none" has no effect.
	usualSend, usualProcessing string
	bankAtTheEnd               string
	watchAll                   bool // decided instructions are watched until nothing is due
	// storeIsSound turns off the store's faults. With them, few sequences get past the
	// second status request.
	storeIsSound  bool
	answersArrive bool // no answer to Pub/Sub is lost
	oracle        *oracle
	seen          map[string]int // events by name, for tally

	ids atomic.Int64

	mu       sync.Mutex
	turns    []turn     // deliveries that ask for their turn
	parked   []*call    // since the last wait
	ended    []activity // since the last wait
	counted  []string   // events of activities since the last wait
	panicked string
}

// arrival is a request on its way to the bank.
type arrival struct {
	at         time.Time
	id         string
	key        uuid.UUID
	processing Processing
}

var (
	lifetimes    = oneOf("key lifetime", 24*time.Hour, 30*time.Minute, 2*time.Hour, 14*24*time.Hour)
	lags         = oneOf("visibility lag", 0, 5*time.Second, time.Minute, 10*time.Minute)
	knownAnswers = weighted("answer to a known key", 1, "the transfer", 1, "an error")
	usualSends   = weighted("usual send outcome",
		8, "none", 2, "arrives, the answer is damaged", 1, "is deferred", 1, "is refused", 1, "is lost", 1, "is held", 1, "is not written", 1, "arrives late")
	usualProcessings = weighted("usual processing", 5, "none", 3, "executes unseen", 1, "executes late", 1, "rejects", 1, "rejects, then executes")
	stores           = weighted("store", 1, "sound", 1, "faulty")
	watchAll         = oneOf("watch until nothing is due", true, false, false)
	banksAtTheEnd    = weighted("bank at the end", 6, "honest", 1, "silent", 1, "answers not found")
	ackDeadlines     = oneOf("ack deadline", 2*time.Minute, 10*time.Minute, 10*time.Second)
	moreInstances    = oneOf("more instances at the start", 1, 0, 2)
	replacements     = oneOf("replacement starts at once", true, false)
)

// begin draws the configuration.
func (w *world) begin() {
	w.store = memory{memstore.New(time.Now)}
	if w.breakStore != nil {
		w.store = w.breakStore(w.store)
	}
	w.oracle = newOracle(w)
	lifetime := draw(w, lifetimes)
	w.bank = NewBank(lifetime)
	w.policy = transfer.Policy{
		KeyLifetime: lifetime, VisibilityLag: draw(w, lags),
		SendTimeout: 20 * time.Second, StatusTimeout: 10 * time.Second,
	}
	w.bank.Replays = draw(w, knownAnswers) == "the transfer"
	w.usualSend, w.usualProcessing = draw(w, usualSends), draw(w, usualProcessings)
	w.storeIsSound = draw(w, stores) == "sound"
	w.bankAtTheEnd, w.watchAll = draw(w, banksAtTheEnd), draw(w, watchAll)
	w.pubsub = &PubSub{AckDeadline: draw(w, ackDeadlines), MaxAttempts: 5, MinBackoff: 10 * time.Second, MaxBackoff: 10 * time.Minute}
	w.tell("key lifetime %v, visibility lag %v, ack deadline %v", lifetime, w.policy.VisibilityLag, w.pubsub.AckDeadline)
	for range 1 + draw(w, moreInstances) {
		w.start()
	}
}

// fail ends the sequence.
func (w *world) fail(format string, args ...any) {
	panic(&broken{kind: format, text: fmt.Sprintf(format, args...)})
}

// wait waits until every activity is parked or has ended, and takes over their calls
// and results.
func (w *world) wait() {
	w.waitForTurns()
	w.mu.Lock()
	parked, ended, panicked := w.parked, w.ended, w.panicked
	for _, event := range w.counted {
		w.seen[event]++
	}
	w.parked, w.ended, w.counted = nil, nil, nil
	w.mu.Unlock()
	// The Go scheduler decides the order in which activities park and end. Sorting makes
	// the history independent of it.
	slices.SortStableFunc(parked, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.by.n, b.by.n), cmp.Compare(a.id, b.id), compareDeliveries(a.delivery, b.delivery))
	})
	slices.SortStableFunc(ended, func(a, b activity) int {
		return cmp.Or(cmp.Compare(a.by.n, b.by.n), compareDeliveries(a.delivery, b.delivery))
	})
	w.calls = append(w.calls, parked...)
	if panicked != "" {
		w.fail("panic: %s", panicked)
	}
	for _, c := range parked {
		switch c.kind {
		case "settle", "look":
			c.delivery.settling = true
		case "send":
			w.oracle.checkSend(c)
		case "change":
			h := w.oracle.history(c.id)
			c.recordsAnswer = h.answered == c.by
			h.answered = nil
		}
	}
	for _, a := range ended {
		a.by.active--
		w.running = slices.DeleteFunc(w.running, func(d *delivery) bool { return d == a.delivery })
		a.onEnd()
		w.removeStopped(a.by)
	}
}

// countLater counts an event of an activity.
func (w *world) countLater(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counted = append(w.counted, event)
}

// waitForTurns waits until every activity is blocked, and lets the deliveries that ask
// for their turn continue, one after another.
func (w *world) waitForTurns() {
	for {
		synctest.Wait()
		w.mu.Lock()
		if len(w.turns) == 0 {
			w.mu.Unlock()
			return
		}
		slices.SortStableFunc(w.turns, func(a, b turn) int { return compareDeliveries(a.delivery, b.delivery) })
		first := w.turns[0]
		w.turns = w.turns[1:]
		w.mu.Unlock()
		close(first.begins)
	}
}

// turn is a delivery that waits in turnContext.Err.
type turn struct {
	delivery *delivery
	begins   chan struct{}
}

// turnContext is the context of a delivery. Service checks its error each time a
// delivery begins or stops waiting for another one. Many wait for one; waitForTurns
// orders them; otherwise the Go scheduler would decide which of them calls the store.
type turnContext struct {
	context.Context
	w        *world
	delivery *delivery
}

// withoutTurns returns the context that a turnContext wraps: the sequence has no turn, and
// a call of the store is alone.
func withoutTurns(ctx context.Context) context.Context {
	if t, ok := ctx.(turnContext); ok {
		return t.Context
	}
	return ctx
}

// Err waits for the delivery's turn.
func (c turnContext) Err() error {
	t := turn{c.delivery, make(chan struct{})}
	c.w.mu.Lock()
	c.w.turns = append(c.w.turns, t)
	c.w.mu.Unlock()
	<-t.begins
	return c.Context.Err()
}

// activity is a delivery or a run of the reconciler in one instance.
type activity struct {
	by       *instance
	delivery *delivery // nil for a run of the reconciler
	onEnd    func()
}

// launch begins an activity of the instance and waits until it parks or ends. run
// returns the function to call at the end, unless the instance has crashed.
func (w *world) launch(p *instance, d *delivery, run func() (onEnd func())) {
	p.active++
	go func() {
		a := activity{by: p, delivery: d, onEnd: func() {}}
		defer func() {
			r := recover()
			w.mu.Lock()
			defer w.mu.Unlock()
			if r != nil {
				w.panicked = fmt.Sprintf("%v\n%s", r, debug.Stack())
			}
			if !p.crashed.Load() {
				w.ended = append(w.ended, a)
			}
		}()
		a.onEnd = run()
	}()
	w.wait()
}

// answer returns from a parked call.
func (w *world) answer(c *call) {
	if c.recordsAnswer && errors.Is(c.err, context.Canceled) {
		w.oracle.fail(c.id, "the bank's answer is not recorded, because the caller is gone")
	}
	w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
	switch c.kind {
	case "send":
		w.oracle.sendEnded(c)
	case "status":
		w.oracle.statusEnded(c)
	}
	if c.err != nil && c.delivery != nil {
		w.explainFailures(c.delivery)
	}
	close(c.answered)
	w.wait()
}

// explainFailures notes a fault that can make a delivery fail, and with it the deliveries
// that wait for the same payout in its instance.
func (w *world) explainFailures(d *delivery) {
	d.faulted = true
	for _, o := range w.running {
		if o.sharesWith(d) {
			o.faulted = true
		}
	}
}

// stop lets an instance finish its activities, and begin no others.
func (w *world) stop(p *instance) {
	w.tell("%s begins to stop", p)
	w.seen["instance begins to stop"]++
	p.stopping = true
	w.removeStopped(p)
}

func (w *world) removeStopped(p *instance) {
	if p.stopping && p.active == 0 && slices.Contains(w.instances, p) {
		w.tell("%s has stopped", p)
		w.seen["instance stopped"]++
		w.remove(p)
	}
}

func (w *world) remove(p *instance) {
	w.instances = slices.DeleteFunc(w.instances, func(o *instance) bool { return o == p })
}

// crash fails all calls of an instance. A replacement starts at once, or when a later
// step needs one.
func (w *world) crash(p *instance) {
	w.tell("%s crashes", p)
	for _, c := range w.calls {
		if c.by == p {
			w.seen["crash at "+c.kind+map[bool]string{true: ", done"}[c.done]]++
		}
	}
	w.mu.Lock()
	p.crashed.Store(true)
	w.mu.Unlock()
	w.remove(p)
	w.running = slices.DeleteFunc(w.running, func(d *delivery) bool { return d.by == p })
	for _, c := range slices.Clone(w.calls) {
		if c.by != p {
			continue
		}
		w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
		if c.kind == "send" {
			w.oracle.sendCrashed(c)
		}
		close(c.answered)
	}
	w.wait()
	for _, d := range slices.Clone(w.deliveries) {
		if d.by == p {
			w.failPush(d, "the connection breaks")
		}
	}
	if draw(w, replacements) {
		w.start()
	}
}

// close ends all goroutines of the sequence.
func (w *world) close() {
	w.mu.Lock()
	parked := append(w.calls, w.parked...)
	for _, p := range w.instances {
		p.crashed.Store(true)
	}
	w.mu.Unlock()
	for _, c := range parked {
		close(c.answered)
	}
	w.waitForTurns()
}

// advance advances the clock. On the way, requests and pushes reach their deadlines,
// and requests arrive at the bank.
func (w *world) advance(d time.Duration) {
	end := time.Now().Add(d)
	for {
		next, happens := end, func() {}
		earlier := func(at time.Time, event func()) {
			if at.Before(next) {
				next, happens = at, event
			}
		}
		for _, c := range w.calls {
			if !c.deadline.IsZero() {
				earlier(c.deadline, func() { w.timeOut(c) })
			}
		}
		for i, a := range w.network {
			earlier(a.at, func() {
				w.network = slices.Delete(w.network, i, i+1)
				w.tell("the request for %s arrives at the bank", a.id)
				w.take(a)
			})
		}
		for _, d := range w.deliveries {
			earlier(d.push.Deadline, func() { w.failPush(d, "the ack deadline passes") })
		}
		time.Sleep(time.Until(next))
		w.waitForTurns() // of activities whose timers or contexts end at the same instant
		if next.Equal(end) {
			return
		}
		happens()
		w.oracle.check()
	}
}
