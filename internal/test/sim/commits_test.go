package sim

import (
	"context"
	"slices"

	"github.com/settleonce/settleonce/internal/settle"
)

// How a call of the store goes on.
var (
	aCall   = oneOfMany("call", (*call).name)
	aCommit = oneOfMany("late commit", (*call).name)

	commits = weighted("how a commit goes on",
		18, "commits", 3, "commits, the answer is under way", 2, "is lost", 2, "commits, the answer is lost", 2, "commits later", 2, "is aborted",
		1, "commits, and the instance crashes", 1, "is lost, and the instance crashes",
	)
	committed = weighted("how a commit's answer comes",
		4, "is answered", 2, "is run again", 1, "is not answered", 1, "is lost, and the instance crashes")
	reads = weighted("how a read goes on", 9, "is answered", 1, "is lost")

	commitsLater  = oneOf("what the crashed instance asked for commits later", true, false)
	lateBetween   = oneOf("a late commit comes in between", false, false, false, true)
	commitsAtLast = oneOf("a late commit comes in the end", true, false)
)

// goOn lets a parked call go on, in a way that is drawn.
func (w *world) goOn(c *call) {
	switch {
	case c.what == "send":
		w.goOnSend(c)
	case c.what == "status":
		w.goOnStatus(c)
	case w.storeIsSound:
		c.err = c.op(c.ctx)
		w.tellOutcome(c)
		w.answer(c)
	case c.what == "due" || c.what == "backlog":
		w.goOnRead(c)
	default:
		w.goOnCommit(c)
	}
}

func (w *world) goOnRead(c *call) {
	if draw(w, reads) == "is lost" {
		c.err = errLost
	} else {
		c.err = c.op(c.ctx)
	}
	w.tellOutcome(c)
	w.answer(c)
}

func (w *world) how(c *call, g choice[string]) string {
	how := draw(w, g)
	w.tell("%s %s", c, how)
	return how
}

func (w *world) goOnCommit(c *call) {
	if c.half {
		w.answerCommit(c)
		return
	}
	switch w.how(c, commits) {
	case "commits, and the instance crashes":
		_, c.half = c.op(c.ctx), true
		w.crash(c.by)
		return
	case "is lost, and the instance crashes":
		w.crash(c.by)
		return
	case "commits":
		c.err = c.op(c.ctx)
	case "commits, the answer is under way":
		c.err, c.half = c.op(c.ctx), true
		return
	case "is aborted": // and run again by the store
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
	switch w.how(c, committed) {
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

// crashOne crashes an instance. What it had asked the store for can still be
// committed.
func (w *world) crashOne() {
	p := w.anInstance()
	for _, c := range w.calls {
		if c.by == p && c.op != nil && !c.half && draw(w, commitsLater) {
			w.late = append(w.late, c)
		}
	}
	w.crash(p)
}

func (w *world) lateCommit() {
	if len(w.late) == 0 {
		return
	}
	c := pick(w, aCommit, w.late)
	w.late = slices.DeleteFunc(w.late, func(o *call) bool { return o == c })
	w.comesLate(c)
}

// comesLate commits what a call wanted that is over.
func (w *world) comesLate(c *call) {
	w.tell("%s commits late: the caller is gone, or was told that it failed", c)
	w.seen["late commit"]++
	_ = c.op(context.Background())
}
