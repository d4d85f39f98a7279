package linear

import (
	"maps"
	"slices"
	"testing"

	"github.com/settleonce/settleonce/internal/settle"
)

// Tally counts events by name.
type Tally map[string]int

// The events that a history counts, besides a "delivery X" for each outcome X.
const (
	Settlements = "settlement"
	Reads       = "read"
	// Concurrent are deliveries that ran beside another server's delivery of the same
	// settlement ID. One server coalesces such deliveries.
	Concurrent = "delivery beside another server's"
	// Unanswered are settlements that a delivery with an unknown outcome made: no answer
	// was applied.
	Unanswered = "settlement by a delivery with an unknown outcome"
)

// Delivered is the name under which deliveries of an outcome are counted, Redelivered that
// of the redeliveries among them, and Known that of findings that were recorded before.
func Delivered(o settle.Outcome) string   { return "delivery " + o.String() }
func Redelivered(o settle.Outcome) string { return "redelivery " + o.String() }
func Known(o settle.Outcome) string       { return "known " + o.String() }

// Count counts the events of the history.
func (h *History) Count() Tally {
	count := Tally{}
	for _, id := range h.settlementIDs() {
		operations := h.of(id)
		count[Settlements]++
		applied, settled := false, false
		for _, o := range operations {
			if o.request.delivered == None {
				count[Reads]++
				continue
			}
			if slices.ContainsFunc(operations, o.beside) {
				count[Concurrent]++
			}
			count[Delivered(o.response.outcome)]++
			if o.request.redelivered {
				count[Redelivered(o.response.outcome)]++
			}
			if o.response.known {
				count[Known(o.response.outcome)]++
			}
			applied = applied || o.response.outcome == settle.OutcomeApplied
			settled = settled || o.response.answered && o.request.delivered != Malformed
		}
		if settled && !applied {
			count[Unanswered]++
		}
	}
	return count
}

// beside reports whether other is a delivery to another server at the same time.
func (o Operation) beside(other Operation) bool {
	return other.request.delivered != None && other.server != o.server && other.began != o.began && other.began < o.ended && o.began < other.ended
}

// Add adds other.
func (c Tally) Add(other Tally) {
	for name, n := range other {
		c[name] += n
	}
}

// Report logs the tally. It fails the test if a required event never happened, because
// the test then proved nothing about it.
func (c Tally) Report(t testing.TB, required ...string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(c)) {
		t.Logf("%6d  %s", c[name], name)
	}
	for _, name := range required {
		if c[name] == 0 {
			t.Errorf("never happened: %s", name)
		}
	}
}
