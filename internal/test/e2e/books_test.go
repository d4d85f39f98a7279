package e2e_test

import (
	"strings"
	"testing"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/crash"
)

// tally is what Spanner and the bank have of one settlement.
type tally struct {
	movements, receipts, reversals, conflicts, quarantined int

	counted     int64 // deliveries that were conflicts or went to quarantine
	instruction transfer.State
	doubtful    bool // it is uncertain, and something of it may have reached the bank
	missed      bool // the bank was asked and did not know the transfer
	executed    int  // transfers of the bank
	moved       int  // of these the ones that were neither rejected nor sent back
}

// look checks the whole state, that of other settlements included, and returns
// what there is of one.
func (s scenario) look(t *testing.T, l *lane, id string) tally {
	t.Helper()
	all, err := audit.Read(t.Context(), l.db.client)
	if err != nil {
		t.Fatal(err)
	}
	books := crash.Books{Snapshot: all, Ledger: l.bank.Ledger(), Requests: l.bank.Requests()}
	for _, violation := range append(all.Violations(s.expired), books.Disagreements()...) {
		t.Error(violation)
	}
	return tallyOf(books, id)
}

// tallyOf counts what belongs to one settlement. A message in quarantine has its ID
// in its data only.
func tallyOf(b crash.Books, id string) tally {
	var of tally
	for _, m := range b.Movements {
		of.movements += one(m.SettlementID == id)
	}
	for _, r := range b.Receipts {
		of.receipts += one(r.SettlementID == id)
	}
	for _, r := range b.Reversals {
		of.reversals += one(r.SettlementID == id)
	}
	for _, c := range b.Conflicts {
		of.conflicts += one(c.SettlementID == id)
		of.counted += int64(one(c.SettlementID == id)) * c.Deliveries
	}
	for _, q := range b.Quarantined {
		mine := one(string(q.Data) == messageFor(garbage, id))
		of.quarantined += mine
		of.counted += int64(mine) * q.Deliveries
	}
	for _, in := range b.Instructions {
		if in.SettlementID == id {
			of.instruction, of.doubtful = in.State, in.State == transfer.StateUncertain && in.Sends > 0
		}
	}
	for _, e := range b.Events {
		of.missed = of.missed || e.SettlementID == id && strings.HasPrefix(e.Event.Detail, transfer.StatusNotFound.String())
	}
	for _, tr := range b.Ledger {
		of.executed += one(tr.Settlement == id)
		of.moved += one(tr.Settlement == id && tr.Moved())
	}
	return of
}

func one(counts bool) int {
	if counts {
		return 1
	}
	return 0
}
