package linear

import (
	"maps"
	"slices"
	"testing"

	"github.com/settleonce/settleonce/internal/settle"
)

// Tally counts what has happened, under names for people.
type Tally map[string]int

// What a history counts, beside a "delivery X" for each outcome.
const (
	Settlements = "settlement"
	Looks       = "look"
	// Concurrent are the deliveries that ran beside another one of the same
	// settlement ID that somebody else was asked: within one service they wait for
	// each other.
	Concurrent = "delivery beside another instance's"
	// Unseen are the settlements that an unknown outcome has made: nobody was
	// told applied.
	Unseen = "settlement that nobody was told of"
)

// Delivered is the name under which deliveries of an outcome are counted.
func Delivered(o settle.Outcome) string { return "delivery " + o.String() }

// Count counts what the history holds.
func (h *History) Count() Tally {
	count := Tally{}
	for _, id := range h.settlementIDs() {
		operations := h.of(id)
		count[Settlements]++
		applied, settled := false, false
		for i, o := range operations {
			if o.request.delivered == None {
				count[Looks]++
				continue
			}
			if beside(operations, i) {
				count[Concurrent]++
			}
			count[Delivered(o.response.outcome)]++
			applied = applied || o.response.outcome == settle.OutcomeApplied
			settled = settled || o.response.known
		}
		if settled && !applied {
			count[Unseen]++
		}
	}
	return count
}

// beside reports whether operation i ran at the same time as a delivery elsewhere.
func beside(operations []Operation, i int) bool {
	self := operations[i]
	return slices.ContainsFunc(operations, func(o Operation) bool {
		return o.request.delivered != None && o.by != self.by && o.call != self.call && o.call < self.end && self.call < o.end
	})
}

// Add adds other.
func (c Tally) Add(other Tally) {
	for what, n := range other {
		c[what] += n
	}
}

// Report prints the tally, and fails a test in which something never happened
// that it is about: it would prove nothing.
func (c Tally) Report(t testing.TB, mustHappen ...string) {
	t.Helper()
	for _, what := range slices.Sorted(maps.Keys(c)) {
		t.Logf("%6d  %s", c[what], what)
	}
	for _, what := range mustHappen {
		if c[what] == 0 {
			t.Errorf("never happened: %s", what)
		}
	}
}
