// Package snapshot holds everything that a store keeps as plain values, and the
// one check of what must be true of it.
//
// It exists so that a test, a simulation or the demo can look at the whole state
// after a step, whatever store it is in, and not only at the rows it thinks
// about.
package snapshot

import (
	"fmt"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
)

// Snapshot is the state of a store at one moment. Each slice is sorted by the
// key of its table.
type Snapshot struct {
	Movements    []settle.Movement
	Receipts     []Receipt
	Reversals    []Reversal
	Instructions []settle.Instruction
	Events       []InstructionEvent
	Conflicts    []Conflict
	Quarantined  []Quarantined
}

// Receipt is a row of settlement_receipts.
type Receipt struct {
	SettlementID string
	PayloadHash  settle.PayloadHash
	ResultStatus string
	DeliveryID   string
	MessageID    string
	PublishTime  *time.Time // nil: unknown
	Metadata     string     // a JSON object; empty: none
	AppliedAt    time.Time
	ExpireFrom   *time.Time // nil: kept
}

// Reversal is a row of ledger_reversals.
type Reversal struct {
	SettlementID string
	AmountCents  int64
	Reason       string
	RecordedAt   time.Time
}

// InstructionEvent is a row of bank_instruction_events.
type InstructionEvent struct {
	SettlementID string
	Version      int64
	Event        settle.InstructionEvent
	RecordedAt   time.Time
}

// Conflict is a row of settlement_conflicts.
type Conflict struct {
	SettlementID   string
	PayloadHash    settle.PayloadHash
	Fields         []string
	Payload        []byte
	MessageID      string
	LastDeliveryID string
	Deliveries     int64
	FirstSeenAt    time.Time
	LastSeenAt     time.Time
}

// Quarantined is a row of quarantined_messages.
type Quarantined struct {
	Identity       string
	MessageID      string
	Subscription   string
	Reason         settle.Reason
	Member         string
	Detail         string
	Data           []byte
	Attributes     string // a JSON object; empty: none
	OrderingKey    string
	PublishTime    *time.Time // nil: unknown
	LastDeliveryID string
	Deliveries     int64
	QuarantinedAt  time.Time
}

// Movement returns the movement of a settlement, or nil.
func (s Snapshot) Movement(settlementID string) *settle.Movement {
	for i := range s.Movements {
		if s.Movements[i].SettlementID == settlementID {
			return &s.Movements[i]
		}
	}
	return nil
}

// Receipt returns the receipt of a settlement, or nil.
func (s Snapshot) Receipt(settlementID string) *Receipt {
	for i := range s.Receipts {
		if s.Receipts[i].SettlementID == settlementID {
			return &s.Receipts[i]
		}
	}
	return nil
}

// Violations lists what is wrong with a store, a line each; none means that the
// guarantee holds. receiptsExpire says that receipts may have been deleted, so
// that a movement without one is in order.
func (s Snapshot) Violations(receiptsExpire bool) []string {
	var found []string
	violation := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	movements := map[string]settle.Movement{}
	for _, m := range s.Movements {
		if _, twice := movements[m.SettlementID]; twice {
			violation("settlement %q: moved twice", m.SettlementID)
		}
		movements[m.SettlementID] = m
		if s.Receipt(m.SettlementID) == nil && !receiptsExpire {
			violation("settlement %q: movement without receipt", m.SettlementID)
		}
	}
	seen := map[string]bool{}
	for _, r := range s.Receipts {
		m, moved := movements[r.SettlementID]
		switch {
		case seen[r.SettlementID]:
			violation("settlement %q: two receipts", r.SettlementID)
		case !moved:
			violation("settlement %q: receipt without movement", r.SettlementID)
		case m.PayloadHash != r.PayloadHash:
			violation("settlement %q: receipt has hash %s, movement %s", r.SettlementID, r.PayloadHash, m.PayloadHash)
		case !m.RecordedAt.Equal(r.AppliedAt):
			violation("settlement %q: receipt and movement were not committed together", r.SettlementID)
		}
		seen[r.SettlementID] = true
	}
	for _, c := range s.Conflicts {
		switch m, moved := movements[c.SettlementID]; {
		case !moved:
			violation("settlement %q: conflict without movement", c.SettlementID)
		case m.PayloadHash == c.PayloadHash:
			violation("settlement %q: conflict with itself", c.SettlementID)
		case len(c.Fields) == 0:
			violation("settlement %q: conflict that names no member", c.SettlementID)
		}
	}
	return append(found, s.instructionViolations(movements)...)
}

