package sim

import (
	"context"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/internal/settle"
)

// What is drawn. rapid prefers what comes first a little, and shrinks towards it.
var (
	lifetimes = rapid.SampledFrom([]time.Duration{24 * time.Hour, 30 * time.Minute, 2 * time.Hour, 14 * 24 * time.Hour})
	lags      = rapid.SampledFrom([]time.Duration{0, 5 * time.Second, time.Minute, 10 * time.Minute})
	skews     = rapid.SampledFrom([]time.Duration{0, MaxSkew, -MaxSkew, 2 * time.Second, -1500 * time.Millisecond})
	delays    = rapid.SampledFrom([]time.Duration{
		0, time.Second, 10 * time.Second, 45 * time.Second, 3 * time.Minute, 20 * time.Minute, 2 * time.Hour, 20 * time.Hour, 30 * time.Hour, 3 * 24 * time.Hour,
	})
	passes = rapid.SampledFrom([]time.Duration{
		time.Second, 5 * time.Second, 9 * time.Second, 15 * time.Second, 21 * time.Second, 45 * time.Second, 49 * time.Second, time.Minute, 3 * time.Minute,
		15 * time.Minute, time.Hour, 5 * time.Hour, 19*time.Hour + 12*time.Minute, 24 * time.Hour, 3 * 24 * time.Hour,
	})
	nears   = rapid.SampledFrom([]time.Duration{time.Second, -time.Second, -11 * time.Second, 6 * time.Second, -21 * time.Second})
	waits   = rapid.SampledFrom([]time.Duration{0, 0, time.Minute, 2 * time.Hour, 40 * time.Hour})
	endings = weighted(6, "honest", 1, "silent", 1, "blind")

	steps = weighted(
		12, "go on", 4, "wait for the next", 4, "finish", 4, "pass", 5, "deliver", 2, "reconcile",
		2, "pass to near the next", 1, "pass to near the last send", 2, "crash", 1, "deliver twice", 1, "reconcile twice", 1, "late commit", 1, "leave", 1, "expire",
	)
	deliveries = weighted(5, "fresh", 3, "redeliver", 1, "republish", 1, "conflict")

	commits = weighted(
		18, "commits", 3, "commits, the answer is under way", 2, "is lost", 2, "commits, the answer is lost", 2, "commits later",
		1, "commits, and the instance crashes", 1, "is lost, and the instance crashes",
	)
	committed = weighted(4, "is answered", 2, "is run again", 1, "is not answered", 1, "is lost, and the instance crashes")
	reads     = weighted(9, "is answered", 1, "is lost")
	sends     = weighted(
		10, "arrives and is answered", 5, "arrives", 3, "arrives, the answer is lost", 2, "is not written", 2, "arrives late",
		1, "is lost", 2, "is put off", 1, "is held", 2, "is refused",
		2, "arrives, and the instance crashes", 1, "is not written, and the instance crashes",
	)
	// habits make what a bank does rarely common, so that it also happens in a row.
	habits    = weighted(12, "none", 2, "is put off", 1, "is lost", 1, "is held", 1, "is not written")
	answered  = weighted(4, "is answered", 1, "is not answered", 1, "is lost, and the instance crashes")
	questions = weighted(14, "is answered", 3, "is answered from the past", 2, "is not answered", 3, "is answered slowly", 1, "is forgotten")
	fates     = weighted(
		9, "executes", 6, "executes late", 3, "rejects", 3, "rejects late", 2, "executes unseen", 2, "returns", 1, "is stuck", 1, "is blocked", 1, "lies", 1, "moves another amount",
	)
)

// weighted draws one of words, each preceded by its weight.
func weighted(weightsAndWords ...any) *rapid.Generator[string] {
	var all []string
	for i := 0; i < len(weightsAndWords); i += 2 {
		all = append(all, slices.Repeat([]string{weightsAndWords[i+1].(string)}, weightsAndWords[i].(int))...)
	}
	return rapid.SampledFrom(all)
}

// sequence is the property: no sequence breaks a promise.
func sequence(t *rapid.T, count func(map[string]int)) {
	w := newWorld(t)
	defer func() {
		for _, p := range w.instances { // nothing may outlive the sequence, whatever ended it
			w.kill(p)
		}
	}()
	t.Repeat(map[string]func(*rapid.T){"step": w.step})
	w.finishAll()
	count(w.seen)
}

