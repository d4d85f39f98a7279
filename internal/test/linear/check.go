package linear

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkTimeout bounds the search for the order of one settlement ID's operations, which
// takes milliseconds. An undecided search counts as a violation.
const checkTimeout = time.Minute

// Violation is a settlement ID for whose operations no order was found.
type Violation struct {
	SettlementID string

	undecided  bool
	operations []Operation // in the order of their beginnings
	info       porcupine.LinearizationInfo
}

// Check searches an order of each settlement ID's operations that explains all answers,
// and returns the settlement IDs that have none.
func (h *History) Check() []Violation {
	var found []Violation
	for _, id := range h.settlementIDs() {
		operations := h.of(id)
		result, info := porcupine.CheckOperationsVerbose(model, forPorcupine(operations), checkTimeout)
		if result != porcupine.Ok {
			found = append(found, Violation{id, result == porcupine.Unknown, operations, info})
		}
	}
	return found
}

// Verify fails the test for each settlement ID without an order. It prints the
// operations, and draws them with the longest partial orders as an HTML page in the
// test's artifact directory.
func (h *History) Verify(t testing.TB) {
	t.Helper()
	for _, v := range h.Check() {
		page := filepath.Join(t.ArtifactDir(), v.SettlementID+".html")
		t.Errorf("%s\ndrawn with the longest partial orders in %s, which go test -artifacts keeps", v, page)
		if err := v.draw(page); err != nil {
			t.Error(err)
		}
	}
}

func (h *History) settlementIDs() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.operations))
}

// of returns copies of a settlement ID's operations.
func (h *History) of(settlementID string) []Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	operations := make([]Operation, len(h.operations[settlementID]))
	for i, o := range h.operations[settlementID] {
		operations[i] = *o
	}
	return operations
}

// forPorcupine converts the operations, each with a lane of its own in the drawing. One
// with an unknown outcome ends after all others.
func forPorcupine(operations []Operation) []porcupine.Operation {
	never := int64(1)
	for _, o := range operations {
		never = max(never, o.began+1, o.ended+1)
	}
	history := make([]porcupine.Operation, len(operations))
	for i, o := range operations {
		end := o.ended
		if !o.response.answered {
			end = never
		}
		history[i] = porcupine.Operation{ClientId: i, Input: o.request, Call: o.began, Output: o.response, Return: end}
	}
	return history
}

// String lists the operations.
func (v Violation) String() string {
	verdict := "no order explains the answers"
	if v.undecided {
		verdict = fmt.Sprintf("no order that explains the answers found in %v", checkTimeout)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "settlement %s: %s; its %d operations:\n", v.SettlementID, verdict, len(v.operations))
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(table, "\tbegan\tended\tserver\toperation\tmessage\tanswer\n") // a strings.Builder returns no error
	for i, o := range v.operations {
		ended, answer := "never", o.response.String()
		if o.ended > 0 {
			ended = o.endedAfter.String()
		}
		if o.fault != "" {
			answer += ": " + o.fault
		}
		_, _ = fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", i+1, o.beganAfter, ended, o.server, o.request, o.messageID, answer)
	}
	_ = table.Flush()
	return text.String()
}

// draw writes porcupine's drawing of the operations, an HTML page.
func (v Violation) draw(path string) error {
	file, err := os.Create(path) //nolint:gosec // a file of the test's own directory
	if err != nil {
		return fmt.Errorf("draw history: %w", err)
	}
	if err := porcupine.Visualize(model, v.info, file); err != nil {
		_ = file.Close() // the drawing is lost already
		return fmt.Errorf("draw history: %w", err)
	}
	return file.Close()
}