func (s Snapshot) instructionViolations(movements map[string]settle.Movement) []string {
	var found []string
	violation := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	instructions := map[string]settle.Instruction{}
	for _, in := range s.Instructions {
		instructions[in.SettlementID] = in
		m := movements[in.SettlementID]
		want := settle.Transfer{
			Key: settle.KeyOfGeneration(in.SettlementID, len(in.Superseded)+1), AmountCents: m.AmountCents, Currency: m.Currency, CreditorAccount: m.CreditorAccount,
		}
		for n, old := range in.Superseded {
			if old.Key != settle.KeyOfGeneration(in.SettlementID, n+1) {
				violation("settlement %q: superseded key %d is %s", in.SettlementID, n+1, old.Key)
			}
		}
		if in.Transfer != want {
			violation("settlement %q: instruction is for %+v, the movement for %+v", in.SettlementID, in.Transfer, want)
		}
		if r := s.Receipt(in.SettlementID); r != nil && (r.ExpireFrom == nil) != in.FinalAt.IsZero() {
			violation("settlement %q: instruction final %t, receipt may expire %t", in.SettlementID, !in.FinalAt.IsZero(), r.ExpireFrom != nil)
		}
		found = append(found, s.chainViolations(in)...)
	}
	for _, m := range s.Movements {
		if _, instructed := instructions[m.SettlementID]; instructed != (m.CreditorAccount != "") {
			violation("settlement %q: creditor %t, instruction %t", m.SettlementID, m.CreditorAccount != "", instructed)
		}
	}
	return append(found, s.reversalViolations(instructions)...)
}

// chainViolations checks the history of an instruction: versions without gaps
// from 1, each beginning where the one before ended.
func (s Snapshot) chainViolations(in settle.Instruction) []string {
	var found []string
	version, state := int64(0), settle.InstructionNone
	for _, e := range s.Events {
		if e.SettlementID != in.SettlementID {
			continue
		}
		version++
		if e.Version != version || e.Event.From != state {
			found = append(found, fmt.Sprintf("settlement %q: event %d from %q follows %d to %q", in.SettlementID, e.Version, e.Event.From, version-1, state))
		}
		state = e.Event.To
	}
	if version != in.Version || state != in.State {
		found = append(found, fmt.Sprintf("settlement %q: instruction is %d %s, its history ends at %d %s", in.SettlementID, in.Version, in.State, version, state))
	}
	return found
}

// reversalViolations checks that exactly the movements that were undone have a
// reversal, of the same amount.
func (s Snapshot) reversalViolations(instructions map[string]settle.Instruction) []string {
	var found []string
	reversed := map[string]bool{}
	for _, r := range s.Reversals {
		in, ok := instructions[r.SettlementID]
		switch {
		case reversed[r.SettlementID]:
			found = append(found, fmt.Sprintf("settlement %q: reversed twice", r.SettlementID))
		case !ok || in.Transfer.AmountCents != r.AmountCents:
			found = append(found, fmt.Sprintf("settlement %q: reversal of %d without such an instruction", r.SettlementID, r.AmountCents))
		}
		reversed[r.SettlementID] = true
	}
	for _, in := range s.Instructions {
		id := in.SettlementID
		undone := in.State == settle.InstructionRejected || in.State == settle.InstructionReturned
		if undone && !reversed[id] || reversed[id] && !undone && in.State != settle.InstructionManual {
			found = append(found, fmt.Sprintf("settlement %q: instruction %s, reversed %t", id, in.State, reversed[id]))
		}
	}
	return found
}
