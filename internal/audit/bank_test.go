package audit_test

import (
	"strings"
	"testing"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

func TestCompareBank(t *testing.T) {
	t.Parallel()
	const (
		id                            = "stl-1"
		uncertain, accepted           = transfer.StateUncertain, transfer.StateAccepted
		confirmed, rejected, returned = transfer.StateConfirmed, transfer.StateRejected, transfer.StateReturned
		executed, refused, sentBack   = transfer.StatusConfirmed, transfer.StatusRejected, transfer.StatusReturned
	)
	key := transfer.InstructionKey(id)
	under := func(key string, status transfer.StatusReading) audit.BankTransfer {
		return audit.BankTransfer{ID: "of " + key, Key: key, SettlementID: id, AmountCents: 1, Currency: "EUR", Status: status}
	}
	current := func(s transfer.StatusReading) audit.BankTransfer { return under(key.String(), s) }
	other, renamed := current(executed), current(executed)
	other.AmountCents, renamed.ID = 2, "of another"
	for _, tt := range []struct {
		name   string
		state  transfer.State
		ledger []audit.BankTransfer
		want   string // in the only disagreement; empty: there is none
	}{
		{"not sent", uncertain, nil, ""},
		{"executed, and not asked yet", uncertain, []audit.BankTransfer{current(executed)}, ""},
		{"accepted", accepted, []audit.BankTransfer{current(executed)}, ""},
		{"accepted by the ledger only", accepted, nil, "is accepted"},
		{"executed", confirmed, []audit.BankTransfer{current(executed)}, ""},
		{"executed twice", confirmed, []audit.BankTransfer{current(executed), current(executed)}, "is confirmed"},
		{"confirmed by the ledger only", confirmed, nil, "is confirmed"},
		{"returned, and not asked yet", confirmed, []audit.BankTransfer{current(sentBack)}, ""},
		{"rejected", rejected, []audit.BankTransfer{current(refused)}, ""},
		{"rejected by a person, and sent back", rejected, []audit.BankTransfer{current(sentBack)}, ""},
		{"rejected, without a record", rejected, nil, ""},
		{"reversed, and executed", rejected, []audit.BankTransfer{current(executed)}, "is rejected"},
		{"returned", returned, []audit.BankTransfer{current(sentBack)}, ""},
		{"returned by the ledger only", returned, []audit.BankTransfer{current(executed)}, "is returned"},
		{"another amount", confirmed, []audit.BankTransfer{other}, "the movement is "},
		{"another transfer ID", confirmed, []audit.BankTransfer{renamed}, "has transfer ID of "},
		{"unknown key", uncertain, []audit.BankTransfer{under("another", executed)}, "no bank instruction has its key"},
	} {
		found := audit.CompareBank(audit.Snapshot{
			Movements: []settle.Movement{{SettlementID: id, AmountCents: 1, Currency: "EUR"}},
			Instructions: []transfer.Instruction{{
				SettlementID: id, Transfer: transfer.Transfer{Key: key}, State: tt.state, TransferID: current(executed).ID,
			}},
		}, tt.ledger)
		if tt.want == "" && len(found) > 0 || tt.want != "" && (len(found) != 1 || !strings.Contains(found[0], tt.want)) {
			t.Errorf("%s: %q, want %q", tt.name, found, tt.want)
		}
	}
}
