package sim

import (
	"context"
	"slices"

	"github.com/settleonce/settleonce/internal/settle"
)

var (
	parkedCall     = oneOfMany("call", (*call).name)
	pendingLate    = oneOfMany("late commit", (*call).name)
	commitOutcomes = weighted("commit outcome",
		18, "commits", 3, "commits, answer pending", 2, "is lost", 2, "commits, the answer is lost", 2, "commits later", 2, "is aborted",
		1, "commits, and the instance crashes", 1, "is lost, and the instance crashes",
	)
	commitAnswers = weighted("commit answer",
		4, "is answered", 2, "is run again", 1, "is not answered", 1, "is lost, and the instance crashes")
	readOutcomes     = weighted("read outcome", 9, "is answered", 1, "is lost")
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
	case w.storeIsSound:
		c.err = c.op(c.ctx)
		w.tellOutcome(c)
		w.answer(c)
	case c.kind == "due" || c.kind == "backlog":
		w.resumeRead(c)
	default:
		w.resumeCommit(c)
	}
}

func (w *world) resumeRead(c *call) {
	if draw(w, readOutcomes) == "is lost" {
		c.err = errLost
	} else {
		c.err = c.op(c.ctx)
	}
	w.tellOutcome(c)
	w.answer(c)
}

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
	}
	w.answer(c)
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
		if c.by == p && c.op != nil && !c.done && draw(w, commitAfterCrash) {
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
