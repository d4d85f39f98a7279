package crash

import (
	"fmt"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// Books are ours and the bank's.
type Books struct {
	audit.Snapshot

	Ledger   []fakebank.Transfer
	Requests map[string]fakebank.Requests // by key
}

// Disagreements compares our instructions with the bank's transfers, one by one.
// What it looks for must never be, whatever has just died.
func (b Books) Disagreements() []string {
	var found []string
	transfers := map[string][]fakebank.Transfer{}
	for _, tr := range b.Ledger {
		transfers[tr.Key] = append(transfers[tr.Key], tr)
	}
	for _, in := range b.Instructions {
		key := in.Transfer.Key.String()
		if sent := b.Requests[key].Posts; int64(sent) > in.Sends {
			found = append(found, fmt.Sprintf("settlement %q: sent %d times and counted %d", in.SettlementID, sent, in.Sends))
		}
		ours := transfers[key]
		delete(transfers, key)
		for _, old := range in.Superseded {
			ours = append(ours, transfers[old.Key.String()]...)
			delete(transfers, old.Key.String())
		}
		if text := disagreement(in, b.Movement(in.SettlementID), ours); text != "" {
			found = append(found, fmt.Sprintf("settlement %q: %s, and the bank has %+v", in.SettlementID, text, ours))
		}
	}
	for key, strays := range transfers {
		found = append(found, fmt.Sprintf("the bank has %+v under key %s, and there is no such instruction", strays, key))
	}
	return found
}

// disagreement tells what of an instruction does not agree with the transfers under
// the keys that it has and had; empty for nothing.
func disagreement(in transfer.Instruction, m *settle.Movement, transfers []fakebank.Transfer) string {
	var moved, returned int
	for _, t := range transfers {
		moved += one(t.Moved())
		returned += one(t.Returned)
		ours := fakebank.Transfer{
			AmountMinor: m.AmountCents, Currency: m.Currency, DebtorAccount: m.AccountID, CreditorAccount: m.CreditorAccount, Remittance: m.Reference,
			ID: t.ID, Key: t.Key, Settlement: in.SettlementID, ExecutedAt: t.ExecutedAt, Status: t.Status, Returned: t.Returned,
		}
		if t != ours {
			return fmt.Sprintf("the movement is %+v", *m)
		}
	}
	agrees := len(transfers) <= 1
	switch in.State {
	case transfer.StateUncertain, transfer.StateManual, transfer.StateNone:
	case transfer.StateAccepted:
		agrees = agrees && len(transfers) == 1
	case transfer.StateConfirmed:
		agrees = agrees && moved+returned == 1 // a return is news that we may not have asked for yet
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

func one(counts bool) int {
	if counts {
		return 1
	}
	return 0
}
