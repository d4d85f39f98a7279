package main

import (
	"slices"
	"strings"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// instructionsAgainstSample compares the way of every bank instruction with its
// row of the sample, and every answer that tells a state with the way.
func (v *verification) instructionsAgainstSample() {
	expected := 0
	for _, r := range v.rows {
		if len(r.Way) == 0 {
			continue
		}
		expected++
		id := r.settlementID()
		in := v.instruction(id)
		if in == nil {
			v.fault("settlement %q: the ledger has no bank instruction", id)
			continue
		}
		if got := way(v.stored, id); !slices.Equal(got, r.Way) {
			v.fault("settlement %q: its bank instruction went %s; the sample expects %s", id, arrows(got), arrows(r.Way))
		}
		if in.Sends != r.Sends {
			v.fault("settlement %q: %d sends to the bank are recorded; the sample expects %d", id, in.Sends, r.Sends)
		}
	}
	if got := len(v.stored.Instructions); got != expected {
		v.fault("ledger: %d bank instructions; the sample expects %d", got, expected)
	}
	for _, d := range v.deliveries {
		state, id := d.answer.Instruction, d.answer.SettlementID
		if state != transfer.StateNone && !slices.Contains(way(v.stored, id), state) {
			v.fault("settlement %q: answered that its bank instruction is %s, which it never was", id, state)
		}
	}
}

// instructionsAgainstBank compares the bank instructions with the ledger of the
// bank, transfer by transfer, in both directions.
func (v *verification) instructionsAgainstBank() {
	asked := map[string]bool{}
	for _, in := range v.stored.Instructions {
		asked[in.Transfer.Key.String()] = true
		transfers := transfersOf(v.atBank, in)
		v.executedAsOften(in, transfers)
		for _, t := range transfers {
			v.transferAsAsked(in, t)
		}
		v.reversedOrNot(in)
	}
	for _, t := range v.atBank {
		if !asked[t.Key] {
			v.fault("bank: transfer %s was executed, and no instruction of the ledger asks for it", t.ID)
		}
	}
	for _, violation := range v.violations {
		v.fault("bank: %s", violation)
	}
}

// transfersOf returns what the bank executed for the instruction.
func transfersOf(atBank []fakebank.Transfer, in transfer.Instruction) (found []fakebank.Transfer) {
	for _, t := range atBank {
		if t.Key == in.Transfer.Key.String() {
			found = append(found, t)
		}
	}
	return found
}

// executedAsOften compares what the state says with what the bank executed, and
// with where the money is now.
func (v *verification) executedAsOften(in transfer.Instruction, transfers []fakebank.Transfer) {
	id, n := in.SettlementID, len(transfers)
	moved, returned := 0, 0
	for _, t := range transfers {
		if t.Moved() {
			moved++
		}
		if t.Returned {
			returned++
		}
	}
	wrong := false
	switch in.State {
	case transfer.StateConfirmed, transfer.StateAccepted:
		wrong = n != 1 || moved != 1
	case transfer.StateReturned:
		wrong = n != 1 || returned != 1
	case transfer.StateRejected:
		wrong = moved+returned != 0
	case transfer.StateUncertain, transfer.StateManual:
		wrong = n > 1
	case transfer.StateNone:
		wrong = true
	}
	if wrong {
		v.fault("settlement %q: its bank instruction is %s; the bank's ledger has %s", id, in.State, executed(transfers))
	}
}

// executed says in words what the bank executed.
func executed(transfers []fakebank.Transfer) string {
	if len(transfers) == 0 {
		return "none"
	}
	var words []string
	for _, t := range transfers {
		words = append(words, t.Status)
	}
	return map[bool]string{true: "one: ", false: "several: "}[len(words) == 1] + strings.Join(words, ", ")
}

// transferAsAsked compares a transfer with what was asked for.
func (v *verification) transferAsAsked(in transfer.Instruction, t fakebank.Transfer) {
	for _, c := range []struct {
		what       string
		same, told bool
	}{
		{"amount", t.AmountMinor == in.Transfer.AmountCents, true},
		{"currency", t.Currency == in.Transfer.Currency, true},
		{"creditor", t.CreditorAccount == in.Transfer.CreditorAccount, true},
		{"transfer ID", t.ID == in.TransferID, in.TransferID != ""},
	} {
		if c.told && !c.same {
			v.fault("settlement %q: the bank executed transfer %s with another %s than the ledger has", in.SettlementID, t.ID, c.what)
		}
	}
	if m := v.stored.Movement(in.SettlementID); m == nil || t.DebtorAccount != m.AccountID || t.Remittance != m.Reference {
		v.fault("settlement %q: the bank executed transfer %s with another account or reference than the movement has", in.SettlementID, t.ID)
	}
}

// reversedOrNot checks that the movement is undone exactly where the bank did not
// pay or the money came back.
func (v *verification) reversedOrNot(in transfer.Instruction) {
	undone := in.State == transfer.StateRejected || in.State == transfer.StateReturned
	reversal := reversalOf(v.stored, in.SettlementID)
	switch {
	case undone && reversal == nil:
		v.fault("settlement %q: its bank instruction is %s, and the movement is not reversed", in.SettlementID, in.State)
	case !undone && reversal != nil:
		v.fault("settlement %q: its bank instruction is %s, and the movement is reversed", in.SettlementID, in.State)
	case undone && (reversal.AmountCents != in.Transfer.AmountCents || reversal.Reason != string(in.State)):
		v.fault("settlement %q: the reversal of %d, %s, is not that of a %s instruction over %d",
			in.SettlementID, reversal.AmountCents, reversal.Reason, in.State, in.Transfer.AmountCents)
	}
}

// reconciliationsWentWell looks for what the reconciler could not do.
func (v *verification) reconciliationsWentWell() {
	for i, r := range v.runs {
		if r.Failed+r.Left > 0 {
			v.fault("reconciler, run %d: of %d due, %d failed and %d were left", i+1, r.Due, r.Failed, r.Left)
		}
	}
}

func (v *verification) instruction(settlementID string) *transfer.Instruction {
	i := slices.IndexFunc(v.stored.Instructions, func(in transfer.Instruction) bool { return in.SettlementID == settlementID })
	if i < 0 {
		return nil
	}
	return &v.stored.Instructions[i]
}

func reversalOf(stored audit.Snapshot, settlementID string) *spannerstore.ReversalRow {
	i := slices.IndexFunc(stored.Reversals, func(r spannerstore.ReversalRow) bool { return r.SettlementID == settlementID })
	if i < 0 {
		return nil
	}
	return &stored.Reversals[i]
}

// way returns the states that a bank instruction went through, by its events.
// What left the state as it was is not in it.
func way(stored audit.Snapshot, settlementID string) []transfer.State {
	var states []transfer.State
	for _, e := range stored.Events {
		if e.SettlementID == settlementID && e.Event.From != e.Event.To {
			states = append(states, e.Event.To)
		}
	}
	return states
}

// arrows writes a way.
func arrows(way []transfer.State) string {
	var words []string
	for _, state := range way {
		words = append(words, string(state))
	}
	return strings.Join(words, " → ")
}
