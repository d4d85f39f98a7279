package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/snapshot"
)

// maxReaches is of banks.md §4, written again: the code under test is not asked
// what it should do.
const maxReaches = 4 // the first send and three resends

// oracle watches everything that a sequence does and fails it at the first step
// that breaks a promise.
type oracle struct {
	w       *world
	stale   bool // the store may have changed since the last snapshot
	expired bool // receipts were deleted
	last    snapshot.Snapshot
	byID    map[string]*history
	keys    map[uuid.UUID]string
}

// history is what the oracle knows about one settlement.
type history struct {
	movement *settle.Movement // as first seen
	created  *settle.Instruction
	version  int64 // of the latest event that was checked
	applied  int   // deliveries that were told so

	sends     int64 // as the row must count them
	reaches   int64 // sends that can have reached the bank
	written   int64 // sends of which something was written
	putOff    bool  // the bank asked for the same again, and that is recorded
	inFlight  int
	class     settle.SendClass // of the latest answer to a send
	notFounds []time.Time      // answers of the status API since the latest send
	critical  bool
	executed  bool      // seen to be
	answered  *instance // by the bank, and has not begun to record it
}

func newOracle(w *world) *oracle {
	return &oracle{w: w, byID: map[string]*history{}, keys: map[uuid.UUID]string{}}
}

func (o *oracle) of(id string) *history {
	h := o.byID[id]
	if h == nil {
		h = &history{}
		o.byID[id] = h
		o.keys[settle.InstructionKey(id)] = id
	}
	return h
}

func (o *oracle) settlement(key uuid.UUID) string { return o.keys[key] }

func (o *oracle) fail(id, format string, args ...any) {
	o.w.t.Fatalf("%s: %s", id, fmt.Sprintf(format, args...))
}

// instruction returns what is stored now.
func (o *oracle) instruction(id string) settle.Instruction {
	o.refresh()
	for _, in := range o.last.Instructions {
		if in.SettlementID == id {
			return in
		}
	}
	return settle.Instruction{}
}

func (o *oracle) refresh() {
	if o.stale {
		o.last, o.stale = o.w.store.Snapshot(), false
	}
}

// settled looks at a call of Settle that the store has carried out.
func (o *oracle) settled(s settle.Settlement, err error) {
	o.stale = true
	h := o.of(s.Payout.SettlementID)
	if err != nil || h.created != nil {
		return
	}
	if in := o.instruction(s.Payout.SettlementID); in.State != settle.InstructionNone {
		h.sends, h.created = 1, s.Instruction
	}
}

