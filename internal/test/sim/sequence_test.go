package sim

import (
	"context"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

type step = row[func(*world)]

// steps are the steps of a sequence.
var steps = table(stepChoice,
	step{14, "resume one", func(w *world) {
		if len(w.calls) > 0 {
			w.resume(pick(w, parkedCall, w.calls))
		}
	}},
	step{4, "resume all to the end", (*world).resumeAll},
	step{2, "resume all once", (*world).resumeAllOnce},
	step{1, "finish without faults", (*world).finish},
	step{3, "late commit", (*world).lateCommit},
	step{4, "push", func(w *world) { w.push(w.pickWaiting(), w.pickInstance()) }},
	step{2, "push all", func(w *world) {
		for _, m := range w.pubsub.Waiting(time.Now()) {
			w.push(m, w.pickInstance())
		}
	}},
	step{2, "publish", func(w *world) { w.publish() }},
	step{1, "push and finish", func(w *world) {
		w.push(w.pickWaiting(), w.pickInstance())
		w.finish()
	}},
	step{1, "push twice at once", func(w *world) {
		m := w.pickWaiting()
		w.push(m, w.pickInstance())
		w.push(m, w.pickInstance())
	}},
	step{1, "push any message", func(w *world) { // acknowledged ones too
		if len(w.pubsub.Messages) > 0 {
			w.push(pick(w, aMessage, w.pubsub.Messages), w.pickInstance())
		}
	}},
	step{1, "fail until dead-lettered", (*world).failUntilDead},
	step{1, "seek", (*world).seek},
	step{1, "redrive", func(w *world) {
		if len(w.pubsub.DeadLetters) > 0 {
			w.redrive(pick(w, aDeadLetter, w.pubsub.DeadLetters))
		}
	}},
	step{1, "disconnect", (*world).disconnect},
	step{1, "expire receipts", (*world).expireReceipts},
	step{4, "advance", func(w *world) { w.advanceBy(draw(w, durations)) }},
	step{4, "reconcile at the next due time", func(w *world) {
		w.advanceToNextDue(0)
		w.reconcile(w.pickInstance())
	}},
	step{3, "reconcile at several due times", func(w *world) {
		for n := draw(w, rounds); n > 0 && w.advanceToNextDue(0); n-- {
			w.reconcile(w.pickInstance())
			w.resumeAll()
		}
	}},
	step{2, "advance to about the next due time", func(w *world) { // or about the end of a lease
		if due := w.nextDue(); !due.IsZero() {
			w.advanceBy(max(0, time.Until(due)+draw(w, distances)))
		}
	}},
	step{1, "advance to about the resend limit", (*world).advanceToAboutResendLimit},
	step{2, "ask about the resend limit", func(w *world) {
		w.advanceToAboutResendLimit()
		w.reconcile(w.pickInstance())
		for range 3 { // until the status request is on its way
			w.resumeAllOnce()
		}
		w.advanceBy(draw(w, shortDurations))
		w.resumeAll()
	}},
	step{2, "reconcile", func(w *world) { w.reconcile(w.pickInstance()) }},
	step{1, "reconcile twice", func(w *world) {
		w.reconcile(w.pickInstance())
		w.reconcile(w.pickInstance())
	}},
	step{1, "crash", (*world).crashOne},
	step{1, "start an instance", func(w *world) {
		if len(w.instances) < maxInstances {
			w.start()
		}
	}},
	step{1, "stop an instance", func(w *world) { w.stop(w.pickInstance()) }},
	step{1, "set a clock", func(w *world) {
		p := w.pickInstance()
		p.setClock(draw(w, newClockOffsets))
		w.tell("the clock offset of %s is set to %v", p, p.clockOffset())
		w.seen["clock set"]++
	}},
)

var (
	durations = oneOf("duration", time.Second, 5*time.Second, 9*time.Second, 15*time.Second, 21*time.Second, 45*time.Second, 49*time.Second, time.Minute, 3*time.Minute,
		15*time.Minute, time.Hour, 5*time.Hour, 19*time.Hour+12*time.Minute, 24*time.Hour, 3*24*time.Hour)
	rounds          = oneOf("rounds", 1, 3, 6, 10)
	shortDurations  = oneOf("short duration", 2*time.Second, 0, 9*time.Second)
	distances       = oneOf("before or after", time.Second, -time.Second, -11*time.Second, 6*time.Second, -21*time.Second)
	newClockOffsets = oneOf("new clock offset", 0, MaxSkew, -MaxSkew)
	replayAll       = oneOf("replay at the end", false, true, false, false)
)

const maxInstances = 4

// sequence runs the steps, and then everything to its end without faults.
func (w *world) sequence() {
	w.repeat(func() {
		draw(w, steps)(w)
		w.oracle.check()
		if w.check != nil {
			w.check(w)
		}
	})
	w.finishAll()
}

// resumeAllOnce resumes each parked call once.
func (w *world) resumeAllOnce() {
	for _, c := range slices.Clone(w.calls) {
		if !slices.Contains(w.calls, c) {
			continue // its instance has crashed
		}
		w.resume(c)
		w.oracle.check()
		if len(w.late) > 0 && draw(w, lateInBetween) {
			w.lateCommit()
			w.oracle.check()
		}
	}
}

// resumeAll resumes all calls, and the calls that follow them.
func (w *world) resumeAll() {
	for round := 0; round < 10 && len(w.calls) > 0; round++ {
		w.resumeAllOnce()
	}
}

func (w *world) advanceBy(d time.Duration) {
	w.tell("%v pass", d)
	w.advance(d)
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
			w.seen["runs"]++
			if err == nil && run.Failed == 0 && run.Left == 0 {
				w.seen["runs without failures"]++
			}
		}
	})
}

