package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"
)

var update = flag.Bool("update", false, "write the golden files anew")

// what differs from run to run, and what stands for it: of the same width where a
// table is as wide as its values.
var placeholders = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}Z`), "YYYY-MM-DD HH:MM:SSZ"},
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`, until \d{4}-\d{2}-\d{2}`), ", until YYYY-MM-DD"},
	{regexp.MustCompile(`"oldest_uncertain_seconds":\d+`), `"oldest_uncertain_seconds":AGE`},
	// Next to a clock in a terminal's last column.
	{regexp.MustCompile(`projects/[^/\s]+/instances/[^/\s]+/databases/[^/\s]+`), "DATABASE"},
}

// golden compares what the program printed with the file of that name in
// testdata/golden. Run the tests with -update to accept what it prints now.
func golden(t *testing.T, name, got string) {
	t.Helper()
	for _, p := range placeholders {
		got = p.pattern.ReplaceAllString(got, p.with)
	}
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); if that is right, run the test with -update:\n%s", path, diff)
	}
}

// wantNarrow fails for lines that are wider than a terminal of 80 columns.
func wantNarrow(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if n := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

// wantBoxed fails for lines that are wider than tables in boxes are to be.
func wantBoxed(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if n := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

// wantTame fails for characters that could drive a terminal.
func wantTame(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if line = strings.TrimSuffix(line, "\n"); visible(line) != line {
			t.Errorf("a line with characters that are not to be seen: %q", line)
		}
	}
}
