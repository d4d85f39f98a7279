package sim

import (
	"fmt"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// How an exchange with the bank goes.
var (
	sends = weighted("how a send goes on",
		10, "arrives and is answered", 5, "arrives", 3, "arrives, the answer is damaged", 2, "is not written", 2, "arrives late",
		1, "is lost", 3, "is not looked at", 2, "is refused", 1, "is accepted and forgotten", 1, "arrives, and the bank goes down",
		2, "arrives, and the instance crashes", 1, "is not written, and the instance crashes",
	)
	unlikeHabit = oneOf("the send goes unlike the bank's habit", false, true)
	unlikeMood  = oneOf("the bank does unlike its mood", false, true)
	sentAnswers = weighted("how the answer to a send comes", 4, "is answered", 1, "is damaged", 1, "is lost, and the instance crashes")
	unsent      = faulty("why a send is not written", Unsent)
	unlooked    = faulty("what a send meets", Unlooked)
	damages     = faulty("how the answer to a send is damaged", Damages)
	repeats     = faulty("what the bank says about a key that it knows", Repeats)

	questions = weighted("how a question goes on",
		14, "is answered", 3, "is answered from the past", 2, "is not answered", 3, "is answered slowly", 1, "is forgotten", 1, "is misread")
	told      = weighted("how the answer to a question comes", 4, "is answered", 1, "is not answered", 1, "is lost, and the instance crashes")
	unread    = faulty("how the answer to a question is damaged", Unread)
	forgotten = faulty("how the bank forgets", Forgotten)
	misread   = faulty("how the answer to a question is wrong", Misread)

	waits = oneOf("retry after", 0, 0, time.Minute, 2*time.Hour, 24*time.Hour)
	downs = oneOf("the bank is down for", 10*time.Second, time.Minute, 20*time.Minute, 5*time.Hour)

	fates = weighted("what the bank makes of it",
		9, "executes", 6, "executes late", 3, "rejects", 3, "rejects late", 2, "executes unseen", 2, "returns", 1, "is stuck", 1, "is blocked", 1, "lies", 1, "moves another amount",
	)
	decidedAfter  = oneOf("decided after", delays...)
	returnedAfter = oneOf("returned after", delays...)
	unseenFor     = oneOf("unseen for another", delays...)
	halfLags      = oneOf("shown after half lags", 0, 1, 2)
	lateBy        = oneOf("late by", delays...)
	ago           = oneOf("from the past, ago", delays...)
	delays        = []time.Duration{
		0, time.Second, 10 * time.Second, 45 * time.Second, 3 * time.Minute, 20 * time.Minute, 2 * time.Hour, 20 * time.Hour, 30 * time.Hour, 3 * 24 * time.Hour,
	}
)

func (w *world) goOnSend(c *call) {
	c.wait = 0
	if c.half {
		w.answerSend(c)
		return
	}
	how := w.habit
	if how == "none" || draw(w, unlikeHabit) {
		how = draw(w, sends)
	}
	if time.Now().Before(w.bank.DownUntil) {
		how = "is not written"
	}
	w.tell("%s %s", c, how)
	c.half = true
	switch how {
	case "is not written, and the instance crashes":
		c.half = false
		w.crash(c.by)
		return
	case "arrives, and the instance crashes":
		w.arrives(c)
		w.crash(c.by)
		return
	case "arrives":
		w.arrives(c)
		return
	case "arrives and is answered":
		w.arrives(c)
	case "arrives, the answer is damaged":
		w.arrives(c)
		w.sendFault(c, damages)
	case "arrives, and the bank goes down":
		w.arrives(c)
		down := draw(w, downs)
		w.tell("the bank is down for %v", down)
		w.bank.DownUntil = time.Now().Add(down)
		c.class = transfer.SendUncertain
	case "arrives late":
		a := arrival{at: time.Now(), id: c.id, key: c.send.Key, fate: w.fate()}
		a.at = a.at.Add(min(draw(w, lateBy), w.bank.Lifetime/5-Slack))
		w.network = append(w.network, a)
		c.class = transfer.SendUncertain
	case "is lost":
		c.class = transfer.SendUncertain
	case "is not written":
		c.half = false
		w.sendFault(c, unsent)
	case "is not looked at":
		w.sendFault(c, unlooked)
	case "is put off":
		c.class, c.wait = transfer.SendRetryLater, draw(w, waits)
	case "is held":
		c.class = transfer.SendHeld
	case "is refused":
		c.class = Refusal(c.send.EarlierMayHaveReached)
		if c.send.EarlierMayHaveReached && len(w.bank.Entries[c.id]) > 0 {
			w.seen["refused, and the bank has it"]++
		}
	case "is accepted and forgotten":
		c.class = transfer.SendAccepted
	}
	w.tell("  which makes it %v", c.class)
	w.answer(c)
}

// answerSend answers a send that the bank has.
func (w *world) answerSend(c *call) {
	switch w.how(c, sentAnswers) {
	case "is damaged":
		w.sendFault(c, damages)
	case "is lost, and the instance crashes":
		w.crash(c.by)
		return
	}
	w.tell("  which makes it %v", c.class)
	w.answer(c)
}

func (w *world) sendFault(c *call, g choice[SendFault]) {
	fault := draw(w, g)
	w.seen["send: "+fault.Name]++
	c.class = fault.Class
	if fault.Waits {
		c.wait = draw(w, waits)
	}
	w.tell("  it %s%s", fault.Name, asksToWait(c.wait))
}

// arrives brings a send to the bank, and works out the answer to it.
func (w *world) arrives(c *call) {
	e, again := w.take(arrival{at: time.Now(), id: c.id, key: c.send.Key})
	if !again {
		e.Fate = w.fate()
	}
	c.class = e.SendAnswer(time.Now(), c.send.EarlierMayHaveReached)
	if again && !w.bank.Replays {
		w.sendFault(c, repeats)
	}
}

// take brings a request to the bank, which enters it into its ledger unless it
// knows the key.
func (w *world) take(a arrival) (e *Entry, again bool) {
	now := time.Now()
	if known := w.bank.Known(a.id, a.key, now); known != nil {
		w.tell("  the bank knows the key")
		return known, true
	}
	w.oracle.entered(a.id)
	return w.bank.Take(a.id, a.key, a.fate, now), false
}

func (w *world) fate() (f Fate) {
	kind := w.mood
	if kind == "none" || draw(w, unlikeMood) {
		kind = draw(w, fates)
	}
	f.ShownAfter = w.policy.VisibilityLag * time.Duration(draw(w, halfLags)) / 2
	switch kind {
	case "executes late":
		f.After = draw(w, decidedAfter)
	case "rejects":
		f.Rejected = true
	case "rejects late":
		f.Rejected, f.After = true, draw(w, decidedAfter)
	case "executes unseen":
		f.After = draw(w, decidedAfter)
		f.ShownAfter = f.After + draw(w, unseenFor)
	case "returns":
		f.After, f.ReturnedAfter = draw(w, decidedAfter), max(draw(w, returnedAfter), time.Second)
	case "is stuck":
		f.Stuck = true
	case "is blocked":
		f.Stuck, f.Blocked = true, true
	case "lies":
		f.Lies, f.After = true, max(draw(w, decidedAfter), time.Second)
	case "moves another amount":
		f.OtherAmount, f.After = true, draw(w, decidedAfter)
	}
	w.tell("  the bank: %s", f.in(kind))
	return f
}

// in tells the fate in words.
func (f Fate) in(kind string) string {
	text := kind
	if f.After > 0 {
		text += fmt.Sprintf(", %v after the arrival", f.After)
	}
	if f.ReturnedAfter > 0 {
		text += fmt.Sprintf(", and back %v later", f.ReturnedAfter)
	}
	if f.ShownAfter > 0 {
		text += fmt.Sprintf("; it shows the transfer after %v", f.ShownAfter)
	}
	return text
}

func (w *world) goOnStatus(c *call) {
	now := time.Now()
	if c.half {
		switch w.how(c, told) {
		case "is not answered":
			w.statusFault(c, unread)
		case "is lost, and the instance crashes":
			w.crash(c.by)
			return
		}
		w.tell("  it says %v", c.reading)
		w.answer(c)
		return
	}
	how := w.how(c, questions)
	c.reading = w.bank.Status(c.id, c.send.Key, now)
	known := c.reading != transfer.StatusNotFound
	switch {
	case now.Before(w.bank.DownUntil), how == "is not answered":
		w.statusFault(c, unread)
	case how == "is answered from the past":
		c.reading = w.bank.Status(c.id, c.send.Key, now.Add(-draw(w, ago)))
	case how == "is answered slowly":
		c.half = true
		return
	case how == "is forgotten":
		w.statusFault(c, forgotten)
	case how == "is misread" && known:
		w.statusFault(c, misread)
	}
	w.tell("  it says %v", c.reading)
	w.answer(c)
}

func (w *world) statusFault(c *call, g choice[StatusFault]) {
	fault := draw(w, g)
	w.seen["status: "+fault.Name]++
	c.reading = fault.Reading
	if fault.Waits {
		c.wait = draw(w, waits)
	}
	w.tell("  the answer %s%s", fault.Name, asksToWait(c.wait))
}

func asksToWait(wait time.Duration) string {
	if wait == 0 {
		return ""
	}
	return fmt.Sprintf(", and asks to wait %v", wait)
}

// timeOut ends a call to the bank whose time is up. A request of which nothing
// was written is known not to have been sent.
func (w *world) timeOut(c *call) {
	w.tell("%s has used up its time", c)
	c.class, c.reading, c.wait = transfer.SendUncertain, transfer.StatusUnknown, 0
	if !c.half {
		c.class = transfer.SendNotSent
	}
	w.answer(c)
}

// finish lets every call go on without a fault until none is parked. A bank whose
// habit is to put off keeps to it.
func (w *world) finish() {
	before := w.calm
	w.calm = true
	for len(w.calls) > 0 {
		w.finishOne(w.calls[0])
	}
	w.calm = before
}

func (w *world) finishOne(c *call) {
	now := time.Now()
	switch {
	case c.half:
	case c.op != nil:
		c.err = c.op(c.ctx)
	case c.what == "send" && w.habit == "is put off":
		c.class, c.half = transfer.SendRetryLater, true
	case c.what == "send" && now.Before(w.bank.DownUntil):
		c.class = transfer.SendNotSent
	case c.what == "send":
		w.arrives(c)
		c.half = true
	case now.Before(w.bank.DownUntil):
		c.reading = transfer.StatusUnknown
	default:
		c.reading = w.bank.Status(c.id, c.send.Key, now)
	}
	w.tellOutcome(c)
	w.answer(c)
	w.oracle.check()
}

// tellOutcome tells what came of a call. A list that is answered is no news.
func (w *world) tellOutcome(c *call) {
	switch {
	case c.op != nil && c.err != nil:
		w.tell("%s fails: %v", c, c.err)
	case c.what == "due" || c.what == "backlog":
	case c.op != nil:
		w.tell("%s commits", c)
	case c.what == "send":
		w.tell("%s is answered: %v", c, c.class)
	default:
		w.tell("%s is answered: %v", c, c.reading)
	}
}
