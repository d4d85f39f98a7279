package linear

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkTimeout bounds the search for the order of one settlement ID's
// operations, which takes milliseconds. What is not decided by then is a
// violation: it has not been shown to be in order.
const checkTimeout = time.Minute

// Violation is a settlement ID for whose operations there is no order.
type Violation struct {
	SettlementID string

	undecided  bool
	operations []Operation // in the order of their calls
	info       porcupine.LinearizationInfo
}

// Check looks for an order of each settlement ID's operations that explains all
// answers. It returns the settlement IDs that have none.
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

// Verify fails a test whose history is not linearizable. It prints the history of
// each settlement ID for which there is no order, and draws it as a page for a
// web browser in the test's artifact directory.
func (h *History) Verify(t testing.TB) {
	t.Helper()
	for _, v := range h.Check() {
		page := filepath.Join(t.ArtifactDir(), v.SettlementID+".html")
		t.Errorf("%s\ndrawn in %s, which go test -artifacts keeps", v, page)
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

// of returns the operations of a settlement ID as they are now.
func (h *History) of(settlementID string) []Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	operations := make([]Operation, len(h.operations[settlementID]))
	for i, o := range h.operations[settlementID] {
		operations[i] = *o
	}
	return operations
}

// forPorcupine returns the operations as porcupine takes them. An operation
// whose outcome is unknown ends after all others.
func forPorcupine(operations []Operation) []porcupine.Operation {
	never := int64(1)
	for _, o := range operations {
		never = max(never, o.call+1, o.end+1)
	}
	ended := func(o Operation) int64 {
		if !o.response.known {
			return never
		}
		return o.end
	}
	history := make([]porcupine.Operation, len(operations))
	var free []int64 // from when each lane of the drawing is free
	for i, o := range operations {
		lane := slices.IndexFunc(free, func(from int64) bool { return from < o.call })
		if lane < 0 {
			lane, free = len(free), append(free, 0)
		}
		free[lane] = ended(o)
		history[i] = porcupine.Operation{ClientId: lane, Input: o.request, Call: o.call, Output: o.response, Return: ended(o), Metadata: i}
	}
	return history
}

// String returns the history of the settlement ID for a person to read.
func (v Violation) String() string {
	verdict := "no order explains the answers"
	if v.undecided {
		verdict = fmt.Sprintf("no order that explains the answers found in %v", checkTimeout)
	}
	return fmt.Sprintf("settlement %s: %s; its %d operations:\n%s%s",
		v.SettlementID, verdict, len(v.operations), v.table(), v.explain())
}

// table lists the operations, a line each.
func (v Violation) table() string {
	var rows, aligned strings.Builder
	rows.WriteString("\tbegan\tended\tasked\twhat\tmessage\tanswer\n")
	for i, o := range v.operations {
		ended, what, answer := "never", "look", o.response.String()
		if o.end > 0 {
			ended = milliseconds(o.got)
		}
		if o.request.delivered != None {
			what = "deliver " + o.request.delivered.String()
		}
		if o.why != "" {
			answer += ": " + o.why
		}
		fmt.Fprintf(&rows, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", i+1, milliseconds(o.called), ended, o.by, what, o.messageID, answer)
	}
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	_, _ = io.WriteString(w, rows.String()) // a strings.Builder takes everything
	_ = w.Flush()
	return aligned.String()
}

// explain tells which answers can be explained at best, by which order, and which
// are left over.
func (v Violation) explain() string {
	best := v.bestOrder()
	var s any = state{}
	for _, i := range best {
		_, s = model.Step(s, v.operations[i].request, v.operations[i].response)
	}
	var left []int
	for i, o := range v.operations {
		if o.response.known && !slices.Contains(best, i) {
			left = append(left, i)
		}
	}
	return fmt.Sprintf("the best order is %s, then %s; not explained: %s", numbers(best), s, numbers(left))
}

// bestOrder returns the order that explains most answers, as indices. Of several
// it is always the same.
func (v Violation) bestOrder() []int {
	var (
		best     []int
		mostKnow int
	)
	for _, partition := range v.info.PartialLinearizationsOperations() {
		for _, linearization := range partition {
			var order []int
			know := 0
			for _, o := range linearization {
				i := o.Metadata.(int) //nolint:forcetypeassert // forPorcupine has put it there
				order = append(order, i)
				if v.operations[i].response.known {
					know++
				}
			}
			if know > mostKnow || know == mostKnow && slices.Compare(order, best) < 0 {
				best, mostKnow = order, know
			}
		}
	}
	return best
}

// numbers returns the indices as the numbers that a reader sees.
func numbers(indices []int) string {
	var text []string
	for _, i := range indices {
		text = append(text, strconv.Itoa(i+1))
	}
	if text == nil {
		return "none"
	}
	return strings.Join(text, " ")
}

// draw writes porcupine's drawing of the history, a page for a web browser.
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

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
}
