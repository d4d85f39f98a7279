package sim

import (
	"fmt"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

var (
	sendOutcomes = weighted("send outcome",
		10, "arrives and is answered", 5, "arrives", 3, "arrives, the answer is damaged", 2, "is not written", 2, "arrives late",
		1, "is lost", 3, "is not read", 2, "is refused", 1, "is accepted and forgotten", 1, "arrives, and the bank goes down",
		2, "arrives, and the instance crashes", 1, "is not written, and the instance crashes",
	)
	unusualSend   = oneOf("unusual send outcome", false, true)
	sendAnswers   = weighted("send answer", 4, "is answered", 1, "is damaged", 1, "is lost, and the instance crashes")
	unsentFault   = faulty("fault before the send", unsentFaults)
	unreadFault   = faulty("fault before reading", unreadFaults)
	answerFault   = faulty("damaged send answer", answerFaults)
	knownKeyFault = faulty("known key answer", knownKeyFaults)

	statusOutcomes = weighted("status request outcome",
		14, "is answered", 3, "is answered from the past", 2, "is not answered", 3, "is answered slowly", 1, "is answered not found", 1, "is answered wrongly")
	statusAnswers = weighted("status answer", 4, "is answered", 1, "is not answered", 1, "is lost, and the instance crashes")
	unknownFault  = faulty("damaged status answer", unknownFaults)
	notFoundFault = faulty("not-found answer", notFoundFaults)
	wrongFault    = faulty("wrong status answer", wrongFaults)

	retryAfter = oneOf("retry after", 0, 0, time.Minute, 2*time.Hour, 24*time.Hour)
	downtimes  = oneOf("bank down for", 10*time.Second, time.Minute, 20*time.Minute, 5*time.Hour)

	processings = table("processing",
		row[process]{9, "executes", func(*world, *Processing) {}},
		row[process]{6, "executes late", func(w *world, p *Processing) { p.After = draw(w, decidedAfter) }},
		row[process]{3, "rejects", func(_ *world, p *Processing) { p.Rejected = true }},
		row[process]{3, "rejects late", func(w *world, p *Processing) { p.Rejected, p.After = true, draw(w, decidedAfter) }},
		row[process]{2, "executes unseen", func(w *world, p *Processing) {
			p.After = draw(w, decidedAfter)
			p.ShownAfter = p.After + draw(w, unseenFor)
		}},
		row[process]{2, "returns", func(w *world, p *Processing) {
			p.After, p.ReturnedAfter = draw(w, decidedAfter), max(draw(w, returnedAfter), time.Second)
		}},
		row[process]{1, "is stuck", func(_ *world, p *Processing) { p.Stuck = true }},
		row[process]{1, "is blocked", func(_ *world, p *Processing) { p.Stuck, p.Blocked = true, true }},
		row[process]{1, "rejects, then executes", func(w *world, p *Processing) {
			p.RejectedFirst, p.After = true, max(draw(w, decidedAfter), time.Second)
		}},
		row[process]{1, "moves another amount", func(w *world, p *Processing) { p.OtherAmount, p.After = true, draw(w, decidedAfter) }},
	)
	unusualProcessing = oneOf("unusual processing", false, true)
	decidedAfter      = oneOf("decided after", delays...)
	returnedAfter     = oneOf("returned after", delays...)
	unseenFor         = oneOf("unseen for another", delays...)
	halfLags          = oneOf("shown after half lags", 0, 1, 2)
	lateBy            = oneOf("late by", delays...)
	ago               = oneOf("age of the answer", delays...)
	delays            = []time.Duration{
		0, time.Second, 10 * time.Second, 45 * time.Second, 3 * time.Minute, 20 * time.Minute, 2 * time.Hour, 20 * time.Hour, 30 * time.Hour, 3 * 24 * time.Hour,
	}
)

func (w *world) resumeSend(c *call) {
	c.retryAfter = 0
	if c.done {
		w.answerSend(c)
		return
	}
	outcome := w.usualSend
	if outcome == "none" || draw(w, unusualSend) {
		outcome = draw(w, sendOutcomes)
	}
	if time.Now().Before(w.bank.DownUntil) {
		outcome = "is not written"
	}
	w.tell("%s %s", c, outcome)
	c.done = true
	switch outcome {
	case "is not written, and the instance crashes":
		c.done = false
		w.crash(c.by)
		return
	case "arrives, and the instance crashes":
		w.arrive(c)
		w.crash(c.by)
		return
	case "arrives":
		w.arrive(c)
		return
	}
	w.failSend(c, outcome)
	w.tell("  class %v", c.class)
	w.answer(c)
}

// failSend carries out an outcome after which the adapter has an answer or an error.
func (w *world) failSend(c *call, outcome string) {
	switch outcome {
	case "arrives and is answered":
		w.arrive(c)
	case "arrives, the answer is damaged":
		w.arrive(c)
		w.drawSendFault(c, answerFault)
	case "arrives, and the bank goes down":
		w.arrive(c)
		down := draw(w, downtimes)
		w.tell("the bank is down for %v", down)
		w.bank.DownUntil = time.Now().Add(down)
		c.class = transfer.SendUncertain
	case "arrives late":
		a := arrival{at: time.Now(), id: c.id, key: c.send.Key, processing: w.drawProcessing()}
		a.at = a.at.Add(min(draw(w, lateBy), w.bank.Lifetime/5-Slack))
		w.network = append(w.network, a)
		c.class = transfer.SendUncertain
	case "is lost":
		c.class = transfer.SendUncertain
	case "is not written":
		c.done = false
		w.drawSendFault(c, unsentFault)
	case "is not read":
		w.drawSendFault(c, unreadFault)
	case "is deferred":
		c.class, c.retryAfter = transfer.SendRetryLater, draw(w, retryAfter)
	case "is held":
		c.class = transfer.SendHeld
	case "is refused":
		c.class = Refusal(c.send.EarlierMayHaveReached)
		if c.send.EarlierMayHaveReached && len(w.bank.Entries[c.id]) > 0 {
			w.seen["refused after an execution"]++
		}
	case "is accepted and forgotten":
		c.class = transfer.SendAccepted
	}
}

// answerSend answers a send that has arrived.
func (w *world) answerSend(c *call) {
	switch w.drawOutcome(c, sendAnswers) {
	case "is damaged":
		w.drawSendFault(c, answerFault)
	case "is lost, and the instance crashes":
		w.crash(c.by)
		return
	}
	w.tell("  class %v", c.class)
	w.answer(c)
}

func (w *world) drawSendFault(c *call, g choice[sendFault]) {
	fault := draw(w, g)
	w.seen["send: "+fault.name]++
	c.class = fault.class
	if fault.waits {
		c.retryAfter = draw(w, retryAfter)
	}
	w.tell("  it %s%s", fault.name, withRetryAfter(c.retryAfter))
}

// arrive delivers a send to the bank, and determines the class of the answer.
func (w *world) arrive(c *call) {
	e, known := w.take(arrival{at: time.Now(), id: c.id, key: c.send.Key})
	if !known {
		e.Processing = w.drawProcessing()
	}
	c.class = e.SendAnswer(time.Now(), c.send.EarlierMayHaveReached)
	if known && !w.bank.Replays {
		w.drawSendFault(c, knownKeyFault)
	}
}

// take enters a request in the bank's ledger, unless the bank knows the key.
func (w *world) take(a arrival) (e *Entry, known bool) {
	now := time.Now()
	if e := w.bank.Known(a.id, a.key, now); e != nil {
		w.tell("  the bank knows the key")
		return e, true
	}
	w.oracle.history(a.id).entered = true
	return w.bank.Take(a.id, a.key, a.processing, now), false
}

// process sets the processing of one kind.
type process func(*world, *Processing)

func (w *world) drawProcessing() (p Processing) {
	kind, set := w.usualProcessing, processings.value(w.usualProcessing)
	if set == nil || draw(w, unusualProcessing) {
		kind, set = drawWord(w, processings)
	}
	p.ShownAfter = w.policy.VisibilityLag * time.Duration(draw(w, halfLags)) / 2
	set(w, &p)
	w.tell("  the bank: %s; decided after %v, returned after %v, shown after %v", kind, p.After, p.ReturnedAfter, p.ShownAfter)
	return p
}

func (w *world) resumeStatus(c *call) {
	now := time.Now()
	if c.done {
		switch w.drawOutcome(c, statusAnswers) {
		case "is not answered":
			w.drawStatusFault(c, unknownFault)
		case "is lost, and the instance crashes":
			w.crash(c.by)
			return
		}
		w.tell("  reading %v", c.reading)
		w.answer(c)
		return
	}
	outcome := w.drawOutcome(c, statusOutcomes)
	c.reading = w.bank.Status(c.id, c.send.Key, now)
	known := c.reading != transfer.StatusNotFound
	switch {
	case now.Before(w.bank.DownUntil), outcome == "is not answered":
		w.drawStatusFault(c, unknownFault)
	case outcome == "is answered from the past":
		c.reading = w.bank.Status(c.id, c.send.Key, now.Add(-draw(w, ago)))
	case outcome == "is answered slowly":
		c.done = true
		return
	case outcome == "is answered not found":
		w.drawStatusFault(c, notFoundFault)
	case outcome == "is answered wrongly" && known:
		w.drawStatusFault(c, wrongFault)
	}
	w.tell("  reading %v", c.reading)
	w.answer(c)
}

func (w *world) drawStatusFault(c *call, g choice[statusFault]) {
	fault := draw(w, g)
	w.seen["status: "+fault.name]++
	c.reading = fault.reading
	if fault.waits {
		c.retryAfter = draw(w, retryAfter)
	}
	w.tell("  the answer %s%s", fault.name, withRetryAfter(c.retryAfter))
}

func withRetryAfter(wait time.Duration) string {
	if wait == 0 {
		return ""
	}
	return fmt.Sprintf(", retry after %v", wait)
}

// timeOut ends a call at its deadline. The bank's adapter knows if it has written nothing.
func (w *world) timeOut(c *call) {
	w.tell("%s times out", c)
	if c.hung {
		w.answer(c)
		return
	}
	c.class, c.reading, c.retryAfter = transfer.SendUncertain, transfer.StatusUnknown, 0
	if !c.done {
		c.class = transfer.SendNotSent
	}
	w.answer(c)
}

// finish resumes every call without a fault until none is parked. A bank that usually
// defers sends goes on to.
func (w *world) finish() {
	before := w.answersArrive
	w.answersArrive = true
	for len(w.calls) > 0 {
		w.finishOne(w.calls[0])
	}
	w.answersArrive = before
}

func (w *world) finishOne(c *call) {
	now := time.Now()
	switch {
	case c.hung:
		w.waitForDeadline(c)
		w.oracle.check()
		return
	case c.done:
	case c.op != nil:
		c.err = c.op(c.ctx)
	case c.kind == "send" && w.usualSend == "is deferred":
		c.class, c.done = transfer.SendRetryLater, true
	case c.kind == "send" && now.Before(w.bank.DownUntil):
		c.class = transfer.SendNotSent
	case c.kind == "send":
		w.arrive(c)
		c.done = true
	case now.Before(w.bank.DownUntil):
		c.reading = transfer.StatusUnknown
	default:
		c.reading = w.bank.Status(c.id, c.send.Key, now)
	}
	w.tellOutcome(c)
	w.answer(c)
	w.oracle.check()
}

// tellOutcome records the result of a call, except of successful lists.
func (w *world) tellOutcome(c *call) {
	switch {
	case c.op != nil && c.err != nil:
		w.tell("%s fails: %v", c, c.err)
	case c.kind == "due" || c.kind == "backlog":
	case c.op != nil:
		w.tell("%s commits", c)
	case c.kind == "send":
		w.tell("%s is answered: %v", c, c.class)
	default:
		w.tell("%s is answered: %v", c, c.reading)
	}
}
