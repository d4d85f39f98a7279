package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
)

// printed returns a table of rows, printed on a terminal of this width; 0: in a pipe.
func printed(t *testing.T, columns int, head []column, rows [][]string) string {
	t.Helper()
	var out bytes.Buffer
	s := streamsOf(nil, &out, nil, nil)
	s.OutColumns = columns
	p := newRowPrinter(s, outputTable, head)
	for _, row := range rows {
		if err := p.print(row...); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.flush("nothing"); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// wideRows fill several batches. Their values are as wide as usual, but for one ID of
// 128 characters in the last batch.
func wideRows() (head []column, rows [][]string, longID string) {
	head = []column{{name: "time"}, {name: "settlement"}, {name: "amount", right: true}, {name: "note", text: true}, {name: "state"}}
	note := strings.Repeat("words-with-dashes and more ", 4) + "end"
	for n := range 2*batchRows + 50 {
		rows = append(rows, []string{"2026-11-29 12:00:00Z", fmt.Sprintf("stl-%04d", n), "9,999,999.99", note, "open"})
	}
	longID = strings.Repeat("long:id-", 16)
	rows[2*batchRows+7][1] = longID
	return head, rows, longID
}

func TestPipedTableHasOneLineForEachRow(t *testing.T) {
	t.Parallel()
	head, rows, longID := wideRows()
	lines := strings.Split(strings.TrimSuffix(printed(t, 0, head, rows), "\n"), "\n")
	if len(lines) != 1+len(rows) {
		t.Fatalf("%d lines, want one heading and %d rows", len(lines), len(rows))
	}
	if got := strings.Fields(lines[0]); strings.Join(got, " ") != "time settlement amount note state" {
		t.Errorf("heading %q", got)
	}
	for n, row := range rows {
		if got := strings.Fields(lines[1+n]); strings.Join(got, " ") != strings.Join(row, " ") {
			t.Errorf("row %d is %q, want %q", n, lines[1+n], row)
		}
	}
	if !strings.Contains(lines[1+2*batchRows+7], " "+longID+" ") {
		t.Error("the long ID is not whole")
	}
}

func TestTerminalFoldsOnlyFreeText(t *testing.T) {
	t.Parallel()
	head, rows, longID := wideRows()
	for _, columns := range []int{20, 80, 100, 400} {
		lines := strings.Split(printed(t, columns, head, rows), "\n")
		headings, words := 0, map[string]int{}
		for _, line := range lines {
			if strings.HasPrefix(line, "time ") {
				headings++
			}
			// The long ID widens the rows of its batch.
			if n := text.StringWidthWithoutEscSequences(line); columns >= 80 && n > columns && n < len(longID) {
				t.Errorf("a line of %d columns on a terminal of %d: %s", n, columns, line)
			}
			for _, word := range strings.Fields(line) {
				words[word]++
			}
		}
		if headings != 1 {
			t.Errorf("%d columns: %d headings, want 1", columns, headings)
		}
		for _, whole := range []string{longID, "stl-0000", "2026-11-29", "12:00:00Z", "9,999,999.99", "words-with-dashes", "open"} {
			if words[whole] == 0 {
				t.Errorf("%d columns: %q is broken", columns, whole)
			}
		}
		if folded := len(lines) > len(rows)+2; folded != (columns < 400) {
			t.Errorf("%d columns: folded %t", columns, folded)
		}
	}
}

// TestTableIgnoresLocale runs itself again under a locale in which some characters have
// another width.
func TestTableIgnoresLocale(t *testing.T) {
	const japanese = "ja_JP.UTF-8"
	got := layOut(streamsOf(nil, nil, nil, nil), []column{{}, {}}, [][]string{{"≠→", "a"}, {"xx", "b"}}, false)
	if want := "≠→  a\nxx  b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if os.Getenv("LC_ALL") == japanese {
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTableIgnoresLocale$")
	cmd.Env = append(os.Environ(), "LC_ALL="+japanese)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with LC_ALL=%s: %v\n%s", japanese, err, out)
	}
}
