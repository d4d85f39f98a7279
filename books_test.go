package settleonce_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settleonce/settleonce/internal/bank/banktest"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/snapshot"
	"github.com/settleonce/settleonce/internal/spannerstore/readback"
)

// tally is what Spanner and the bank have of one settlement.
type tally struct {
	movements, receipts, reversals, conflicts, quarantined int

	counted     int64 // deliveries that were conflicts or went to quarantine
	instruction settle.InstructionState
	doubtful    bool // it is uncertain, and something of it may have reached the bank
	missed      bool // the bank was asked and did not know the transfer
	executed    int  // transfers of the bank
	moved       int  // of these the ones that were neither rejected nor sent back
}

// look checks the whole state, that of other settlements included, and returns
// what there is of one.
func (s scenario) look(t *testing.T, l *lane, id string) tally {
	t.Helper()
	all, err := readback.Read(t.Context(), l.db.client)
	if err != nil {
		t.Fatal(err)
	}
	books := books{all, l.bank.Ledger(), l.bank.Requests()}
	for _, violation := range append(all.Violations(s.expired), books.disagreements()...) {
		t.Error(violation)
	}
	return books.tally(id)
}

// books are ours and the bank's.
type books struct {
	snapshot.Snapshot

	ledger   []banktest.Transfer
	requests map[string]banktest.Requests // by key
}

// tally counts what belongs to one settlement. A message in quarantine has its ID
// in its data only.
func (b books) tally(id string) tally {
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
			of.instruction, of.doubtful = in.State, in.State == settle.InstructionUncertain && in.Sends > 0
		}
	}
	for _, e := range b.Events {
		of.missed = of.missed || e.SettlementID == id && strings.HasPrefix(e.Event.Detail, settle.StatusNotFound.String())
	}
	for _, transfer := range b.ledger {
		of.executed += one(transfer.Settlement == id)
		of.moved += one(transfer.Settlement == id && transfer.Moved())
	}
	return of
}

func one(counts bool) int {
	if counts {
		return 1
	}
	return 0
}

// disagreements compares our instructions with the bank's transfers, one by one.
// What it looks for must never be, whatever has just died.
func (b books) disagreements() []string {
	var found []string
	transfers := map[string][]banktest.Transfer{}
	for _, transfer := range b.ledger {
		transfers[transfer.Key] = append(transfers[transfer.Key], transfer)
	}
	for _, in := range b.Instructions {
		key := in.Transfer.Key.String()
		if sent := b.requests[key].Posts; int64(sent) > in.Sends {
			found = append(found, fmt.Sprintf("settlement %q: sent %d times and counted %d", in.SettlementID, sent, in.Sends))
		}
		if text := disagreement(in, b.Movement(in.SettlementID), transfers[key]); text != "" {
			found = append(found, fmt.Sprintf("settlement %q: %s, and the bank has %+v", in.SettlementID, text, transfers[key]))
		}
		delete(transfers, key)
	}
	for key, strays := range transfers {
		found = append(found, fmt.Sprintf("the bank has %+v under key %s, and there is no such instruction", strays, key))
	}
	return found
}

// disagreement tells what of an instruction does not agree with the transfers
// under its key; empty for nothing.
func disagreement(in settle.Instruction, m *settle.Movement, transfers []banktest.Transfer) string {
	var moved, returned int
	for _, t := range transfers {
		moved += one(t.Moved())
		returned += one(t.Returned)
		ours := banktest.Transfer{
			AmountMinor: m.AmountCents, Currency: m.Currency, DebtorAccount: m.AccountID, CreditorAccount: m.CreditorAccount, Remittance: m.Reference,
			ID: t.ID, Key: t.Key, Settlement: in.SettlementID, ExecutedAt: t.ExecutedAt, Status: t.Status, Returned: t.Returned,
		}
		if t != ours {
			return fmt.Sprintf("the movement is %+v", *m)
		}
	}
	agrees := len(transfers) <= 1
	switch in.State {
	case settle.InstructionUncertain, settle.InstructionManual, settle.InstructionNone:
	case settle.InstructionAccepted:
		agrees = agrees && len(transfers) == 1
	case settle.InstructionConfirmed:
		agrees = agrees && moved+returned == 1 // a return is news that we may not have asked for yet
	case settle.InstructionRejected:
		agrees = agrees && moved == 0
	case settle.InstructionReturned:
		agrees = agrees && returned == 1
	}
	if agrees {
		return ""
	}
	return "the instruction is " + string(in.State)
}
