package sim

import (
	"context"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// What happens next.
var (
	steps = weighted(stepChoice,
		14, "go on", 4, "go on to the end", 2, "go on with all", 1, "finish", 3, "late commit",
		4, "push", 2, "push all", 2, "publish", 1, "push and finish", 1, "push twice at once", 1, "push what is acknowledged",
		1, "fail until dead-lettered", 1, "seek", 1, "redrive", 1, "leave", 1, "expire",
		4, "pass", 4, "wait for the next", 3, "wait for several", 2, "pass to near the next", 1, "pass to near the last send", 2, "ask around the last send",
		2, "reconcile", 1, "reconcile twice", 1, "crash", 1, "start an instance", 1, "stop an instance", 1, "set a clock",
	)
	passes = oneOf("time", time.Second, 5*time.Second, 9*time.Second, 15*time.Second, 21*time.Second, 45*time.Second, 49*time.Second, time.Minute, 3*time.Minute,
		15*time.Minute, time.Hour, 5*time.Hour, 19*time.Hour+12*time.Minute, 24*time.Hour, 3*24*time.Hour)
	rounds     = oneOf("how many", 1, 3, 6, 10)
	shortTimes = oneOf("meanwhile", 2*time.Second, 0, 9*time.Second)
	nears      = oneOf("before or after", time.Second, -time.Second, -11*time.Second, 6*time.Second, -21*time.Second)
	newSkews   = oneOf("the clock is set to", 0, MaxSkew, -MaxSkew)
	replayAll  = oneOf("everything is sought back in the end", false, true, false, false)
)

const maxInstances = 4

// sequence makes the steps and then lets everything come to its end.
func (w *world) sequence() {
	w.repeat(func() {
		w.step()
		w.oracle.check()
		if w.also != nil {
			w.also(w)
		}
	})
	w.finishAll()
}

func (w *world) step() {
	step := draw(w, steps)
	switch step {
	case "go on":
		if len(w.calls) > 0 {
			w.goOn(pick(w, aCall, w.calls))
		}
	case "go on with all":
		w.goOnWithAll()
	case "go on to the end":
		w.goOnToTheEnd()
	case "finish":
		w.finish()
	case "publish":
		w.publish()
	case "push", "push and finish", "push twice at once", "push all", "push what is acknowledged", "fail until dead-lettered", "seek", "redrive", "leave":
		w.pubsubStep(step)
	case "reconcile":
		w.reconcile(w.anInstance())
	case "reconcile twice":
		w.reconcile(w.anInstance())
		w.reconcile(w.anInstance())
	case "crash", "start an instance", "stop an instance", "set a clock":
		w.instanceStep(step)
	case "late commit":
		w.lateCommit()
	case "expire":
		w.expire()
	default:
		w.timeStep(step)
	}
}

// goOnWithAll lets each parked call go on once.
func (w *world) goOnWithAll() {
	for _, c := range slices.Clone(w.calls) {
		if !slices.Contains(w.calls, c) {
			continue // the crash of an instance has taken it along
		}
		w.goOn(c)
		w.oracle.check()
		if len(w.late) > 0 && draw(w, lateBetween) {
			w.lateCommit()
			w.oracle.check()
		}
	}
}

// goOnToTheEnd lets all calls go on, and what follows from them.
func (w *world) goOnToTheEnd() {
	for round := 0; round < 10 && len(w.calls) > 0; round++ {
		w.goOnWithAll()
	}
}

func (w *world) pubsubStep(step string) {
	switch step {
	case "push":
		w.push(w.waiting(), w.anInstance())
	case "push and finish":
		w.push(w.waiting(), w.anInstance())
		w.finish()
	case "push twice at once":
		m := w.waiting()
		w.push(m, w.anInstance())
		w.push(m, w.anInstance())
	case "push all":
		for _, m := range w.pubsub.Waiting(time.Now()) {
			w.push(m, w.anInstance())
		}
	case "push what is acknowledged":
		if len(w.pubsub.Messages) > 0 {
			w.push(pick(w, aMessage, w.pubsub.Messages), w.anInstance())
		}
	case "fail until dead-lettered":
		w.failUntilDead()
	case "seek":
		w.seek()
	case "redrive":
		if len(w.pubsub.DeadLetters) > 0 {
			w.redrive(pick(w, aDeadLetter, w.pubsub.DeadLetters))
		}
	case "leave":
		w.leaveAll()
	}
}

func (w *world) instanceStep(step string) {
	switch step {
	case "crash":
		w.crashOne()
	case "start an instance":
		if len(w.instances) < maxInstances {
			w.start()
		}
	case "stop an instance":
		w.stop(w.anInstance())
	case "set a clock":
		p := w.anInstance()
		p.setClock(draw(w, newSkews))
		w.tell("the clock of %s is set: it is %s", p, ahead(p.skew()))
		w.seen["clock set"]++
	}
}

func (w *world) timeStep(step string) {
	switch step {
	case "wait for the next":
		w.passToNextDue(0)
		w.reconcile(w.anInstance())
	case "wait for several":
		for range draw(w, rounds) {
			if !w.passToNextDue(0) {
				break
			}
			w.reconcile(w.anInstance())
			w.goOnToTheEnd()
		}
	case "pass":
		w.passBy(draw(w, passes))
	case "pass to near the next":
		w.passToNearTheNext()
	case "pass to near the last send":
		w.passToNearTheLastSend()
	case "ask around the last send":
		w.passToNearTheLastSend()
		w.reconcile(w.anInstance())
		for range 3 { // to where the question is on its way
			w.goOnWithAll()
		}
		w.passBy(draw(w, shortTimes))
		w.goOnToTheEnd()
	}
}

func (w *world) passBy(d time.Duration) {
	w.tell("%v pass", d)
	w.pass(d)
}

func (w *world) reconcile(p *instance) {
	if p.stopping {
		return
	}
	w.tell("%s reconciles", p)
	w.launch(p, nil, func() func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		run, err := p.reconciler.Reconcile(ctx)
		return func() {
			w.seen["reconciled"]++
			if err == nil && run.Failed == 0 && run.Left == 0 {
				w.seen["reconciled whole"]++
			}
		}
	})
}

