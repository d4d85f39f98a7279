package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// oracle fails a sequence at the first step that breaks a promise. It derives the
// required state from the calls that the store carried out, not from the code under
// test.
type oracle struct {
	w         *world
	ids       []string // settlement IDs in the order of their first use
	byID      map[string]*history
	keys      map[uuid.UUID]string
	unchecked []*history // since the last check

	quarantine        map[string]*kept // by identity
	quarantineChanged bool
	acked             map[*Message]bool // acknowledged since the last seek
}

// history is the required state of one settlement.
type history struct {
	id      string
	rows    audit.Snapshot
	stale   bool // rows must be read again
	changed bool // rows must be checked

	content   *content         // of the first settled message
	movement  *settle.Movement // at first sight
	expired   bool             // the receipt
	created   *transfer.Instruction
	version   int64 // of the latest checked event
	applied   int   // deliveries answered applied
	conflicts map[payout.Hash]*kept
	bankHistory
}

func newOracle(w *world) *oracle {
	return &oracle{w: w, byID: map[string]*history{}, keys: map[uuid.UUID]string{}, quarantine: map[string]*kept{}, acked: map[*Message]bool{}}
}

func (o *oracle) history(id string) *history {
	h := o.byID[id]
	if h == nil {
		h = &history{id: id, conflicts: map[payout.Hash]*kept{}}
		o.byID[id] = h
		o.ids = append(o.ids, id)
		o.keys[transfer.InstructionKey(id)] = id
	}
	return h
}

func (o *oracle) fail(id, format string, args ...any) {
	for i, arg := range args {
		if at, isTime := arg.(time.Time); isTime {
			args[i] = strings.TrimSpace(o.clock(at))
		}
	}
	o.w.fail("%s: "+format, append([]any{id}, args...)...)
}

// clock formats a time as stories do.
func (o *oracle) clock(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return clock(at.Sub(o.w.began))
}

// markChanged marks the rows of a settlement ID for reading and checking.
func (o *oracle) markChanged(id string) *history {
	h := o.history(id)
	h.stale = true
	if !h.changed {
		h.changed = true
		o.unchecked = append(o.unchecked, h)
	}
	return h
}

// rows returns the present rows of a settlement ID.
func (o *oracle) rows(id string) audit.Snapshot {
	h := o.history(id)
	if h.stale {
		h.rows, h.stale = o.w.store.SnapshotOf(id), false
	}
	return h.rows
}

// instruction returns the present instruction of a settlement ID.
func (o *oracle) instruction(id string) transfer.Instruction {
	if in := o.rows(id).Instructions; len(in) > 0 {
		return in[0]
	}
	return transfer.Instruction{}
}

// settled records a Settle call that the store carried out.
func (o *oracle) settled(s settle.Settlement, r settle.Result, err error) {
	if err != nil {
		return
	}
	id := s.Payout.SettlementID
	h := o.markChanged(id)
	switch {
	case r.Outcome == settle.OutcomeConflict:
		o.record(h.conflict(r.PayloadHash), id, r.Known)
	case h.content == nil:
		means := o.w.producer.meanings[s.Message.ID]
		h.content = &means.content
	}
	if in := o.instruction(id); h.created == nil && in.State != transfer.StateNone {
		h.sends, h.created = 1, s.Instruction
	}
}

// check checks the rows that may have changed, and the bank's ledger.
func (o *oracle) check() {
	for _, h := range o.unchecked {
		rows := o.rows(h.id)
		o.checkRules(rows, h.expired)
		o.checkMovement(h, rows.Movement(h.id))
		o.checkConflicts(h)
		o.checkEvents(h)
		for _, in := range rows.Instructions {
			o.checkInstruction(h, in)
		}
		h.changed = false
	}
	o.unchecked = o.unchecked[:0]
	o.checkQuarantine()
	o.checkBank(time.Now())
}

// checkRules checks the rules of internal/audit.
func (o *oracle) checkRules(rows audit.Snapshot, receiptsExpired bool) {
	if found := rows.Violations(receiptsExpired); found != nil {
		o.w.fail("the rows break a rule: %s", strings.Join(found, "\n"))
	}
}

// checkMovement checks that a movement persists unchanged.
func (o *oracle) checkMovement(h *history, m *settle.Movement) {
	if h.movement == nil {
		h.movement = m
	}
	switch {
	case m == nil && h.movement != nil:
		o.fail(h.id, "the movement is gone")
	case m != nil && *m != *h.movement:
		o.fail(h.id, "the movement has changed (-first +now):\n%s", cmp.Diff(*h.movement, *m))
	}
}

// checkAllRows checks the rows of all settlements together, and that none of them
// escaped check.
func (o *oracle) checkAllRows() {
	all, expired := o.w.store.Snapshot(), false
	for _, id := range o.ids {
		expired = expired || o.history(id).expired
	}
	o.checkRules(all, expired)
	for _, m := range all.Movements {
		if h := o.history(m.SettlementID); h.movement == nil || *h.movement != m {
			o.fail(m.SettlementID, "an unchecked movement: %+v", m)
		}
	}
	for _, in := range all.Instructions {
		if seen := o.instruction(in.SettlementID); seen.Version != in.Version || seen.State != in.State || seen.Sends != in.Sends {
			o.fail(in.SettlementID, "an unchecked instruction: %+v", in)
		}
	}
}

// effects lists the effects in the ledger and at the bank.
func (o *oracle) effects() string {
	var b strings.Builder
	for _, id := range o.ids {
		rows := o.rows(id)
		fmt.Fprintf(&b, "%s: %v %v %s, %d transfers\n", id, rows.Movements, rows.Reversals, o.instruction(id).State, len(o.w.bank.Entries[id]))
	}
	return b.String()
}

// finalState lists the rows and the bank's entries for the report of a broken promise.
func (o *oracle) finalState() string {
	var b strings.Builder
	add := func(at time.Time, format string, args ...any) {
		fmt.Fprintf(&b, "%s  %s\n", o.clock(at), strings.TrimRight(fmt.Sprintf(format, args...), ": "))
	}
	for _, id := range o.ids {
		rows := o.w.store.SnapshotOf(id)
		for _, m := range rows.Movements {
			add(m.RecordedAt, "%s is settled: %d %s to %q", id, m.AmountCents, m.Currency, m.CreditorAccount)
		}
		for _, c := range rows.Conflicts {
			add(c.SeenAt, "conflict about %v, message %s", c.Fields, c.MessageID)
		}
		for _, e := range rows.Events {
			add(e.RecordedAt, "instruction %s, %s: %s", e.Event.To, e.Event.Cause, e.Event.Detail)
		}
		for _, in := range rows.Instructions {
			add(in.ResendNotAfter, "resend_not_after; %d sends are counted", in.Sends)
		}
		for _, r := range rows.Reversals {
			add(r.RecordedAt, "reversed: %s", r.Reason)
		}
		for _, e := range o.w.bank.Entries[id] {
			add(e.Arrived, "the transfer arrived at the bank; it is %s", e.Status(time.Now()))
		}
	}
	for _, q := range o.w.store.Snapshot().Quarantined {
		add(q.QuarantinedAt, "message %s in quarantine: %s %s", q.MessageID, q.Reason, q.Member)
	}
	return b.String()
}
