package transfer

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDiagramMatchesTransitions compares the state diagram of docs/ARCHITECTURE.md
// with the transitions: the same changes of state, and a flag of settlectl decide on
// each manual decision.
func TestDiagramMatchesTransitions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, edge := range regexp.MustCompile(`(?m)^  (\w+) --> (\w+): (.+)$`).FindAllStringSubmatch(string(page), -1) {
		if edge[1] != edge[2] {
			shown[edge[1]+" to "+edge[2]] = edge[3]
		}
	}
	decisions := map[observation]Decision{
		sawDecidedConfirmed: DecideConfirmed, sawDecidedRejected: DecideRejected, sawDecidedReturned: DecideRejected,
	}
	changes := map[string]bool{}
	for _, row := range transitions {
		change := string(row.from) + " to " + string(row.to)
		if row.from == row.to {
			continue
		}
		changes[change] = true
		if decision, decided := decisions[row.on]; decided && !strings.Contains(shown[change], "decide --"+string(decision)) {
			t.Errorf("%s: %q does not name --%s", change, shown[change], decision)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(changes)), slices.Sorted(maps.Keys(shown))); diff != "" {
		t.Errorf("changes of state (-transitions +ARCHITECTURE.md):\n%s", diff)
	}
}