func (w *world) step(t *rapid.T) {
	switch step := steps.Draw(t, "step"); step {
	case "go on":
		if c := w.pick(); c != nil {
			w.goOn(c)
		}
	case "finish":
		w.finish()
	case "wait for the next":
		w.passToNextDue(0)
		w.reconcile(w.instance())
	case "pass to near the next":
		w.passToNearTheNext()
	case "pass to near the last send":
		w.passToNearTheLastSend()
	case "pass":
		w.pass(passes.Draw(t, "time"))
	case "deliver", "deliver twice":
		p := w.payout()
		w.deliver(w.instances[0], p)
		if step == "deliver twice" {
			w.deliver(w.instances[1], p)
		}
	case "reconcile":
		w.reconcile(w.instance())
	case "reconcile twice":
		w.reconcile(w.instances[0])
		w.reconcile(w.instances[1])
	case "crash":
		w.crashOne()
	case "late commit":
		w.lateCommit()
	case "leave":
		for _, leave := range w.leaves {
			leave()
		}
		w.leaves = nil
	case "expire":
		w.expire()
	}
	w.oracle.check()
}

// indexes[n] draws a number below n.
var indexes = func() (all [33]*rapid.Generator[int]) {
	var numbers []int
	for n := range all {
		if n > 0 {
			all[n] = rapid.SampledFrom(slices.Clone(numbers))
		}
		numbers = append(numbers, n)
	}
	return all
}()

func (w *world) index(n int, what string) int { return indexes[min(n, len(indexes)-1)].Draw(w.t, what) }

func (w *world) instance() *instance { return w.instances[w.index(len(w.instances), "instance")] }

func (w *world) pick() *call {
	if len(w.calls) == 0 {
		return nil
	}
	return w.calls[w.index(len(w.calls), "call")]
}

// payout draws what is delivered: something new, or something known.
func (w *world) payout() payout {
	kind := deliveries.Draw(w.t, "delivery")
	if len(w.payouts) == 0 || kind == "fresh" && len(w.payouts) < 3 {
		p := settle.Payout{
			SettlementID: "stl-" + strconv.Itoa(len(w.payouts)+1), AccountID: "reserve", AmountCents: 4731, Currency: "USD", CreditorAccount: "cp-19",
		}
		if w.index(12, "without a bank") == 11 {
			p.CreditorAccount = ""
		}
		w.payouts = append(w.payouts, encode(p))
		return w.payouts[len(w.payouts)-1]
	}
	known := w.payouts[w.index(len(w.payouts), "payout")]
	if kind == "conflict" {
		other := known.Payout
		other.AmountCents = 4732
		return encode(other)
	}
	return known
}

func encode(p settle.Payout) payout {
	data, err := p.Message()
	if err != nil {
		panic(err)
	}
	return payout{p, data}
}

// deliver begins a delivery. A message that comes again and a payout that is
// published again are the same to settle, but for the message ID.
func (w *world) deliver(p *instance, pay payout) {
	w.t.Logf("%s: delivered to instance %d, %d cents", pay.SettlementID, p.n, pay.AmountCents)
	ctx, leave := context.WithCancel(context.Background())
	w.leaves = append(w.leaves, leave)
	message := settle.Message{ID: strconv.Itoa(w.seen["message"]), Data: pay.data}
	w.seen["message"]++
	w.launch(p, func() func() {
		defer leave()
		r, err := p.service.Deliver(ctx, settle.Delivery{Message: message})
		return func() { w.oracle.delivered(pay, r, err) }
	})
}

