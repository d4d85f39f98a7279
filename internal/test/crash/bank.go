package crash

import (
	"fmt"
	"testing"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/audit"
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

// CompareBank compares the rows with the bank's transfers, and the counted sends with the
// bank's requests. It returns the differences; no crash may cause one.
func (s State) CompareBank() (differences []string) {
	for _, in := range s.Instructions {
		if sent := s.Requests[in.Transfer.Key.String()].Posts; int64(sent) > in.Sends {
			differences = append(differences, fmt.Sprintf("settlement %q: sent %d times and counted %d", in.SettlementID, sent, in.Sends))
		}
	}
	ledger := make([]audit.BankTransfer, len(s.Ledger))
	for i, t := range s.Ledger {
		status := transfer.StatusConfirmed
		switch {
		case t.Returned:
			status = transfer.StatusReturned
		case !t.Moved():
			status = transfer.StatusRejected
		}
		ledger[i] = audit.BankTransfer{
			ID: t.ID, Key: t.Key, SettlementID: t.Settlement, AccountID: t.DebtorAccount, AmountCents: t.AmountMinor, Currency: t.Currency,
			CreditorAccount: t.CreditorAccount, Reference: t.Remittance, Status: status,
		}
	}
	return append(differences, audit.CompareBank(s.Snapshot, ledger)...)
}
