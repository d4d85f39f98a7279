package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// statesInOrder is the order in which states are counted.
var statesInOrder = []transfer.State{
	transfer.StateUncertain, transfer.StateAccepted, transfer.StateConfirmed,
	transfer.StateRejected, transfer.StateReturned, transfer.StateManual,
}

// reconciliations prints a row for each run of the reconciler.
func (p *printer) reconciliations(runs []reconciliation) {
	p.line("Time is made to pass: the instructions are made older, and the bank's clock is set forward.\n")
	t := newTable("Reconciler", table.Row{"time passed", "due", "came to"}, right(1), right(2))
	for _, r := range runs {
		var counts []string
		for _, state := range statesInOrder {
			if n := r.States[state]; n > 0 {
				counts = append(counts, fmt.Sprintf("%d %s", n, state))
			}
		}
		t.AppendRow(table.Row{inWords(r.after), r.Due, strings.Join(counts, ", ")})
	}
	p.line("%s\n", t.Render())
}

// inWords writes a time in whole days or seconds.
func inWords(d time.Duration) string {
	if days := d / (24 * time.Hour); days > 0 {
		return fmt.Sprintf("%d days", days)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// instructions prints a row for each bank instruction, what a person has to
// decide, and a row for each transfer of the bank.
func (p *printer) instructions(happened saw) {
	t := newTable("Bank instructions",
		table.Row{"settlement", "state", "the way there", "sends", "reversal"}, right(4), right(5))
	for _, in := range happened.stored.Instructions {
		reversal := ""
		if r := reversalOf(happened.stored, in.SettlementID); r != nil {
			reversal = strconv.FormatInt(-r.AmountCents, 10)
		}
		t.AppendRow(table.Row{
			in.SettlementID, string(in.State), arrows(way(happened.stored, in.SettlementID)), in.Sends, reversal,
		})
	}
	p.line("%s", t.Render())
	for _, in := range happened.stored.Instructions {
		if in.State == transfer.StateManual {
			p.line("%s needs a person: %s", in.SettlementID, lastDetail(happened.stored, in.SettlementID))
		}
	}

	ledger := newTable("The bank's ledger: transfers executed",
		table.Row{"settlement", "creditor", "minor units", "currency", "status"}, right(3))
	for _, t := range happened.atBank {
		ledger.AppendRow(table.Row{t.Settlement, t.CreditorAccount, t.AmountMinor, t.Currency, t.Status})
	}
	p.line("\n%s\n", ledger.Render())
}

// lastDetail says in words what was seen last of the instruction.
func lastDetail(stored audit.Snapshot, settlementID string) string {
	for _, e := range slices.Backward(stored.Events) {
		if e.SettlementID == settlementID {
			return e.Event.Detail
		}
	}
	return ""
}
