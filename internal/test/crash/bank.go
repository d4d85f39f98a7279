package crash

import (
	"fmt"
	"testing"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// State is all rows of a database, and the bank's records.
type State struct {
	audit.Snapshot

	Ledger   []fakebank.Transfer
	Requests map[string]fakebank.Requests // by key
}

// ReadState reads the state. It fails the test for each broken rule of the rows, and for
// each difference between the rows and the bank. receiptsExpired says that receipts may
// be missing.
func ReadState(t *testing.T, client *spanner.Client, bank *fakebank.Bank, receiptsExpired bool) State {
	t.Helper()
	rows, err := audit.Read(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	s := State{Snapshot: rows, Ledger: bank.Ledger(), Requests: bank.Requests()}
	for _, violation := range append(rows.Violations(receiptsExpired), s.CompareBank()...) {
		t.Error(violation)
	}
	return s
}

// CompareBank compares each instruction with the bank's transfers, and returns the
// differences. No crash may cause one.
func (s State) CompareBank() []string {
	var found []string
	transfers := map[string][]fakebank.Transfer{}
	for _, tr := range s.Ledger {
		transfers[tr.Key] = append(transfers[tr.Key], tr)
	}
	for _, in := range s.Instructions {
		key := in.Transfer.Key.String()
		if sent := s.Requests[key].Posts; int64(sent) > in.Sends {
			found = append(found, fmt.Sprintf("settlement %q: sent %d times and counted %d", in.SettlementID, sent, in.Sends))
		}
		own := transfers[key]
		delete(transfers, key)
		for _, old := range in.Superseded {
			own = append(own, transfers[old.Key.String()]...)
			delete(transfers, old.Key.String())
		}
		if text := difference(in, s.Movement(in.SettlementID), own); text != "" {
			found = append(found, fmt.Sprintf("settlement %q: %s, and the bank has %+v", in.SettlementID, text, own))
		}
	}
	for key, unknown := range transfers {
		found = append(found, fmt.Sprintf("the bank has %+v under key %s, and no instruction has that key", unknown, key))
	}
	return found
}

// difference compares an instruction with the transfers under its present and former
// keys. An empty text means that they agree.
func difference(in transfer.Instruction, m *settle.Movement, transfers []fakebank.Transfer) string {
	moved, returned := 0, 0
	for _, t := range transfers {
		if t.Moved() {
			moved++
		}
		if t.Returned {
			returned++
		}
		want := fakebank.Transfer{
			AmountMinor: m.AmountCents, Currency: m.Currency, DebtorAccount: m.AccountID, CreditorAccount: m.CreditorAccount, Remittance: m.Reference,
			ID: t.ID, Key: t.Key, Settlement: in.SettlementID, ExecutedAt: t.ExecutedAt, Status: t.Status, Returned: t.Returned,
		}
		if t != want {
			return fmt.Sprintf("the movement is %+v", *m)
		}
	}
	agrees := len(transfers) <= 1
	switch in.State {
	case transfer.StateUncertain, transfer.StateManual, transfer.StateNone:
	case transfer.StateAccepted:
		agrees = agrees && len(transfers) == 1
	case transfer.StateConfirmed:
		agrees = agrees && moved+returned == 1 // the function may not have asked since the return
	case transfer.StateRejected:
		agrees = agrees && moved == 0
	case transfer.StateReturned:
		agrees = agrees && returned == 1
	}
	if agrees {
		return ""
	}
	return "the instruction is " + string(in.State)
}