func (w *world) reconcile(p *instance) {
	w.t.Logf("instance %d reconciles", p.n)
	w.launch(p, func() func() {
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

// crashOne ends the life of an instance and begins the next. What it had asked
// the store for can still be committed.
func (w *world) crashOne() {
	n := w.index(len(w.instances), "instance")
	for _, c := range w.calls {
		if c.by.n == n && c.op != nil && !c.half && rapid.Bool().Draw(w.t, "commits later") {
			w.late = append(w.late, func() { _ = c.op(context.Background()) })
		}
	}
	w.crash(n)
}

func (w *world) lateCommit() {
	if len(w.late) == 0 {
		return
	}
	i := w.index(len(w.late), "commit")
	op := w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	w.t.Logf("a late commit")
	w.seen["late commit"]++
	op()
}

// expire deletes the receipts that may expire.
func (w *world) expire() {
	for _, r := range w.store.Snapshot().Receipts {
		if r.ExpireFrom != nil {
			w.store.DeleteReceipt(r.SettlementID)
			w.oracle.expired, w.oracle.stale = true, true
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
	d = max(d, time.Until(backlog.NextDue)+MaxSkew, 0)
	w.t.Logf("%v pass", d)
	w.pass(d)
	return true
}

// passToNearTheNext passes the time to shortly before or after the next
// instruction is due. Where one is being worked on, that is the end of its lease.
func (w *world) passToNearTheNext() {
	backlog, err := w.store.Backlog(context.Background())
	if err != nil || backlog.NextDue.IsZero() {
		return
	}
	w.pass(max(0, time.Until(backlog.NextDue)+nears.Draw(w.t, "before or after")))
}

// passToNearTheLastSend passes the time to shortly before or after the first
// resend_not_after that is to come.
func (w *world) passToNearTheLastSend() {
	var until time.Duration
	for _, in := range w.store.Snapshot().Instructions {
		left := time.Until(in.ResendNotAfter)
		if in.State == settle.InstructionUncertain && left > 0 && (until == 0 || left < until) {
			until = left
		}
	}
	if until > 0 {
		w.pass(max(0, until+nears.Draw(w.t, "before or after")))
	}
}

// goOn lets a parked call go on, in a way that is drawn.
func (w *world) goOn(c *call) {
	switch c.what {
	case "send":
		w.goOnSend(c)
	case "status":
		w.goOnStatus(c)
	case "due", "backlog":
		if w.how(c, reads) == "is lost" {
			c.err = errLost
		} else {
			c.err = c.op(c.ctx)
		}
		w.answer(c)
	default:
		w.goOnCommit(c)
	}
}

func (w *world) how(c *call, g *rapid.Generator[string]) string {
	how := g.Draw(w.t, "how")
	w.t.Logf("%s: %s of instance %d %s", c.id, c.what, c.by.n, how)
	return how
}

func (w *world) goOnCommit(c *call) {
	if c.half {
		switch w.how(c, committed) {
		case "is run again":
			c.err = c.op(c.ctx)
		case "is not answered":
			c.err = settle.ErrOutcomeUnknown
		case "is lost, and the instance crashes":
			w.crash(c.by.n)
			return
		}
		w.answer(c)
		return
	}
	switch w.how(c, commits) {
	case "commits, and the instance crashes":
		_, c.half = c.op(c.ctx), true
		w.crash(c.by.n)
		return
	case "is lost, and the instance crashes":
		w.crash(c.by.n)
		return
	case "commits":
		c.err = c.op(c.ctx)
	case "commits, the answer is under way":
		c.err, c.half = c.op(c.ctx), true
		return
	case "is lost":
		c.err = errLost
	case "commits, the answer is lost":
		_ = c.op(c.ctx)
		c.err = settle.ErrOutcomeUnknown
	case "commits later":
		w.late = append(w.late, func() { _ = c.op(context.Background()) })
		c.err = settle.ErrOutcomeUnknown
	}
	w.answer(c)
}

func (w *world) goOnSend(c *call) {
	c.wait = 0
	if c.half {
		switch w.how(c, answered) {
		case "is not answered":
			c.class = settle.SendUncertain
		case "is lost, and the instance crashes":
			w.crash(c.by.n)
			return
		}
		w.answer(c)
		return
	}
	a := arrival{at: time.Now(), id: c.id, key: c.send.Key}
	how := w.habit
	if how == "none" || rapid.Bool().Draw(w.t, "unlike its habit") {
		how = w.how(c, sends)
	}
	c.half = how != "is not written" && how != "is not written, and the instance crashes"
	switch how {
	case "is not written, and the instance crashes":
		w.crash(c.by.n)
		return
	case "arrives, and the instance crashes":
		a.fate = w.fate()
		w.take(a)
		w.crash(c.by.n)
		return
	case "arrives and is answered", "arrives", "arrives, the answer is lost":
		a.fate = w.fate()
		c.class = w.take(a).SendAnswer(a.at, c.send.EarlierMayHaveReached)
		if how == "arrives" {
			return
		}
		if how == "arrives, the answer is lost" {
			c.class = settle.SendUncertain
		}
	case "arrives late":
		a.fate = w.fate()
		a.at = a.at.Add(min(delays.Draw(w.t, "late by"), w.bank.Lifetime/5-Slack))
		w.network = append(w.network, a)
		c.class = settle.SendUncertain
	case "is lost":
		c.class = settle.SendUncertain
	case "is not written":
		c.class = settle.SendNotSent
	case "is put off":
		c.class, c.wait = settle.SendRetryLater, waits.Draw(w.t, "retry after")
	case "is held":
		c.class = settle.SendHeld
	case "is refused":
		c.class = Refusal(c.send.EarlierMayHaveReached)
	}
	w.answer(c)
}

func (w *world) fate() (f Fate) {
	kind := fates.Draw(w.t, "fate")
	w.t.Logf("the bank %s", kind)
	f.ShownAfter = w.policy.VisibilityLag * time.Duration(w.index(3, "shown after half lags")) / 2
	switch kind {
	case "executes late":
		f.After = delays.Draw(w.t, "after")
	case "rejects":
		f.Rejected = true
	case "rejects late":
		f.Rejected, f.After = true, delays.Draw(w.t, "after")
	case "executes unseen":
		f.After = delays.Draw(w.t, "after")
		f.ShownAfter = f.After + delays.Draw(w.t, "shown after")
	case "returns":
		f.After, f.ReturnedAfter = delays.Draw(w.t, "after"), max(delays.Draw(w.t, "returned after"), time.Second)
	case "is stuck":
		f.Stuck = true
	case "is blocked":
		f.Stuck, f.Blocked = true, true
	case "lies":
		f.Lies, f.After = true, max(delays.Draw(w.t, "after"), time.Second)
	case "moves another amount":
		f.OtherAmount, f.After = true, delays.Draw(w.t, "after")
	}
	return f
}

func (w *world) goOnStatus(c *call) {
	now := time.Now()
	if c.half {
		switch w.how(c, answered) {
		case "is not answered":
			c.reading = settle.StatusUnknown
		case "is lost, and the instance crashes":
			w.crash(c.by.n)
			return
		}
		w.answer(c)
		return
	}
	switch w.how(c, questions) {
	case "is answered":
		c.reading = w.bank.Status(c.id, c.send.Key, now)
	case "is answered from the past":
		c.reading = w.bank.Status(c.id, c.send.Key, now.Add(-delays.Draw(w.t, "ago")))
	case "is answered slowly":
		c.half, c.reading = true, w.bank.Status(c.id, c.send.Key, now)
		return
	case "is not answered":
		c.reading, c.wait = settle.StatusUnknown, waits.Draw(w.t, "retry after")
	case "is forgotten":
		c.reading = settle.StatusNotFound
	}
	w.answer(c)
}

// finish lets every call go on without a fault until none is parked. A bank whose
// habit is to put off keeps to it.
func (w *world) finish() {
	for len(w.calls) > 0 {
		w.finishOne(w.calls[0])
	}
}

func (w *world) finishOne(c *call) {
	now := time.Now()
	switch {
	case c.half:
	case c.op != nil:
		c.err = c.op(c.ctx)
	case c.what == "send" && w.habit == "is put off":
		c.class, c.half = settle.SendRetryLater, true
	case c.what == "send":
		a := arrival{at: now, id: c.id, key: c.send.Key, fate: w.fate()}
		c.class = w.take(a).SendAnswer(now, c.send.EarlierMayHaveReached)
		c.half = true
	default:
		c.reading = w.bank.Status(c.id, c.send.Key, now)
	}
	w.answer(c)
	w.oracle.check()
}

// finishAll ends the sequence: the faults are over, late commits come or do not
// come, and a reconciler runs until nothing is due.
func (w *world) finishAll() {
	for _, op := range w.late {
		if rapid.Bool().Draw(w.t, "commits at last") {
			op()
		}
	}
	w.late = nil
	w.finish()
	honestSince := time.Now()
	if w.ending != "honest" {
		honestSince = time.Time{}
	}
	for run := 0; ; run++ {
		least := time.Duration(0)
		if time.Since(honestSince) > 24*time.Hour {
			least = 8 * time.Hour
		}
		if !w.passToNextDue(least) {
			break
		}
		if run > 1000 {
			w.t.Fatalf("after 1000 runs something is still due")
		}
		w.reconcile(w.instances[0])
		for len(w.calls) > 0 {
			c := w.calls[0]
			if c.what == "status" && w.ending == "silent" {
				c.half, c.reading = true, settle.StatusUnknown
			}
			if c.what == "status" && w.ending == "blind" {
				c.half, c.reading = true, settle.StatusNotFound
			}
			w.finishOne(c)
		}
	}
	w.pass(4 * 24 * time.Hour) // whatever the bank still does
	w.oracle.atTheEnd(honestSince)
}
