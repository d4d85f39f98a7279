package audit

import (
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Snapshot holds all rows of a store at one moment, each table sorted by settlement ID
// or identity and then by the rest of its key.
type Snapshot struct {
	Movements    []settle.Movement
	Receipts     []spannerstore.ReceiptRow
	Reversals    []spannerstore.ReversalRow
	Instructions []transfer.Instruction
	Events       []spannerstore.EventRow
	Conflicts    []spannerstore.ConflictRow
	Quarantined  []spannerstore.QuarantineRow
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
func (s Snapshot) Receipt(settlementID string) *spannerstore.ReceiptRow {
	for i := range s.Receipts {
		if s.Receipts[i].SettlementID == settlementID {
			return &s.Receipts[i]
		}
	}
	return nil
}
