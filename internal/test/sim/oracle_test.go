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

// oracle watches everything that a sequence does and fails it at the first step
// that breaks a promise. It knows what the store must hold from what it saw go in.
type oracle struct {
	w       *world
	ids     []string // settlement IDs, in the order in which they came up
	byID    map[string]*history
	keys    map[uuid.UUID]string
	changes []*history // since the last check

	quarantine      map[string]*kept // by identity
	quarantineStale bool
	messages        map[*Message]bool // acknowledged, and not sought since
}

// history is what the oracle knows about one settlement.
type history struct {
	id      string
	rows    audit.Snapshot
	stale   bool // rows are to be read again
	changed bool // and to be checked

	content   *content         // as settled first
	movement  *settle.Movement // as first seen
	expired   bool             // the receipt
	created   *transfer.Instruction
	version   int64 // of the latest event that was checked
	applied   int   // deliveries that were told so
	conflicts map[payout.Hash]*kept
	bankHistory
}

func newOracle(w *world) *oracle {
	return &oracle{w: w, byID: map[string]*history{}, keys: map[uuid.UUID]string{}, quarantine: map[string]*kept{}, messages: map[*Message]bool{}}
}

func (o *oracle) of(id string) *history {
	h := o.byID[id]
	if h == nil {
		h = &history{id: id, conflicts: map[payout.Hash]*kept{}}
		o.byID[id] = h
		o.ids = append(o.ids, id)
		o.keys[transfer.InstructionKey(id)] = id
	}
	return h
}

func (o *oracle) settlement(key uuid.UUID) string { return o.keys[key] }

func (o *oracle) fail(id, format string, args ...any) {
	for i, arg := range args {
		if at, isTime := arg.(time.Time); isTime {
			args[i] = strings.TrimSpace(o.clock(at))
		}
	}
	o.w.fail("%s: "+format, append([]any{id}, args...)...)
}

// clock shows a time as a story does.
func (o *oracle) clock(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return clock(at.Sub(o.w.began))
}

// touch notes that what is stored under a settlement ID may have changed.
func (o *oracle) touch(id string) *history {
	h := o.of(id)
	h.stale = true
	if !h.changed {
		h.changed = true
		o.changes = append(o.changes, h)
	}
	return h
}

// rows returns what is stored under a settlement ID now.
func (o *oracle) rows(id string) audit.Snapshot {
	h := o.of(id)
	if h.stale {
		h.rows, h.stale = o.w.store.SnapshotOf(id), false
	}
	return h.rows
}

// instruction returns what is stored now.
func (o *oracle) instruction(id string) transfer.Instruction {
	if in := o.rows(id).Instructions; len(in) > 0 {
		return in[0]
	}
	return transfer.Instruction{}
}

// settled looks at a call of Settle that the store has carried out.
func (o *oracle) settled(s settle.Settlement, r settle.Result, err error) {
	if err != nil {
		return
	}
	id := s.Payout.SettlementID
	h := o.touch(id)
	switch {
	case r.Outcome == settle.OutcomeConflict:
		h.conflict(r.PayloadHash).runs++
	case h.content == nil:
		means := o.w.producer.meanings[s.Message.ID]
		h.content = &means.content
	}
	if in := o.instruction(id); h.created == nil && in.State != transfer.StateNone {
		h.sends, h.created = 1, s.Instruction
	}
}

// expired notes that the receipt was deleted.
func (o *oracle) expired(id string) { o.touch(id).expired = true }

// check looks at everything that may have changed.
func (o *oracle) check() {
	for _, h := range o.changes {
		rows := o.rows(h.id)
		if found := rows.Violations(h.expired); found != nil {
			o.w.fail("what is stored is wrong: %s", strings.Join(found, "\n"))
		}
		o.movementStays(h, rows.Movement(h.id))
		o.conflictsStay(h)
		o.events(h)
		for _, in := range rows.Instructions {
			o.instructionStays(h, in)
		}
		h.changed = false
	}
	o.changes = o.changes[:0]
	o.quarantineStays()
	o.ledger(time.Now())
}

// movementStays checks that a movement never changes and never goes.
func (o *oracle) movementStays(h *history, m *settle.Movement) {
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

// whole checks the state as a whole, and that nothing of it was overlooked.
func (o *oracle) whole() {
	all, expired := o.w.store.Snapshot(), false
	for _, id := range o.ids {
		expired = expired || o.of(id).expired
	}
	if found := all.Violations(expired); found != nil {
		o.w.fail("what is stored is wrong: %s", strings.Join(found, "\n"))
	}
	for _, m := range all.Movements {
		if h := o.of(m.SettlementID); h.movement == nil || *h.movement != m {
			o.fail(m.SettlementID, "a movement that no step has made: %+v", m)
		}
	}
	for _, in := range all.Instructions {
		if seen := o.instruction(in.SettlementID); seen.Version != in.Version || seen.State != in.State || seen.Sends != in.Sends {
			o.fail(in.SettlementID, "an instruction that no step has made: %+v", in)
		}
	}
}

// effects returns what has been done to the ledger and at the bank.
func (o *oracle) effects() string {
	var b strings.Builder
	for _, id := range o.ids {
		rows := o.rows(id)
		fmt.Fprintf(&b, "%s: %v %v %s, %d transfers\n", id, rows.Movements, rows.Reversals, o.instruction(id).State, len(o.w.bank.Entries[id]))
	}
	return b.String()
}

// ending tells what there is in the end about the settlements that came up, for
// the story of a broken promise.
func (o *oracle) ending() string {
	var b strings.Builder
	at := o.clock
	for _, id := range o.ids {
		rows := o.w.store.SnapshotOf(id)
		for _, m := range rows.Movements {
			fmt.Fprintf(&b, "%s  %s is settled: %d %s to %q\n", at(m.RecordedAt), id, m.AmountCents, m.Currency, m.CreditorAccount)
		}
		for _, c := range rows.Conflicts {
			fmt.Fprintf(&b, "%s  conflict about %v, message %s, delivered %d times\n", at(c.FirstSeenAt), c.Fields, c.MessageID, c.Deliveries)
		}
		for _, e := range rows.Events {
			text := fmt.Sprintf("instruction %s, %s: %s", e.Event.To, e.Event.Cause, e.Event.Detail)
			fmt.Fprintf(&b, "%s  %s\n", at(e.RecordedAt), strings.TrimSuffix(text, ": "))
		}
		for _, in := range rows.Instructions {
			fmt.Fprintf(&b, "%s  is the end of sending; %d sends are counted\n", at(in.ResendNotAfter), in.Sends)
		}
		for _, r := range rows.Reversals {
			fmt.Fprintf(&b, "%s  reversed: %s\n", at(r.RecordedAt), r.Reason)
		}
		for _, e := range o.w.bank.Entries[id] {
			fmt.Fprintf(&b, "%s  the transfer arrived at the bank; it is %s\n", at(e.Arrived), e.Word(time.Now()))
		}
	}
	for _, q := range o.w.store.Snapshot().Quarantined {
		fmt.Fprintf(&b, "%s  message %s in quarantine: %s, delivered %d times\n", at(q.QuarantinedAt), q.MessageID, strings.TrimSpace(string(q.Reason)+" "+q.Member), q.Deliveries)
	}
	return b.String()
}
