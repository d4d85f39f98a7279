package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/term"
)

func TestVisibleEscapesTerminalControls(t *testing.T) {
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

func TestJSONEscapesHiddenCharacters(t *testing.T) {
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

func TestTrimRPCPrefix(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nothing of theirs": "nothing of theirs",
		"publish line 1: rpc error: code = NotFound desc = Topic not found":           "publish line 1: NotFound: Topic not found",
		`database d: spanner: code = "Unavailable", desc = "it \"went\"", and more`:   `database d: Unavailable: it \"went\", and more`,
		`rpc error: code = Unknown desc = spanner: code = "Internal", desc = "twice"`: "Unknown: Internal: twice",
	} {
		if got := trimRPCPrefix(errors.New(text)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestFullDiskIsAnError for every form of a result.
func TestFullDiskIsAnError(t *testing.T) {
	t.Parallel()
	s := streamsOf(nil, failingWriter{}, nil, nil)
	columns := []column{{name: "a"}}
	table, rows := newRowPrinter(s, outputTable, columns), newRowPrinter(s, outputCSV, columns)
	for name, err := range map[string]error{
		"JSON":  printJSON(s.Out, 1),
		"table": errors.Join(table.print("1"), table.flush("")),
		"CSV":   errors.Join(rows.print("1"), rows.flush("")),
	} {
		if coded, ok := errors.AsType[*term.CodedError](err); !ok || coded.Code != term.ExitError || !errors.Is(err, errFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, message := range []string{smallest, "[]"} {
		var errOut bytes.Buffer
		code := run(t.Context(), []string{"check", "--default-currency=USD"}, streamsOf(strings.NewReader(message), failingWriter{}, &errOut, nil))
		if code != term.ExitError || !strings.Contains(errOut.String(), "no space left") {
			t.Errorf("check: exit code %d, standard error %q", code, errOut.String())
		}
	}
}

var errFull = errors.New("no space left")

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errFull }
