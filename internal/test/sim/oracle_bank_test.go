package sim

import (
	"bytes"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// maxReaches is the limit of sends that can have reached the bank: one and three
// resends. The oracle does not use the constant of the code under test.
const maxReaches = 4

// bankHistory is the required state of a settlement's transfer.
type bankHistory struct {
	sends     int64 // in the row
	reaches   int64 // sends that can have reached the bank
	written   int64 // sends of which something was written
	deferred  bool  // the bank deferred the latest send, and the row records that
	inFlight  int
	class     transfer.SendClass // of the latest answer to a send
	sentAt    time.Time          // the beginning of the latest send
	notFounds []time.Time        // answers of the status API since then
	critical  bool
	entered   bool      // in the bank's ledger
	executed  bool      // as of the latest check
	answered  *instance // has an answer of the bank that it has not begun to record
}

// changed records a change that the store carried out.
func (o *oracle) changed(id string, c transfer.Change) {
	h := o.markChanged(id)
	h.critical = h.critical || c.Level >= transfer.LevelCritical
	if c.Event != nil && c.Event.Cause == transfer.CauseAnswer {
		h.deferred = h.class == transfer.SendRetryLater
		if h.class == transfer.SendNotSent {
			h.sends--
		}
	}
	if c.Follow != transfer.PlanSend {
		return
	}
	if h.sends > 0 && !h.deferred {
		o.checkResend(id, h)
	}
	h.sends++
	h.notFounds, h.deferred = nil, false
	if !c.Next.LastSentAt.Before(c.Next.ResendNotAfter) {
		o.fail(id, "decided at %v to send, and resend_not_after is %v", c.Next.LastSentAt, c.Next.ResendNotAfter)
	}
}

// checkResend checks that two not-founds, a lag apart, precede a resend of a request
// that can have reached the bank.
func (o *oracle) checkResend(id string, h *history) {
	lag := max(o.w.policy.VisibilityLag, time.Second)
	from := h.sentAt.Add(o.w.policy.SendTimeout + lag - 2*MaxSkew) // earlier not-founds prove nothing
	counting := slices.DeleteFunc(slices.Clone(h.notFounds), func(at time.Time) bool { return at.Before(from) })
	switch n := len(counting); {
	case n < 2:
		o.fail(id, "decided to send again after %d not-founds that count; the latest send began at %v", n, h.sentAt)
	case counting[n-1].Sub(counting[0]) < lag-2*MaxSkew:
		o.fail(id, "decided to send again after two not-founds %v apart; the lag is %v", counting[n-1].Sub(counting[0]), lag)
	}
	o.w.seen["resend"]++
}

// checkSend checks a send before its first byte.
func (o *oracle) checkSend(c *call) {
	h, in := o.history(c.id), o.instruction(c.id)
	r := c.send
	now := c.by.now()
	switch {
	case in.State == transfer.StateNone:
		o.fail(c.id, "sent before it was stored")
	case r.Key != transfer.InstructionKey(c.id):
		o.fail(c.id, "sent with another key than the settlement's: attempt %d", h.reaches+1)
	case !bytes.Equal(r.Body, h.created.Body) || r.Transfer != h.created.Transfer:
		o.fail(c.id, "sent %q, and %q was stored first", r.Body, h.created.Body)
	case !now.Before(in.ResendNotAfter):
		o.fail(c.id, "sent at %v, resend_not_after is %v", now, in.ResendNotAfter)
	case now.Add(o.w.policy.SendTimeout).After(in.LeaseUntil):
		o.fail(c.id, "sent at %v, and the lease ends at %v", now, in.LeaseUntil)
	case h.inFlight > 0:
		o.fail(c.id, "two sends in flight")
	case in.Sends < h.reaches+1:
		o.fail(c.id, "sent while the row counts %d sends, and %d earlier ones can have reached the bank", in.Sends, h.reaches)
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

// sendEnded records a send whose result the caller is about to get.
func (o *oracle) sendEnded(c *call) {
	h := o.history(c.id)
	h.inFlight--
	h.class, h.answered = c.class, c.by
	if c.class == transfer.SendNotSent {
		h.reaches--
	} else {
		h.written++
	}
	o.w.seen["send "+c.class.String()]++
}

// sendCrashed records a send whose instance has crashed.
func (o *oracle) sendCrashed(c *call) {
	h := o.history(c.id)
	h.inFlight--
	if c.done {
		h.written++
	}
}

// statusEnded records a status answer that the caller is about to get.
func (o *oracle) statusEnded(c *call) {
	h := o.history(c.id)
	h.answered = c.by
	if c.reading == transfer.StatusNotFound {
		h.notFounds = append(h.notFounds, time.Now())
	}
	o.w.seen["status "+c.reading.String()]++
}

// checkInstruction checks an instruction's constant columns, its count of sends, and
// that a confirmed one is executed.
func (o *oracle) checkInstruction(h *history, in transfer.Instruction) {
	switch {
	case !bytes.Equal(in.Body, h.created.Body) || in.Transfer != h.created.Transfer:
		o.fail(h.id, "the stored request has changed")
	case in.Sends != h.sends:
		o.fail(h.id, "the row counts %d of %d sends", in.Sends, h.sends)
	case in.Sends > 0 && !in.ResendNotAfter.Equal(in.FirstSentAt.Add(o.w.policy.KeyLifetime*4/5)):
		o.fail(h.id, "resend_not_after %v, first sent %v", in.ResendNotAfter, in.FirstSentAt)
	case in.State == transfer.StateConfirmed && !o.anyEntry(h.id, func(e *Entry) bool { return e.Executed(time.Now()) && !e.Processing.OtherAmount }):
		o.fail(h.id, "confirmed and not executed")
	}
}

// transitions are the allowed changes of state.
var transitions = map[transfer.State][]transfer.State{
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

// checkEvents checks the events since the last check.
func (o *oracle) checkEvents(h *history) {
	for _, e := range o.rows(h.id).Events[h.version:] { // checkRules has checked that the versions begin at 1
		h.version = e.Version
		if !slices.Contains(transitions[e.Event.From], e.Event.To) {
			o.fail(h.id, "went from %s to %s", e.Event.From, e.Event.To)
		}
		if e.Event.To == transfer.StateConfirmed && e.Event.Cause != transfer.CauseStatus {
			o.fail(h.id, "confirmed by %s", e.Event.Cause)
		}
	}
}

// checkBank checks the bank's ledger against the rows.
func (o *oracle) checkBank(now time.Time) {
	for _, id := range o.ids {
		h := o.byID[id]
		if !h.entered {
			continue
		}
		executed := 0
		for _, e := range o.w.bank.Entries[id] {
			if e.Executed(now) {
				executed++
			}
			if e.Status(now) == EntryExecuted && !e.Processing.RejectedFirst && o.reversed(id) {
				o.fail(id, "reversed, and the bank has executed it")
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
	}
}

func (o *oracle) reversed(id string) bool { return len(o.rows(id).Reversals) > 0 }

func (o *oracle) anyEntry(id string, matches func(*Entry) bool) bool {
	return slices.ContainsFunc(o.w.bank.Entries[id], matches)
}

// decided reports whether the instruction is final or waits for a manual decision.
func decided(in transfer.Instruction) bool {
	return in.State == transfer.StateNone || in.State.Final() || in.State == transfer.StateManual
}

func (o *oracle) allDecided() bool {
	return !slices.ContainsFunc(o.ids, func(id string) bool { return !decided(o.instruction(id)) })
}

// checkEnd checks that nothing is open, and that the rows agree with the bank and with
// the published messages. honestSince is the end of the bank's faults; zero means that
// it still has faults.
func (o *oracle) checkEnd(honestSince time.Time) {
	o.check()
	o.checkAllRows()
	o.checkMessages()
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
		case o.w.watchAll && !in.NextCheckAt.IsZero():
			o.fail(id, "still due at %v", in.NextCheckAt)
		case !decided(in):
			o.fail(id, "ends %s", in.State)
		case in.State == transfer.StateReturned && !o.anyEntry(id, func(e *Entry) bool { return e.Status(now) == EntryReturned }):
			o.fail(id, "ends returned, and the bank returned nothing")
		}
		if o.w.watchAll && !honestSince.IsZero() {
			o.checkRejectedFirst(in, honestSince)
		}
	}
}

// checkRejectedFirst checks that an instruction ends manual and critical if the bank
// executed its transfer after a rejection, and showed that while it was watched.
func (o *oracle) checkRejectedFirst(in transfer.Instruction, honestSince time.Time) {
	id := in.SettlementID
	for _, e := range o.w.bank.Entries[id] {
		shown := e.Arrived.Add(max(e.Processing.After, e.Processing.ShownAfter))
		watched := in.FinalAt.Add(9 * 24 * time.Hour)
		visible := !in.FinalAt.IsZero() && shown.Before(watched) && honestSince.Before(watched)
		if !e.Processing.RejectedFirst || !visible || !o.reversed(id) {
			continue
		}
		o.w.seen["end after rejected, then executed"]++
		if in.State != transfer.StateManual || !o.history(id).critical {
			o.fail(id, "the bank executed a rejected transfer, and it ends %s, critical %t", in.State, o.history(id).critical)
		}
	}
}
