// Package snapshot holds everything that a store keeps as plain values, and the
// one check of what must be true of it.
//
// It exists so that a test, a simulation or the demo can look at the whole state
// after a step, whatever store it is in, and not only at the rows it thinks
// about; and so that a database of any size is held to the same rules, one
// settlement at a time: nothing that must be true is about two of them.
package snapshot

import (
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
	ResolvedAt     *time.Time // nil: open
	ResolvedBy     string     // empty: open
	Note           string     // empty: nothing written
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
	ReleasedAt     *time.Time // nil: it was not
	ReleasedBy     string     // empty: nobody
	Note           string     // empty: nothing written
	ExpireFrom     *time.Time // nil: kept
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