// changed looks at a change that the store has made.
func (o *oracle) changed(id string, c settle.Change) {
	o.stale = true
	h := o.of(id)
	h.critical = h.critical || c.Level >= settle.LevelCritical
	if c.Event != nil && c.Event.Cause == settle.CauseAnswer {
		h.putOff = h.class == settle.SendRetryLater
		if h.class == settle.SendNotSent {
			h.sends--
		}
	}
	if c.Follow != settle.PlanSend {
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
	n := len(h.notFounds)
	switch {
	case n < 2:
		o.fail(id, "decided to send again after %d not found", n)
	case h.notFounds[n-1].Sub(h.notFounds[0]) < lag-2*MaxSkew:
		o.fail(id, "decided to send again after two not found %v apart; the lag is %v", h.notFounds[n-1].Sub(h.notFounds[0]), lag)
	}
	o.w.seen["resend"]++
}

// sendBegins looks at a send just before its first byte.
func (o *oracle) sendBegins(c *call) {
	h, in := o.of(c.id), o.instruction(c.id)
	r := c.send
	now := time.Now().Add(c.by.skew)
	switch {
	case in.State == settle.InstructionNone:
		o.fail(c.id, "sent before it was stored")
	case r.Key != settle.InstructionKey(c.id):
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
	o.w.seen["send"]++
}

// sendEnds looks at a send whose result the caller is about to see.
func (o *oracle) sendEnds(c *call) {
	h := o.of(c.id)
	h.inFlight--
	h.class, h.answered = c.class, c.by
	if c.class == settle.SendNotSent {
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
	if c.reading == settle.StatusNotFound {
		h.notFounds = append(h.notFounds, time.Now())
	}
	o.w.seen["status "+c.reading.String()]++
}

// delivered looks at the answer to a delivery.
func (o *oracle) delivered(p payout, r settle.Result, err error) {
	if err != nil {
		o.w.seen["delivery failed"]++
		return
	}
	o.stale = true
	o.refresh()
	h, m := o.of(p.SettlementID), o.last.Movement(p.SettlementID)
	o.w.seen["delivery "+r.Outcome.String()]++
	switch {
	case m == nil:
		o.fail(p.SettlementID, "answered %s without a movement", r.Outcome)
	case r.Outcome == settle.OutcomeConflict:
		if m.PayloadHash == p.Hash() {
			o.fail(p.SettlementID, "called a conflict with itself")
		}
	case m.PayloadHash != p.Hash():
		o.fail(p.SettlementID, "answered %s, and something else was settled", r.Outcome)
	case r.Outcome == settle.OutcomeApplied:
		if h.applied++; h.applied > 1 {
			o.fail(p.SettlementID, "applied twice")
		}
	}
}

// check looks at the whole state.
func (o *oracle) check() {
	if o.stale {
		o.refresh()
		if found := o.last.Violations(o.expired); found != nil {
			o.w.t.Fatalf("%s", strings.Join(found, "\n"))
		}
		o.movements()
		o.events()
		for _, in := range o.last.Instructions {
			o.row(in)
		}
	}
	now := time.Now()
	for id, h := range o.w.bank.Entries {
		o.ledger(id, h, now)
	}
	for _, in := range o.last.Instructions {
		if in.State == settle.InstructionConfirmed && !o.moved(in.SettlementID, now) {
			o.fail(in.SettlementID, "confirmed and not executed")
		}
	}
}

// movements checks that a movement never changes.
func (o *oracle) movements() {
	for i := range o.last.Movements {
		m := &o.last.Movements[i]
		h := o.of(m.SettlementID)
		if h.movement == nil {
			h.movement = m
		}
		if *m != *h.movement {
			o.fail(m.SettlementID, "the movement has changed: %+v, first %+v", *m, *h.movement)
		}
	}
}

// row checks what never changes in an instruction, and its count of sends.
func (o *oracle) row(in settle.Instruction) {
	h := o.of(in.SettlementID)
	switch {
	case !bytes.Equal(in.Body, h.created.Body) || in.Transfer != h.created.Transfer:
		o.fail(in.SettlementID, "the stored request has changed")
	case in.Sends != h.sends:
		o.fail(in.SettlementID, "counts %d sends, and there are %d", in.Sends, h.sends)
	case in.Sends > 0 && !in.ResendNotAfter.Equal(in.FirstSentAt.Add(o.w.policy.KeyLifetime*4/5)):
		o.fail(in.SettlementID, "resend_not_after %v, first sent %v", in.ResendNotAfter, in.FirstSentAt)
	}
}

// changes are the changes of state that design §7 allows.
var changes = map[settle.InstructionState][]settle.InstructionState{
	settle.InstructionNone: {settle.InstructionUncertain},
	settle.InstructionUncertain: {
		settle.InstructionUncertain, settle.InstructionAccepted, settle.InstructionConfirmed,
		settle.InstructionRejected, settle.InstructionReturned, settle.InstructionManual,
	},
	settle.InstructionAccepted: {
		settle.InstructionAccepted, settle.InstructionConfirmed, settle.InstructionRejected,
		settle.InstructionReturned, settle.InstructionManual,
	},
	settle.InstructionConfirmed: {settle.InstructionConfirmed, settle.InstructionReturned, settle.InstructionManual},
	settle.InstructionRejected:  {settle.InstructionRejected, settle.InstructionManual},
}

// events checks the steps of the histories that were not looked at yet.
func (o *oracle) events() {
	for _, e := range o.last.Events {
		h := o.of(e.SettlementID)
		if e.Version <= h.version {
			continue
		}
		h.version = e.Version
		if !slices.Contains(changes[e.Event.From], e.Event.To) {
			o.fail(e.SettlementID, "went from %s to %s", e.Event.From, e.Event.To)
		}
		if e.Event.To == settle.InstructionConfirmed && e.Event.Cause != settle.CauseStatus {
			o.fail(e.SettlementID, "confirmed by %s", e.Event.Cause)
		}
	}
}

// ledger checks the bank's entries of one settlement against what is stored.
func (o *oracle) ledger(id string, entries []*Entry, now time.Time) {
	executed, gone := 0, false // gone: executed, not returned, and the bank did not lie
	for _, e := range entries {
		if e.Executed(now) {
			executed++
			gone = gone || e.Word(now) == WordExecuted && !e.Fate.Lies
		}
	}
	if h := o.of(id); executed == 1 && !h.executed {
		h.executed = true
		if len(h.notFounds) > 0 {
			o.w.seen["executed after not found"]++
		}
	}
	if executed > 1 {
		o.fail(id, "executed %d times", executed)
	}
	if gone && o.reversal(id) {
		o.fail(id, "reversed, and the bank has executed it")
	}
}

func (o *oracle) reversal(id string) bool {
	return slices.ContainsFunc(o.last.Reversals, func(r snapshot.Reversal) bool { return r.SettlementID == id })
}

// moved tells whether the bank has executed what it was asked for.
func (o *oracle) moved(id string, now time.Time) bool {
	return slices.ContainsFunc(o.w.bank.Entries[id], func(e *Entry) bool { return e.Executed(now) && !e.Fate.OtherAmount })
}

// atTheEnd checks that nothing is left open, and that what is stored is what the
// bank did. honestSince is since when the bank has had no faults; zero where it
// still has.
func (o *oracle) atTheEnd(honestSince time.Time) {
	o.stale = true
	o.check()
	now := time.Now()
	for _, in := range o.last.Instructions {
		id := in.SettlementID
		o.w.seen["end "+string(in.State)]++
		switch {
		case !in.NextCheckAt.IsZero():
			o.fail(id, "still due at %v", in.NextCheckAt)
		case !in.State.Final() && in.State != settle.InstructionManual:
			o.fail(id, "ends %s", in.State)
		case in.State == settle.InstructionReturned && !o.word(id, WordReturned, now):
			o.fail(id, "ends returned, and the bank returned nothing")
		}
		if honestSince.IsZero() {
			continue
		}
		for _, e := range o.w.bank.Entries[id] {
			shown := e.Arrived.Add(max(e.Fate.After, e.Fate.ShownAfter))
			watched := in.FinalAt.Add(9 * 24 * time.Hour)
			caught := !in.FinalAt.IsZero() && shown.Before(watched) && honestSince.Before(watched)
			if !e.Fate.Lies || !caught || !o.reversal(id) {
				continue
			}
			o.w.seen["end of a lie"]++
			if in.State != settle.InstructionManual || !o.of(id).critical {
				o.fail(id, "the bank executed what it had rejected, and it ends %s, critical %t", in.State, o.of(id).critical)
			}
		}
	}
}

func (o *oracle) word(id string, word Word, now time.Time) bool {
	return slices.ContainsFunc(o.w.bank.Entries[id], func(e *Entry) bool { return e.Word(now) == word })
}