// expire deletes the receipts that may expire.
func (w *world) expire() {
	w.tell("the receipts that may expire are deleted")
	for _, id := range w.oracle.ids {
		if r := w.oracle.rows(id).Receipt(id); r != nil && r.ExpireFrom != nil {
			w.store.DeleteReceipt(id)
			w.oracle.expired(id)
			w.seen["receipt expired"]++
		}
	}
}

// passToNextDue passes the time to when the next instruction is due by every
// clock, and at least d.
func (w *world) passToNextDue(d time.Duration) (due bool) {
	backlog, err := w.store.Backlog(context.Background())
	if err != nil || backlog.NextDue.IsZero() {
		return false
	}
	w.passBy(max(d, time.Until(backlog.NextDue)+MaxSkew, 0))
	return true
}

// passToNearTheNext passes the time to shortly before or after the next
// instruction is due. Where one is being worked on, that is the end of its lease.
func (w *world) passToNearTheNext() {
	backlog, err := w.store.Backlog(context.Background())
	if err != nil || backlog.NextDue.IsZero() {
		return
	}
	w.passBy(max(0, time.Until(backlog.NextDue)+draw(w, nears)))
}

// passToNearTheLastSend passes the time to shortly before or after the first
// resend_not_after that is to come.
func (w *world) passToNearTheLastSend() {
	var until time.Duration
	for _, id := range w.oracle.ids {
		in := w.oracle.instruction(id)
		left := time.Until(in.ResendNotAfter)
		if in.State == transfer.StateUncertain && left > 0 && (until == 0 || left < until) {
			until = left
		}
	}
	if until > 0 {
		w.passBy(max(0, until+draw(w, nears)))
	}
}

// finishAll ends the sequence: the faults are over, late commits come or do not
// come, everything is delivered, and a reconciler runs until nothing is due.
func (w *world) finishAll() {
	w.calm = true
	for _, c := range w.late {
		if draw(w, commitsAtLast) {
			w.comesLate(c)
		}
	}
	w.late = nil
	w.finish()
	w.drain()
	honestSince := time.Now()
	if w.ending != "honest" {
		honestSince = time.Time{}
	}
	w.reconcileAll(honestSince)
	w.pass(4 * 24 * time.Hour) // whatever the bank still does
	w.oracle.check()
	if draw(w, replayAll) && len(w.pubsub.Messages) > 0 {
		w.replay()
	}
	w.oracle.atTheEnd(honestSince)
}

// sound returns an instance that is as it should be.
func (w *world) sound() *instance {
	for _, p := range w.instances {
		if !p.stopping && p.service.Banking != nil {
			return p
		}
	}
	p := w.start()
	if p.service.Banking == nil {
		w.stop(p)
		return w.sound()
	}
	return p
}

// drain pushes everything until it is acknowledged, and what is dead-lettered too.
func (w *world) drain() {
	for round := 0; ; round++ {
		if round > 100 {
			w.fail("after 100 rounds something is still not acknowledged")
		}
		for len(w.pubsub.DeadLetters) > 0 {
			w.redrive(w.pubsub.DeadLetters[0])
		}
		waiting := w.pubsub.Waiting(time.Now())
		for _, m := range waiting {
			w.push(m, w.sound())
		}
		w.finish()
		w.oracle.check()
		next, more := w.pubsub.NextWaiting()
		switch {
		case len(waiting) > 0:
		case more:
			w.passBy(max(time.Until(next), 0))
		case len(w.deliveries) > 0:
			w.passBy(time.Until(w.deliveries[0].push.Deadline) + time.Second)
		default:
			return
		}
	}
}

// reconcileAll runs a reconciler until nothing is due, or until all that is due is
// to be watched for what the bank may still say.
func (w *world) reconcileAll(honestSince time.Time) {
	for run := 0; ; run++ {
		least := time.Duration(0)
		if time.Since(honestSince) > 24*time.Hour {
			least = 8 * time.Hour
		}
		if !w.watched && w.oracle.allDecided() || !w.passToNextDue(least) {
			return
		}
		if run > 1000 {
			w.fail("after 1000 runs something is still due")
		}
		w.reconcile(w.sound())
		for len(w.calls) > 0 {
			c := w.calls[0]
			if c.what == "status" && w.ending == "silent" {
				c.half, c.reading = true, transfer.StatusUnknown
			}
			if c.what == "status" && w.ending == "blind" {
				c.half, c.reading = true, transfer.StatusNotFound
			}
			w.finishOne(c)
		}
	}
}

// replay seeks back to the first message, and delivers everything again.
func (w *world) replay() {
	w.tell("the subscription is sought back to its first message")
	w.seen["replay of everything"]++
	before := w.oracle.effects()
	for _, m := range w.pubsub.Seek(w.pubsub.Messages[0].PublishTime) {
		w.oracle.sought(m)
	}
	w.drain()
	if after := w.oracle.effects(); after != before {
		w.fail("a replay of everything has changed the ledger: before\n%s\nafter\n%s", before, after)
	}
}
