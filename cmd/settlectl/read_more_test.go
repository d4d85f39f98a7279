package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/term"
)

func TestShowMissingSettlement(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, form := range []string{outputTable, outputJSON} {
		got := f.run("show", "stl-\x1b[2J-none", "--output="+form)
		if got.code != term.ExitNotFound || got.out != "" || !strings.Contains(got.errOut, `no settlement stl-\u001b[2J-none in `+f.database.name) {
			t.Errorf("exit code %d, standard output %q, standard error %q", got.code, got.out, got.errOut)
		}
		wantTame(t, got.errOut)
	}
}

// TestShownCommandsRun runs the commands that show prints, with the placeholders in
// capitals replaced.
func TestShownCommandsRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t).fill()
	filled := strings.NewReplacer("--second WHO", "--second bert", "WHO", "ines", "FINDING", "mended", "HOW", "letter")
	for _, id := range []string{stlForgotten, stlConflict, stlConflicts, stlEverything} {
		var shown struct {
			Next []ledger.Next `json:"next"`
		}
		if err := json.Unmarshal([]byte(f.run("show", id, "--json").out), &shown); err != nil {
			t.Fatal(err)
		}
		run := 0
		for _, n := range shown.Next {
			for _, command := range alternatives(filled.Replace(n.Command)) {
				refusable := strings.HasPrefix(command, "settlectl decide ") // by the bank
				if refusable {
					command += " --dry-run"
				}
				if got := f.act(nil, strings.Fields(command)[1:]...); got.code != term.ExitOK && (got.code != term.ExitNo || !refusable) {
					t.Errorf("%s: exit code %d, %s", command, got.code, got.errOut)
				}
				run++
			}
		}
		if run == 0 {
			t.Errorf("%s has no command: %+v", id, shown.Next)
		}
	}
}

// alternatives returns the commands for which a command with bars stands.
func alternatives(command string) (all []string) {
	if command == "" {
		return nil
	}
	all = []string{""}
	for _, word := range strings.Fields(command) {
		var longer []string
		for _, choice := range strings.Split(word, "|") {
			for _, begun := range all {
				longer = append(longer, strings.TrimPrefix(begun+" "+choice, " "))
			}
		}
		all = longer
	}
	return all
}

// TestStaleReads reads at a time before the database existed, and just now.
func TestStaleReads(t *testing.T) {
	t.Parallel()
	f := newFixture(t).fill()
	for _, args := range [][]string{{"show", stlApplied}, {"list", "conflicts"}, {"report", "--account=reserve-claims", "--from=2020-01-01"}} {
		if got := f.run(append(args, "--stale=100h")...); got.code != term.ExitError || got.out != "" {
			t.Errorf("%q, 100h ago: exit code %d, standard output %q", args, got.code, got.out)
		}
		if got := f.run(append(args, "--stale=1us", "--role=settleonce_operator")...); got.code != term.ExitOK || got.errOut != "" {
			t.Errorf("%q, 1us ago: exit code %d, standard error %q", args, got.code, got.errOut)
		}
	}
}

// TestColoursOfTheReadingCommands: colours change nothing but colours.
func TestColoursOfTheReadingCommands(t *testing.T) {
	t.Parallel()
	f := newFixture(t).fill()
	for _, args := range [][]string{
		{"show", stlEverything},
		{"show", stlForgotten},
		{"list", "manual"},
		{"list", "movements", "--since="},
		{"list", "conflicts"},
		{"report", "--account=reserve-claims", "--from=2020-01-01"},
	} {
		plain := f.run(args...)
		var out, errOut bytes.Buffer
		s := streamsOf(nil, &out, &errOut, f.env())
		s.now, s.Colors = f.clock.Now, true
		code := run(t.Context(), args, s)
		if code != term.ExitOK || !strings.Contains(out.String(), "\x1b[") {
			t.Errorf("%q: exit code %d, %q, without colours:\n%s", args, code, errOut.String(), out.String())
		}
		var bare strings.Builder
		for i, part := range strings.Split(out.String(), "\x1b[") {
			if i > 0 {
				_, part, _ = strings.Cut(part, "m")
			}
			bare.WriteString(part)
		}
		if bare.String() != plain.out {
			t.Errorf("%q has another text with colours:\n%s", args, out.String())
		}
	}
}

// lineWriter calls full after a number of lines.
type lineWriter struct {
	mu    sync.Mutex
	text  strings.Builder
	lines int
	full  func()
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if w.lines -= bytes.Count(p, []byte("\n")); w.lines == 0 {
		w.full()
	}
	return len(p), nil
}

// TestTail follows the commits of the fixture, and ends like after Ctrl-C.
func TestTail(t *testing.T) {
	t.Parallel()
	f := newFixture(t).fill()
	all, err := audit.Read(t.Context(), f.client)
	if err != nil {
		t.Fatal(err)
	}
	happened := len(all.Movements) + len(all.Events) + len(all.Reversals) + len(all.Conflicts) + len(all.Quarantined) + 2 // one resolved, one released
	for _, form := range []string{outputTable, outputJSON} {
		ctx, cancel := context.WithCancel(t.Context())
		out, errOut := &lineWriter{lines: happened, full: cancel}, &bytes.Buffer{}
		args := []string{"tail", "--since=2020-01-01", "--interval=100ms", "--output=" + form}
		s := streamsOf(nil, out, errOut, f.env())
		s.now = f.clock.Now
		code := run(ctx, args, s)
		cancel()
		if code != term.ExitInterrupted || errOut.String() != "settlectl: interrupted\n" {
			t.Errorf("exit code %d, standard error %q", code, errOut.String())
		}
		golden(t, "tail."+form, out.text.String())
		wantTame(t, out.text.String())
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"list ":                                 "conflicts\t",
		"list conflicts --state ":               "resolved\n",
		"list conflicts --reason ":              "amount_cents\n",
		"list quarantine --state ":              "released\n",
		"list quarantine --reason ":             "duplicate_field\n",
		"list movements --state ":               "returned\n",
		"report --output ":                      "csv\n",
		"show --output ":                        "json\n",
		"show stl-8472 --json --stale 15s --ro": "--role\t",
	} {
		at := strings.LastIndex(args, " ")
		got := settlectl(t, nil, nil, append(append([]string{"__complete"}, strings.Fields(args[:at])...), args[at+1:])...)
		if got.code != term.ExitOK || !strings.Contains(got.out, want) {
			t.Errorf("%q: exit code %d, standard output %q; want %q", args, got.code, got.out, want)
		}
	}
}
