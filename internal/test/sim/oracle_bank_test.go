package sim

import (
	"bytes"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// maxReaches is the rule for resends, written again: the code under test is not
// asked what it should do.
const maxReaches = 4 // the first send and three resends

// bankHistory is what the oracle knows about a settlement's way at the bank.
type bankHistory struct {
	sends     int64 // as the row must count them
	reaches   int64 // sends that can have reached the bank
	written   int64 // sends of which something was written
	putOff    bool  // the bank asked for the same again, and that is recorded
	inFlight  int
	class     transfer.SendClass // of the latest answer to a send
	sentAt    time.Time          // the beginning of the latest send
	notFounds []time.Time        // answers of the status API since then
	critical  bool
	entered   bool      // into the bank's ledger
	executed  bool      // seen to be
	answered  *instance // by the bank, and has not begun to record it
}

// entered notes that the bank has an entry.
func (o *oracle) entered(id string) { o.of(id).entered = true }

// changed looks at a change that the store has made.
func (o *oracle) changed(id string, c transfer.Change) {
	h := o.touch(id)
	h.critical = h.critical || c.Level >= transfer.LevelCritical
	if c.Event != nil && c.Event.Cause == transfer.CauseAnswer {
		h.putOff = h.class == transfer.SendRetryLater
		if h.class == transfer.SendNotSent {
			h.sends--
		}
	}
	if c.Follow != transfer.PlanSend {
		return
	}
	if h.sends > 0 && !h.putOff {
		o.resendDecided(id, h)
	}
	h.sends++
	h.notFounds, h.putOff = nil, false
	if !c.Next.LastSentAt.Before(c.Next.ResendNotAfter) {
		o.fail(id, "decided at %v to send, and resend_not_after is %v", c.Next.LastSentAt, c.Next.ResendNotAfter)
	}
}

// resendDecided checks what must have been seen before a request that can have
// reached the bank is made again.
func (o *oracle) resendDecided(id string, h *history) {
	lag := max(o.w.policy.VisibilityLag, time.Second)
	over := h.sentAt.Add(o.w.policy.SendTimeout + lag - 2*MaxSkew) // from when on not found means something
	counts := slices.DeleteFunc(slices.Clone(h.notFounds), func(at time.Time) bool { return at.Before(over) })
	switch n := len(counts); {
	case n < 2:
		o.fail(id, "decided to send again after %d not found that count; the latest send began at %v", n, h.sentAt)
	case counts[n-1].Sub(counts[0]) < lag-2*MaxSkew:
		o.fail(id, "decided to send again after two not found %v apart; the lag is %v", counts[n-1].Sub(counts[0]), lag)
	}
	o.w.seen["resend"]++
}

// sendBegins looks at a send just before its first byte.
func (o *oracle) sendBegins(c *call) {
	h, in := o.of(c.id), o.instruction(c.id)
	r := c.send
	now := c.by.now()
	switch {
	case in.State == transfer.StateNone:
		o.fail(c.id, "sent before it was stored")
	case r.Key != transfer.InstructionKey(c.id):
		o.fail(c.id, "sent with another key than the settlement's: attempt %d", h.reaches+1)
	case !bytes.Equal(r.Body, h.created.Body) || r.Transfer != h.created.Transfer:
		o.fail(c.id, "sent other bytes than were stored first: %q and %q", r.Body, h.created.Body)
	case !now.Before(in.ResendNotAfter):
		o.fail(c.id, "sent at %v, resend_not_after is %v", now, in.ResendNotAfter)
	case now.Add(o.w.policy.SendTimeout).After(in.LeaseUntil):
		o.fail(c.id, "sent at %v, and the lease ends at %v", now, in.LeaseUntil)
	case h.inFlight > 0:
		o.fail(c.id, "two sends in flight")
	case in.Sends < h.reaches+1:
		o.fail(c.id, "sent while %d sends are counted and %d before it can have reached the bank", in.Sends, h.reaches)
	case h.reaches+1 > maxReaches:
		o.fail(c.id, "send %d that can reach the bank", h.reaches+1)
	case h.written > 0 && !r.EarlierMayHaveReached:
		o.fail(c.id, "sent as the first, after %d that can have reached the bank", h.written)
	}
	h.inFlight++
	h.reaches++
	h.sentAt = time.Now()
	o.w.seen["send"]++
}

// sendEnds looks at a send whose result the caller is about to see.
func (o *oracle) sendEnds(c *call) {
	h := o.of(c.id)
	h.inFlight--
	h.class, h.answered = c.class, c.by
	if c.class == transfer.SendNotSent {
		h.reaches--
	} else {
		h.written++
	}
	o.w.seen["send "+c.class.String()]++
}

// sendDies looks at a send whose instance has crashed.
func (o *oracle) sendDies(c *call) {
	h := o.of(c.id)
	h.inFlight--
	if c.half {
		h.written++
	}
}

// asked looks at an answer of the status API that the caller is about to see.
func (o *oracle) asked(c *call) {
	h := o.of(c.id)
	h.answered = c.by
	if c.reading == transfer.StatusNotFound {
		h.notFounds = append(h.notFounds, time.Now())
	}
	o.w.seen["status "+c.reading.String()]++
}

// instructionStays checks what never changes in an instruction, and its count of
// sends.
func (o *oracle) instructionStays(h *history, in transfer.Instruction) {
	switch {
	case !bytes.Equal(in.Body, h.created.Body) || in.Transfer != h.created.Transfer:
		o.fail(h.id, "the stored request has changed")
	case in.Sends != h.sends:
		o.fail(h.id, "counts %d sends, and there are %d", in.Sends, h.sends)
	case in.Sends > 0 && !in.ResendNotAfter.Equal(in.FirstSentAt.Add(o.w.policy.KeyLifetime*4/5)):
		o.fail(h.id, "resend_not_after %v, first sent %v", in.ResendNotAfter, in.FirstSentAt)
	case in.State == transfer.StateConfirmed && !o.moved(h.id, time.Now()):
		o.fail(h.id, "confirmed and not executed")
	}
}

// changes are the changes of state that are allowed.
var changes = map[transfer.State][]transfer.State{
	transfer.StateNone: {transfer.StateUncertain},
	transfer.StateUncertain: {
		transfer.StateUncertain, transfer.StateAccepted, transfer.StateConfirmed,
		transfer.StateRejected, transfer.StateReturned, transfer.StateManual,
	},
	transfer.StateAccepted: {
		transfer.StateAccepted, transfer.StateConfirmed, transfer.StateRejected,
		transfer.StateReturned, transfer.StateManual,
	},
	transfer.StateConfirmed: {transfer.StateConfirmed, transfer.StateReturned, transfer.StateManual},
	transfer.StateRejected:  {transfer.StateRejected, transfer.StateManual},
}

// events checks the steps of a history that were not looked at yet.
func (o *oracle) events(h *history) {
	for _, e := range o.rows(h.id).Events[h.version:] { // Violations has seen that they are numbered from 1
		h.version = e.Version
		if !slices.Contains(changes[e.Event.From], e.Event.To) {
			o.fail(h.id, "went from %s to %s", e.Event.From, e.Event.To)
		}
		if e.Event.To == transfer.StateConfirmed && e.Event.Cause != transfer.CauseStatus {
			o.fail(h.id, "confirmed by %s", e.Event.Cause)
		}
	}
}

// ledger checks the bank's entries against what is stored.
func (o *oracle) ledger(now time.Time) {
	for _, id := range o.ids {
		h := o.byID[id]
		if !h.entered {
			continue
		}
		executed, gone := 0, false // gone: executed, not returned, and the bank did not lie
		for _, e := range o.w.bank.Entries[id] {
			if e.Executed(now) {
				executed++
				gone = gone || e.Word(now) == WordExecuted && !e.Fate.Lies
			}
		}
		if executed == 1 && !h.executed {
			h.executed = true
			if len(h.notFounds) > 0 {
				o.w.seen["executed after not found"]++
			}
		}
		if executed > 1 {
			o.fail(id, "the bank has executed %d transfers", executed)
		}
		if gone && o.reversed(id) {
			o.fail(id, "reversed, and the bank has executed it")
		}
	}
}

func (o *oracle) reversed(id string) bool { return len(o.rows(id).Reversals) > 0 }

// moved tells whether the bank has executed what it was asked for.
func (o *oracle) moved(id string, now time.Time) bool {
	return slices.ContainsFunc(o.w.bank.Entries[id], func(e *Entry) bool { return e.Executed(now) && !e.Fate.OtherAmount })
}

// atTheEnd checks that nothing is left open, and that what is stored is what the
// bank did and what was published. honestSince is since when the bank has had no
// faults; zero where it still has.
func (o *oracle) atTheEnd(honestSince time.Time) {
	o.check()
	o.whole()
	o.allSettled()
	now := time.Now()
	for _, id := range o.ids {
		o.w.seen["payout settled"]++
		in := o.instruction(id)
		if in.State == transfer.StateNone {
			continue
		}
		o.w.seen["payout settled, with a transfer"]++
		o.w.seen["end "+string(in.State)]++
		switch {
		case o.w.watched && !in.NextCheckAt.IsZero():
			o.fail(id, "still due at %v", in.NextCheckAt)
		case !in.State.Final() && in.State != transfer.StateManual:
			o.fail(id, "ends %s", in.State)
		case in.State == transfer.StateReturned && !o.word(id, WordReturned, now):
			o.fail(id, "ends returned, and the bank returned nothing")
		}
		if o.w.watched && !honestSince.IsZero() {
			o.liesFound(in, honestSince)
		}
	}
}

// allDecided tells whether every instruction has come to a state that is final, or
// a person's.
func (o *oracle) allDecided() bool {
	for _, id := range o.ids {
		in := o.instruction(id)
		if in.State != transfer.StateNone && !in.State.Final() && in.State != transfer.StateManual {
			return false
		}
	}
	return true
}

// liesFound checks that a transfer which the bank executed after it had rejected
// it has ended with a person, and loudly.
func (o *oracle) liesFound(in transfer.Instruction, honestSince time.Time) {
	id := in.SettlementID
	for _, e := range o.w.bank.Entries[id] {
		shown := e.Arrived.Add(max(e.Fate.After, e.Fate.ShownAfter))
		watched := in.FinalAt.Add(9 * 24 * time.Hour)
		caught := !in.FinalAt.IsZero() && shown.Before(watched) && honestSince.Before(watched)
		if !e.Fate.Lies || !caught || !o.reversed(id) {
			continue
		}
		o.w.seen["end of a lie"]++
		if in.State != transfer.StateManual || !o.of(id).critical {
			o.fail(id, "the bank executed what it had rejected, and it ends %s, critical %t", in.State, o.of(id).critical)
		}
	}
}

func (o *oracle) word(id string, word Word, now time.Time) bool {
	return slices.ContainsFunc(o.w.bank.Entries[id], func(e *Entry) bool { return e.Word(now) == word })
}
