package sim

import (
	"context"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

var (
	steps = weighted(stepChoice,
		14, "resume one", 4, "resume all to the end", 2, "resume all once", 1, "finish without faults", 3, "late commit",
		4, "push", 2, "push all", 2, "publish", 1, "push and finish", 1, "push twice at once", 1, "push any message",
		1, "fail until dead-lettered", 1, "seek", 1, "redrive", 1, "disconnect", 1, "expire receipts",
		4, "advance", 4, "reconcile at the next due time", 3, "reconcile at several due times", 2, "advance to about the next due time",
		1, "advance to about the resend limit", 2, "ask about the resend limit",
		2, "reconcile", 1, "reconcile twice", 1, "crash", 1, "start an instance", 1, "stop an instance", 1, "set a clock",
	)
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
		w.step()
		w.oracle.check()
		if w.check != nil {
			w.check(w)
		}
	})
	w.finishAll()
}

func (w *world) step() {
	step := draw(w, steps)
	switch step {
	case "resume one":
		if len(w.calls) > 0 {
			w.resume(pick(w, parkedCall, w.calls))
		}
	case "resume all once":
		w.resumeAllOnce()
	case "resume all to the end":
		w.resumeAll()
	case "finish without faults":
		w.finish()
	case "late commit":
		w.lateCommit()
	case "expire receipts":
		w.expireReceipts()
	case "reconcile":
		w.reconcile(w.pickInstance())
	case "reconcile twice":
		w.reconcile(w.pickInstance())
		w.reconcile(w.pickInstance())
	case "crash", "start an instance", "stop an instance", "set a clock":
		w.instanceStep(step)
	case "advance", "reconcile at the next due time", "reconcile at several due times",
		"advance to about the next due time", "advance to about the resend limit", "ask about the resend limit":
		w.timeStep(step)
	default:
		w.pubsubStep(step)
	}
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

func (w *world) pubsubStep(step string) {
	switch step {
	case "publish":
		w.publish()
	case "push":
		w.push(w.pickWaiting(), w.pickInstance())
	case "push and finish":
		w.push(w.pickWaiting(), w.pickInstance())
		w.finish()
	case "push twice at once":
		m := w.pickWaiting()
		w.push(m, w.pickInstance())
		w.push(m, w.pickInstance())
	case "push all":
		for _, m := range w.pubsub.Waiting(time.Now()) {
			w.push(m, w.pickInstance())
		}
	case "push any message": // acknowledged ones too
		if len(w.pubsub.Messages) > 0 {
			w.push(pick(w, aMessage, w.pubsub.Messages), w.pickInstance())
		}
	case "fail until dead-lettered":
		w.failUntilDead()
	case "seek":
		w.seek()
	case "redrive":
		if len(w.pubsub.DeadLetters) > 0 {
			w.redrive(pick(w, aDeadLetter, w.pubsub.DeadLetters))
		}
	case "disconnect":
		w.disconnect()
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
		w.stop(w.pickInstance())
	case "set a clock":
		p := w.pickInstance()
		p.setClock(draw(w, newClockOffsets))
		w.tell("the clock offset of %s is set to %v", p, p.clockOffset())
		w.seen["clock set"]++
	}
}

func (w *world) timeStep(step string) {
	switch step {
	case "advance":
		w.advanceBy(draw(w, durations))
	case "reconcile at the next due time":
		w.advanceToNextDue(0)
		w.reconcile(w.pickInstance())
	case "reconcile at several due times":
		for range draw(w, rounds) {
			if !w.advanceToNextDue(0) {
				break
			}
			w.reconcile(w.pickInstance())
			w.resumeAll()
		}
	case "advance to about the next due time": // or about the end of a lease
		if due := w.nextDue(); !due.IsZero() {
			w.advanceBy(max(0, time.Until(due)+draw(w, distances)))
		}
	case "advance to about the resend limit":
		w.advanceToAboutResendLimit()
	case "ask about the resend limit":
		w.advanceToAboutResendLimit()
		w.reconcile(w.pickInstance())
		for range 3 { // until the status request is on its way
			w.resumeAllOnce()
		}
		w.advanceBy(draw(w, shortDurations))
		w.resumeAll()
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
			w.seen["reconciled"]++
			if err == nil && run.Failed == 0 && run.Left == 0 {
				w.seen["reconciled without failures"]++
			}
		}
	})
}

// expireReceipts deletes the receipts with an expiry time, as the row deletion policy
// does.
func (w *world) expireReceipts() {
	w.tell("receipts expire")
	for _, id := range w.oracle.ids {
		if r := w.oracle.rows(id).Receipt(id); r != nil && r.ExpireFrom != nil {
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
