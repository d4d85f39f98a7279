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

var update = flag.Bool("update", false, "update the golden files")

// placeholders replace text that differs between runs, by text of the same width if it
// stands in a table.
var placeholders = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}Z`), "YYYY-MM-DD HH:MM:SSZ"},
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`, until \d{4}-\d{2}-\d{2}`), ", until YYYY-MM-DD"},
	{regexp.MustCompile(`"oldest_uncertain_seconds":\d+`), `"oldest_uncertain_seconds":AGE`},
	{regexp.MustCompile(`projects/[^/\s]+/instances/[^/\s]+/databases/[^/\s]+`), "DATABASE"},
}

// golden compares output with a file in testdata/golden. The flag -update writes the
// file.
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

// wantNarrow fails for lines of more than 80 columns.
func wantNarrow(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if n := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

// wantTame fails for characters that could control a terminal.
func wantTame(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if line = strings.TrimSuffix(line, "\n"); visible(line) != line {
			t.Errorf("a line with hidden characters: %q", line)
		}
	}
}