// expireReceipts deletes all receipts, as the row deletion policy does.
func (w *world) expireReceipts() {
	w.tell("receipts expire")
	for _, id := range w.oracle.ids {
		if w.oracle.rows(id).Receipt(id) != nil {
			w.store.DeleteReceipt(id)
			w.oracle.markChanged(id).expired = true
			w.seen["receipt expired"]++
		}
	}
}

func (w *world) nextDue() time.Time {
	backlog, _ := w.store.Backlog(context.Background()) // fails only after the context's end
	return backlog.NextDue
}

// advanceToNextDue advances at least by d, until an instruction is due by every clock.
func (w *world) advanceToNextDue(d time.Duration) bool {
	due := w.nextDue()
	if due.IsZero() {
		return false
	}
	w.advanceBy(max(d, time.Until(due)+MaxSkew, 0))
	return true
}

// advanceToAboutResendLimit advances to shortly before or after the next
// resend_not_after.
func (w *world) advanceToAboutResendLimit() {
	var until time.Duration
	for _, id := range w.oracle.ids {
		in := w.oracle.instruction(id)
		left := time.Until(in.ResendNotAfter)
		if in.State == transfer.StateUncertain && left > 0 && (until == 0 || left < until) {
			until = left
		}
	}
	if until > 0 {
		w.advanceBy(max(0, until+draw(w, distances)))
	}
}

// finishAll ends the sequence: no more faults, some late commits, all deliveries, and
// a reconciler until nothing is due.
func (w *world) finishAll() {
	w.answersArrive = true
	for _, c := range w.late {
		if draw(w, lateAtTheEnd) {
			w.commitLate(c)
		}
	}
	w.late = nil
	w.finish()
	w.deliverAll()
	honestSince := time.Now()
	if w.bankAtTheEnd != "honest" {
		honestSince = time.Time{}
	}
	w.reconcileAll(honestSince)
	w.advance(4 * 24 * time.Hour) // for late executions
	w.oracle.check()
	if draw(w, replayAll) && len(w.pubsub.Messages) > 0 {
		w.replay()
	}
	w.oracle.checkEnd(honestSince)
}

// soundInstance returns an instance with a bank that is not stopping.
func (w *world) soundInstance() *instance {
	for _, p := range w.instances {
		if !p.stopping && p.service.Banking != nil {
			return p
		}
	}
	p := w.start()
	if p.service.Banking == nil {
		w.stop(p)
		return w.soundInstance()
	}
	return p
}

// deliverAll pushes all messages and dead letters until they are acknowledged.
func (w *world) deliverAll() {
	for round := 0; ; round++ {
		if round > 100 {
			w.fail("after 100 rounds a message is still not acknowledged")
		}
		for len(w.pubsub.DeadLetters) > 0 {
			w.redrive(w.pubsub.DeadLetters[0])
		}
		waiting := w.pubsub.Waiting(time.Now())
		for _, m := range waiting {
			w.push(m, w.soundInstance())
		}
		w.finish()
		w.oracle.check()
		next, more := w.pubsub.NextWaiting()
		switch {
		case len(waiting) > 0:
		case more:
			w.advanceBy(max(time.Until(next), 0))
		case len(w.deliveries) > 0:
			w.advanceBy(time.Until(w.deliveries[0].push.Deadline) + time.Second)
		default:
			return
		}
	}
}

// reconcileAll runs a reconciler until nothing is due, or, without watchAll, until
// every instruction is decided.
func (w *world) reconcileAll(honestSince time.Time) {
	for run := 0; ; run++ {
		least := time.Duration(0)
		if time.Since(honestSince) > 24*time.Hour {
			least = 8 * time.Hour
		}
		if !w.watchAll && w.oracle.allDecided() || !w.advanceToNextDue(least) {
			return
		}
		if run > 1000 {
			w.fail("after 1000 runs an instruction is still due")
		}
		w.reconcile(w.soundInstance())
		for len(w.calls) > 0 {
			c := w.calls[0]
			if c.kind == "status" && w.bankAtTheEnd == "silent" {
				c.done, c.reading = true, transfer.StatusUnknown
			}
			if c.kind == "status" && w.bankAtTheEnd == "answers not found" {
				c.done, c.reading = true, transfer.StatusNotFound
			}
			w.finishOne(c)
		}
	}
}

// replay seeks back to the first message and delivers all messages again.
func (w *world) replay() {
	w.tell("the subscription seeks back to its first message")
	w.seen["replay of everything"]++
	before := w.oracle.effects()
	w.seekTo(w.pubsub.Messages[0].PublishTime)
	w.deliverAll()
	if after := w.oracle.effects(); after != before {
		w.fail("a replay has changed the ledger: before\n%s\nafter\n%s", before, after)
	}
}
