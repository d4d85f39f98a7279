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

// world is everything that a sequence acts on.
type world struct {
	*tape

	store     *memstore.Store
	bank      *Bank
	pubsub    *PubSub
	policy    transfer.Policy
	instances []*instance // that live
	lives     int
	producer  producer

	calls      []*call     // parked
	late       []*call     // commits whose caller is gone, or was told that they failed
	network    []arrival   // requests on their way to the bank
	deliveries []*delivery // under way
	habit      string      // what becomes of sends often
	mood       string      // what the bank often makes of transfers
	ending     string      // how the bank is after the faults
	watched    bool        // decided instructions are watched for as long as they are due
	// storeIsSound leaves the faults to the others: what is behind a question after a
	// question is hardly reached when every other commit fails.
	storeIsSound bool
	calm         bool // no answer to Pub/Sub is lost
	oracle       *oracle
	seen         map[string]int // what has happened, for the test's own check

	ids atomic.Int64

	mu       sync.Mutex
	arrived  []*call    // parked since the last look
	ended    []activity // since the last look
	panicked string
}

// arrival is a request on its way to the bank.
type arrival struct {
	at   time.Time
	id   string
	key  uuid.UUID
	fate Fate
}

// What differs between worlds.
var (
	lifetimes   = oneOf("the bank remembers a key for", 24*time.Hour, 30*time.Minute, 2*time.Hour, 14*24*time.Hour)
	lags        = oneOf("the bank shows a transfer after", 0, 5*time.Second, time.Minute, 10*time.Minute)
	replays     = weighted("the bank answers a key that it knows with", 1, "its transfer", 1, "what proves nothing")
	habits      = weighted("habit of the bank", 8, "none", 2, "arrives, the answer is damaged", 1, "is put off", 1, "is refused", 1, "is lost", 1, "is held", 1, "is not written", 1, "arrives late")
	moods       = weighted("mood of the bank", 5, "none", 3, "executes unseen", 1, "executes late", 1, "rejects", 1, "lies")
	stores      = weighted("the store is", 1, "sound", 1, "faulty")
	watches     = oneOf("everything is watched to the end", true, false, false)
	endings     = weighted("the bank in the end", 6, "honest", 1, "silent", 1, "blind")
	ackTimes    = oneOf("ack deadline", 2*time.Minute, 10*time.Minute, 10*time.Second)
	moreAtFirst = oneOf("more instances at first", 1, 0, 2)
)

// begin draws what the world is like.
func (w *world) begin() {
	w.store = memstore.New(time.Now)
	w.oracle = newOracle(w)
	lifetime := draw(w, lifetimes)
	w.bank = NewBank(lifetime)
	w.policy = transfer.Policy{
		KeyLifetime: lifetime, VisibilityLag: draw(w, lags),
		SendTimeout: 20 * time.Second, StatusTimeout: 10 * time.Second,
	}
	w.bank.Replays = draw(w, replays) == "its transfer"
	w.habit, w.mood = draw(w, habits), draw(w, moods)
	w.storeIsSound = draw(w, stores) == "sound"
	w.ending, w.watched = draw(w, endings), draw(w, watches)
	w.pubsub = &PubSub{AckDeadline: draw(w, ackTimes), MaxAttempts: 5, MinBackoff: 10 * time.Second, MaxBackoff: 10 * time.Minute}
	w.tell("the bank remembers a key for %v and shows a transfer after %v; Pub/Sub waits %v for an answer",
		lifetime, w.policy.VisibilityLag, w.pubsub.AckDeadline)
	for range 1 + draw(w, moreAtFirst) {
		w.start()
	}
}

// fail ends the sequence.
func (w *world) fail(format string, args ...any) {
	panic(&broken{kind: format, text: fmt.Sprintf(format, args...)})
}

// settle waits until every activity is parked or over, and takes in what they
// have come to.
func (w *world) settle() {
	synctest.Wait()
	w.mu.Lock()
	arrived, ended, panicked := w.arrived, w.ended, w.panicked
	w.arrived, w.ended = nil, nil
	w.mu.Unlock()
	// Deliveries that were coalesced go on, or end, in the order of the Go scheduler.
	slices.SortStableFunc(arrived, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.by.n, b.by.n), cmp.Compare(a.id, b.id), compareDeliveries(a.delivery, b.delivery))
	})
	slices.SortStableFunc(ended, func(a, b activity) int {
		return cmp.Or(cmp.Compare(a.by.n, b.by.n), compareDeliveries(a.delivery, b.delivery))
	})
	w.calls = append(w.calls, arrived...)
	if panicked != "" {
		w.fail("panic: %s", panicked)
	}
	for _, c := range arrived {
		switch c.what {
		case "settle":
			c.delivery.asked = true
		case "send":
			w.oracle.sendBegins(c)
		case "change":
			h := w.oracle.of(c.id)
			c.record = h.answered == c.by
			h.answered = nil
		}
	}
	for _, a := range ended {
		a.by.active--
		a.look()
		w.stopped(a.by)
	}
}

