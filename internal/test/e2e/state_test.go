package e2e_test

import (
	"strings"
	"testing"

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/crash"
)

// tally counts the rows and transfers of one settlement.
type tally struct {
	movements, receipts, reversals, conflicts, quarantined int

	instruction transfer.State
	doubtful    bool // uncertain after a send
	missed      bool // the bank answered not found
	executed    int  // transfers at the bank
	moved       int  // transfers that were neither rejected nor returned
}

// read checks the state of all settlements of the lane, and counts one of them.
func (s scenario) read(t *testing.T, l *lane, id string) tally {
	t.Helper()
	return tallyOf(crash.ReadState(t, l.db.client, l.bank, s.expired), id)
}

// tallyOf counts one settlement. Only the data of a quarantined message names its
// settlement.
func tallyOf(s crash.State, id string) tally {
	var of tally
	for _, m := range s.Movements {
		of.movements += one(m.SettlementID == id)
	}
	for _, r := range s.Receipts {
		of.receipts += one(r.SettlementID == id)
	}
	for _, r := range s.Reversals {
		of.reversals += one(r.SettlementID == id)
	}
	for _, c := range s.Conflicts {
		of.conflicts += one(c.SettlementID == id)
	}
	for _, q := range s.Quarantined {
		of.quarantined += one(string(q.Data) == messageFor(malformedMessage, id))
	}
	for _, in := range s.Instructions {
		if in.SettlementID == id {
			of.instruction, of.doubtful = in.State, in.State == transfer.StateUncertain && in.Sends > 0
		}
	}
	for _, e := range s.Events {
		of.missed = of.missed || e.SettlementID == id && strings.HasPrefix(e.Event.Detail, transfer.StatusNotFound.String())
	}
	for _, tr := range s.Ledger {
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
