package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

func TestVisibleTextCannotDriveATerminal(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"":                            "",
		"claim 19-4431 – Größe 東京":    "claim 19-4431 – Größe 東京",
		"a\x1b[2Jb":                   `a\u001b[2Jb`,
		"a\u009b2Jb":                  `a\u009b2Jb`,
		"one\ntwo\ttab\rback\x00\x7f": `one\u000atwo\u0009tab\u000dback\u0000\u007f`,
		"pay \u202eyxorp":             `pay \u202eyxorp`,
		"no\u200bwidth":               `no\u200bwidth`,
		"not UTF-8: \xff":             `not UTF-8: \xff`,
		"tag \U000e0041":              `tag \U000e0041`,
	} {
		if got := visible(words); got != want {
			t.Errorf("visible(%q) = %s, want %s", words, got, want)
		}
	}
}

func TestJSONHidesNothingAndKeepsTheValue(t *testing.T) {
	t.Parallel()
	value := map[string]string{"text": "\x1b[2J\u009b \u202e \U000e0041 東京 <&>"}
	var out bytes.Buffer
	if err := printJSON(&out, value); err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSuffix(out.String(), "\n")
	if visible(line) != line {
		t.Errorf("JSON with hidden characters: %q", line)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(value, got); diff != "" {
		t.Errorf("after decoding (-want +got):\n%s", diff)
	}
}

func TestColoursAreForTerminals(t *testing.T) {
	t.Parallel()
	red := text.Colors{text.FgRed}
	for _, tt := range []struct {
		name    string
		columns int
		env     map[string]string
		want    string
	}{
		{"terminal", 80, nil, "\x1b[31mx\x1b[0m"},
		{"file", 0, nil, "x"},
		{"NO_COLOR", 80, map[string]string{"NO_COLOR": "1"}, "x"},
		{"dumb terminal", 80, map[string]string{"TERM": "dumb"}, "x"},
	} {
		s := streams{outColumns: tt.columns, getenv: func(name string) string { return tt.env[name] }}
		if got := s.paint(red, "x"); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRowsFitTheWidth(t *testing.T) {
	t.Parallel()
	columns := []column{{name: "time"}, {name: "settlement"}, {name: "amount", right: true}, {name: "what happened", prose: true}}
	row := []string{"2026-11-29 12:00:00", strings.Repeat("long-", 25), "9,999,999,999,999.99", strings.Repeat("words and more ", 20) + strings.Repeat("x", 90)}
	for _, width := range []int{40, 80, 120, 400} {
		var out bytes.Buffer
		p := newRowPrinter(streams{out: &out, outColumns: width, getenv: func(string) string { return "1" }}, outputTable, columns)
		for range 3 * pageRows / 2 {
			if err := p.print(row...); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.flush("nothing"); err != nil {
			t.Fatal(err)
		}
		all := out.String()
		for line := range strings.Lines(all) {
			if n := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("a line of %d columns where there are %d: %s", n, width, line)
				break
			}
		}
		if got := strings.Count(all, "amount"); got != 2 {
			t.Errorf("%d columns: the head stands %d times over two pages", width, got)
		}
		if got := strings.Count(strings.Join(strings.Fields(all), ""), "x"); width == 400 && got != 90*3*pageRows/2 {
			t.Errorf("%d of the last column's letters are left", got)
		}
	}
}

func TestWhatServicesSayIsSpoken(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nothing of theirs": "nothing of theirs",
		"publish line 1: rpc error: code = NotFound desc = Topic not found":           "publish line 1: NotFound: Topic not found",
		`database d: spanner: code = "Unavailable", desc = "it \"went\"", and more`:   `database d: Unavailable: it \"went\", and more`,
		`rpc error: code = Unknown desc = spanner: code = "Internal", desc = "twice"`: "Unknown: Internal: twice",
	} {
		if got := spoken(errors.New(text)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestCounted(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 messages", 1: "1 message", 2: "2 messages", 1234: "1,234 messages"} {
		if got := counted(n, "message"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestNoRows(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]string{outputTable: "No conflicts.\n", outputCSV: "a,b\n"} {
		var out bytes.Buffer
		p := newRowPrinter(streams{out: &out, getenv: func(string) string { return "" }}, form, []column{{name: "a"}, {name: "b"}})
		if err := p.flush("No conflicts."); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v; want %q", form, out.String(), err, want)
		}
	}
}

func TestCSVQuotes(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newRowPrinter(streams{out: &out, getenv: func(string) string { return "" }}, outputCSV, []column{{name: "a"}, {name: "b"}})
	err := errors.Join(p.print(`x, "y"`, "\x1b[2J"), p.flush("nothing"))
	if want := "a,b\n\"x, \"\"y\"\"\",\\u001b[2J\n"; err != nil || out.String() != want {
		t.Errorf("%q, %v; want %q", out.String(), err, want)
	}
}

// TestAFullDiskIsAnError makes every way of writing a result fail.
func TestAFullDiskIsAnError(t *testing.T) {
	t.Parallel()
	s := streams{out: failingWriter{}, getenv: func(string) string { return "" }}
	columns := []column{{name: "a"}}
	table, rows := newRowPrinter(s, outputTable, columns), newRowPrinter(s, outputCSV, columns)
	for name, err := range map[string]error{
		"JSON":  printJSON(s.out, 1),
		"table": errors.Join(table.print("1"), table.flush("")),
		"CSV":   errors.Join(rows.print("1"), rows.flush("")),
	} {
		if coded, ok := errors.AsType[*codedError](err); !ok || coded.code != exitError || !errors.Is(err, errFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var errFull = errors.New("no space left")

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errFull }

func TestOutputFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ args, want, wantErr string }{
		{"", outputTable, ""},
		{"--output json", outputJSON, ""},
		{"--json", outputJSON, ""},
		{"--csv", outputCSV, ""},
		{"--json=false", outputTable, ""},
		{"--output yaml", "", `--output is "yaml"; give table, json or csv`},
		{"--json --csv", "", "--json and --csv do not go together"},
		{"--output table --json", "", "--output and --json do not go together"},
	} {
		var flags outputFlags
		cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return flags.check() }}
		flags.register(cmd, outputTable, outputJSON, outputCSV)
		cmd.Args = noArguments
		plain(cmd, pageColumns)
		cmd.SetArgs(strings.Fields(tt.args))
		err := cmd.Execute()
		switch {
		case tt.wantErr == "" && (err != nil || flags.form != tt.want):
			t.Errorf("%q: form %q, %v; want %q", tt.args, flags.form, err, tt.want)
		case tt.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tt.wantErr)):
			t.Errorf("%q: %v; want %q", tt.args, err, tt.wantErr)
		}
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	err := interruptible(ctx, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if coded, ok := errors.AsType[*codedError](err); !ok || coded.code != exitInterrupted {
		t.Errorf("interrupted: %v", err)
	}
	if err := interruptible(t.Context(), func(context.Context) error { return errFull }); !errors.Is(err, errFull) {
		t.Errorf("not interrupted: %v", err)
	}
}
