package sim

import (
	"context"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
)

var (
	parkedCall     = oneOfMany("call", (*call).name)
	pendingLate    = oneOfMany("late commit", (*call).name)
	commitOutcomes = weighted("commit outcome",
		18, "commits", 3, "commits, answer pending", 2, "is lost", 2, "commits, the answer is lost", 2, "commits later", 2, "is aborted",
		1, "commits, and the instance crashes", 1, "is lost, and the instance crashes", 2, "meets a dead connection",
	)
	deadConnections = oneOf("commit over a dead connection", "is lost", "commits", "commits later")
	commitAnswers   = weighted("commit answer",
		4, "is answered", 2, "is run again", 1, "is not answered", 1, "is lost, and the instance crashes")
	readOutcomes     = weighted("read outcome", 18, "is answered", 2, "is lost", 1, "is read, answer pending", 1, "meets a dead connection")
	commitAfterCrash = oneOf("pending commit happens after the crash", true, false)
	lateInBetween    = oneOf("late commit in between", false, false, false, true)
	lateAtTheEnd     = oneOf("late commit at the end", true, false)
)

// resume resumes a parked call with an outcome that it draws.
func (w *world) resume(c *call) {
	switch {
	case c.kind == "send":
		w.resumeSend(c)
	case c.kind == "status":
		w.resumeStatus(c)
	case c.hung:
		w.waitForDeadline(c)
	case w.storeIsSound:
		c.err = c.op(c.ctx)
		w.tellOutcome(c)
		w.answer(c)
	case c.reads():
		w.resumeRead(c)
	default:
		w.resumeCommit(c)
	}
}

func (w *world) resumeRead(c *call) {
	outcome := "is answered"
	if !c.done {
		outcome = draw(w, readOutcomes)
	}
	switch {
	case c.done: // with the rows of then
	case outcome == "is lost":
		c.err = errLost
	case outcome == "meets a dead connection":
		w.tell("%s %s", c, outcome)
		w.hang(c, errLost)
		return
	default:
		c.err = c.op(c.ctx)
	}
	if outcome == "is read, answer pending" {
		w.tell("%s %s", c, outcome)
		c.done = true
		return
	}
	w.tellOutcome(c)
	w.answer(c)
}

// hang lets a call wait for the limit of its attempt. Then it fails with err.
func (w *world) hang(c *call, err error) {
	w.seen["dead connection at "+c.kind]++
	c.hung, c.err, c.deadline = true, err, time.Now().Add(attemptTimeout)
	if at, limited := c.ctx.Deadline(); limited && at.Before(c.deadline) {
		c.deadline = at
	}
}

// waitForDeadline lets the time pass at which a call over a dead connection ends.
func (w *world) waitForDeadline(c *call) { w.advance(max(time.Until(c.deadline), 0) + time.Second) }

func (w *world) drawOutcome(c *call, g choice[string]) string {
	outcome := draw(w, g)
	w.tell("%s %s", c, outcome)
	return outcome
}

func (w *world) resumeCommit(c *call) {
	if c.done {
		w.answerCommit(c)
		return
	}
	switch w.drawOutcome(c, commitOutcomes) {
	case "commits, and the instance crashes":
		_, c.done = c.op(c.ctx), true
		w.crash(c.by)
		return
	case "is lost, and the instance crashes":
		w.crash(c.by)
		return
	case "commits":
		c.err = c.op(c.ctx)
	case "commits, answer pending":
		c.err, c.done = c.op(c.ctx), true
		return
	case "is aborted": // the store runs it again
		if c.abort != nil {
			c.abort(c.ctx)
		}
		return
	case "is lost":
		c.err = errLost
	case "commits, the answer is lost":
		_ = c.op(c.ctx)
		c.err = settle.ErrOutcomeUnknown
	case "commits later":
		w.late = append(w.late, c)
		c.err = settle.ErrOutcomeUnknown
	case "meets a dead connection":
		w.commitOverDeadConnection(c)
		return
	}
	w.answer(c)
}

// commitOverDeadConnection lets a commit hang, whether it arrived or not.
func (w *world) commitOverDeadConnection(c *call) {
	switch w.drawOutcome(c, deadConnections) {
	case "commits":
		_ = c.op(c.ctx)
	case "commits later":
		w.late = append(w.late, c)
	}
	w.hang(c, settle.ErrOutcomeUnknown)
}

func (w *world) answerCommit(c *call) {
	switch w.drawOutcome(c, commitAnswers) {
	case "is run again":
		c.err = c.op(c.ctx)
	case "is not answered":
		c.err = settle.ErrOutcomeUnknown
	case "is lost, and the instance crashes":
		w.crash(c.by)
		return
	}
	w.answer(c)
}

// crashOne crashes an instance. Its pending commits can still happen later.
func (w *world) crashOne() {
	p := w.pickInstance()
	for _, c := range w.calls {
		if c.by == p && c.op != nil && !c.reads() && !c.done && !c.hung && draw(w, commitAfterCrash) {
			w.late = append(w.late, c)
		}
	}
	w.crash(p)
}

func (w *world) lateCommit() {
	if len(w.late) == 0 {
		return
	}
	c := pick(w, pendingLate, w.late)
	w.late = slices.DeleteFunc(w.late, func(o *call) bool { return o == c })
	w.commitLate(c)
}

func (w *world) commitLate(c *call) {
	w.tell("%s commits late: its caller is gone or got an error", c)
	w.seen["late commit"]++
	_ = c.op(context.Background())
}
