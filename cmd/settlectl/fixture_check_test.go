package main

import (
	"testing"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// TestFixtureHasEveryCase, or the other tests would test nothing.
func TestFixtureHasEveryCase(t *testing.T) {
	t.Parallel()
	f := newFixture(t).fill()
	all, err := audit.Read(t.Context(), f.client)
	if err != nil {
		t.Fatal(err)
	}
	if found := all.Violations(true); len(found) != 0 {
		t.Errorf("the fixture is not sound: %q", found)
	}
	states := map[transfer.State]int{}
	for _, in := range all.Instructions {
		states[in.State]++
	}
	for _, state := range []transfer.State{
		transfer.StateUncertain, transfer.StateAccepted, transfer.StateConfirmed, transfer.StateRejected,
		transfer.StateReturned, transfer.StateManual,
	} {
		if states[state] == 0 {
			t.Errorf("no instruction is %s", state)
		}
	}
	if len(all.Movements) != 19 || len(all.Reversals) != 3 || len(all.Conflicts) != 5 || len(all.Quarantined) != 8 {
		t.Errorf("%d movements, %d reversals, %d conflicts, %d quarantined", len(all.Movements), len(all.Reversals), len(all.Conflicts), len(all.Quarantined))
	}
}
