package main

import (
	"testing"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/spannerstore/readback"
)

// TestFixtureHasEveryCase keeps the other tests from looking at nothing.
func TestFixtureHasEveryCase(t *testing.T) {
	t.Parallel()
	f := newFixture(t).fill()
	all, err := readback.Read(t.Context(), f.client)
	if err != nil {
		t.Fatal(err)
	}
	if found := all.Violations(true); len(found) != 0 {
		t.Errorf("the fixture is not sound: %q", found)
	}
	states := map[settle.InstructionState]int{}
	for _, in := range all.Instructions {
		states[in.State]++
	}
	for _, state := range []settle.InstructionState{
		settle.InstructionUncertain, settle.InstructionAccepted, settle.InstructionConfirmed, settle.InstructionRejected,
		settle.InstructionReturned, settle.InstructionManual,
	} {
		if states[state] == 0 {
			t.Errorf("no instruction is %s", state)
		}
	}
	if len(all.Movements) != 19 || len(all.Reversals) != 3 || len(all.Conflicts) != 5 || len(all.Quarantined) != 8 {
		t.Errorf("%d movements, %d reversals, %d conflicts, %d quarantined", len(all.Movements), len(all.Reversals), len(all.Conflicts), len(all.Quarantined))
	}
}