// activity is a delivery or a run of the reconciler in one instance.
type activity struct {
	by       *instance
	delivery *delivery // nil for a run of the reconciler
	look     func()
}

// launch begins an activity of the instance and lets it run to where it parks.
// activity returns what is to be looked at when it is over; not where the
// instance has crashed.
func (w *world) launch(p *instance, d *delivery, run func() (look func())) {
	p.active++
	go func() {
		a := activity{by: p, delivery: d, look: func() {}}
		defer func() {
			r := recover()
			w.mu.Lock()
			defer w.mu.Unlock()
			if r != nil {
				w.panicked = fmt.Sprintf("%v\n%s", r, debug.Stack())
			}
			if !p.dead.Load() {
				w.ended = append(w.ended, a)
			}
		}()
		a.look = run()
	}()
	w.settle()
}

// answer lets a parked call go on.
func (w *world) answer(c *call) {
	if c.record && errors.Is(c.err, context.Canceled) {
		w.oracle.fail(c.id, "what the bank said is not recorded, because the caller has left")
	}
	w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
	switch c.what {
	case "send":
		w.oracle.sendEnds(c)
	case "status":
		w.oracle.asked(c)
	}
	if c.err != nil && c.delivery != nil && (c.what == "settle" || c.what == "quarantine") {
		c.delivery.harmed = true
	}
	close(c.answer)
	w.settle()
}

// stop lets an instance finish what it has begun, and begin nothing more.
func (w *world) stop(p *instance) {
	w.tell("%s is told to stop", p)
	w.seen["instance told to stop"]++
	p.stopping = true
	w.stopped(p)
}

func (w *world) stopped(p *instance) {
	if p.stopping && p.active == 0 && slices.Contains(w.instances, p) {
		w.tell("%s has stopped", p)
		w.seen["instance stopped"]++
		w.gone(p)
	}
}

func (w *world) gone(p *instance) {
	w.instances = slices.DeleteFunc(w.instances, func(o *instance) bool { return o == p })
}

// crash ends the life of an instance: what it has begun goes no further. Another
// one is started at once, or when one is needed.
func (w *world) crash(p *instance) {
	w.tell("%s crashes", p)
	for _, c := range w.calls {
		if c.by == p {
			w.seen["crash at "+c.what+map[bool]string{true: ", done"}[c.half]]++
		}
	}
	w.mu.Lock()
	p.dead.Store(true)
	w.mu.Unlock()
	w.gone(p)
	for _, c := range slices.Clone(w.calls) {
		if c.by != p {
			continue
		}
		w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
		if c.what == "send" {
			w.oracle.sendDies(c)
		}
		close(c.answer)
	}
	w.settle()
	for _, d := range slices.Clone(w.deliveries) {
		if d.by == p {
			w.unanswered(d, "the connection breaks")
		}
	}
	if draw(w, restarts) {
		w.start()
	}
}

var restarts = oneOf("another instance starts at once", true, false)

// abandon lets nothing outlive the sequence, whatever ended it.
func (w *world) abandon() {
	w.mu.Lock()
	parked := append(w.calls, w.arrived...)
	for _, p := range w.instances {
		p.dead.Store(true)
	}
	w.mu.Unlock()
	for _, c := range parked {
		close(c.answer)
	}
	synctest.Wait()
}

// pass lets time pass. Sends, questions and pushes end when their time is up, and
// requests arrive that are on their way.
func (w *world) pass(d time.Duration) {
	end := time.Now().Add(d)
	for {
		next, happens := end, func() {}
		earlier := func(at time.Time, what func()) {
			if at.Before(next) {
				next, happens = at, what
			}
		}
		for _, c := range w.calls {
			if !c.limit.IsZero() {
				earlier(c.limit, func() { w.timeOut(c) })
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
			earlier(d.push.Deadline, func() { w.unanswered(d, "the ack deadline passes") })
		}
		time.Sleep(time.Until(next))
		synctest.Wait() // for activities whose timers or contexts ended at the same instant
		if next.Equal(end) {
			return
		}
		happens()
		w.oracle.check()
	}
}
