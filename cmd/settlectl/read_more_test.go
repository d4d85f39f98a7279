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
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

func TestShowOfASettlementThatDoesNotExist(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, form := range []string{outputTable, outputJSON} {
		got := f.run("show", "stl-\x1b[2J-none", "--output="+form)
		if got.code != exitAbsent || got.out != "" || !strings.Contains(got.errOut, `there is no settlement stl-\u001b[2J-none in `+f.database.name) {
			t.Errorf("exit code %d, standard output %q, standard error %q", got.code, got.out, got.errOut)
		}
		wantTame(t, got.errOut)
	}
}

// TestShowOfASettlementThatWasSentAgain shows a key that two people gave up.
func TestShowOfASettlementThatWasSentAgain(t *testing.T) {
	t.Parallel()
	f := newResentFixture(t)
	for _, form := range []string{outputTable, outputJSON} {
		got := f.run("show", stlForgotten, "--output="+form)
		if got.code != exitOK || got.errOut != "" {
			t.Fatalf("exit code %d, standard error %q", got.code, got.errOut)
		}
		if !strings.Contains(got.out, transfer.InstructionKey(stlForgotten).String()) || !strings.Contains(got.out, transfer.KeyOfGeneration(stlForgotten, 2).String()) {
			t.Errorf("%s lacks a key", form)
		}
		golden(t, "show-resent."+form, unstable.ReplaceAllString(got.out, "UNSTABLE"))
		wantTame(t, got.out)
		if form == outputTable {
			wantNarrow(t, got.out)
		}
	}
}

// TestShownCommandsRun runs what show tells a person to run, with its words in
// capitals filled in.
func TestShownCommandsRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t).fill()
	filled := strings.NewReplacer("--second WHO", "--second bert", "WHO", "ines", "WHAT", "mended", "HOW", "letter")
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
				if got := f.act(nil, strings.Fields(command)[1:]...); got.code != exitOK && (got.code != exitNo || !refusable) {
					t.Errorf("%s: exit code %d, %s", command, got.code, got.errOut)
				}
				run++
			}
		}
		if run == 0 {
			t.Errorf("%s has nothing to run: %+v", id, shown.Next)
		}
	}
}

// alternatives are the commands for which one with bars stands.
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

// TestStaleReads reads what there was before there was a database, and what there
// was just now.
func TestStaleReads(t *testing.T) {
	t.Parallel()
	f := newFixture(t).fill()
	for _, args := range [][]string{{"show", stlApplied}, {"list", "conflicts"}, {"report", "--account=reserve-claims", "--from=2020-01-01"}} {
		if got := f.run(append(args, "--stale=100h")...); got.code != exitError || got.out != "" {
			t.Errorf("%q of long ago: exit code %d, standard output %q", args, got.code, got.out)
		}
		if got := f.run(append(args, "--stale=1us")...); got.code != exitOK || got.errOut != "" {
			t.Errorf("%q of just now: exit code %d, standard error %q", args, got.code, got.errOut)
		}
	}
}

// TestColoursOfTheReadingCommands runs them on a terminal: they are coloured, fit,
// and say the same.
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
		code := run(t.Context(), args, streams{out: &out, err: &errOut, outColumns: 80, now: f.clock.Now, getenv: func(name string) string { return f.env()[name] }})
		if code != exitOK || !strings.Contains(out.String(), "\x1b[") {
			t.Errorf("%q: exit code %d, %q, without colours:\n%s", args, code, errOut.String(), out.String())
		}
		wantNarrow(t, out.String())
		var bare strings.Builder
		for i, part := range strings.Split(out.String(), "\x1b[") {
			if i > 0 {
				_, part, _ = strings.Cut(part, "m")
			}
			bare.WriteString(part)
		}
		if got, want := strings.Fields(bare.String()), strings.Fields(plain.out); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%q says something else with colours:\n%s", args, out.String())
		}
	}
}

// lineWriter ends a context when it has got so many lines.
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

// TestTail follows what the fixture did, and ends as Ctrl-C ends it.
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
		code := run(ctx, args, streams{out: out, err: errOut, now: f.clock.Now, getenv: func(name string) string { return f.env()[name] }})
		cancel()
		if code != exitInterrupted || errOut.String() != "settlectl: interrupted\n" {
			t.Errorf("exit code %d, standard error %q", code, errOut.String())
		}
		golden(t, "tail."+form, out.text.String())
		wantTame(t, out.text.String())
	}
}

// TestEveryCommandExplainsItself keeps help complete.
func TestEveryCommandExplainsItself(t *testing.T) {
	t.Parallel()
	root := newRoot(streams{getenv: func(string) string { return "" }})
	commands := root.Commands()
	for len(commands) > 0 {
		cmd := commands[0]
		if cmd.Name() == "help" || cmd.Name() == "completion" { // cobra's own
			commands = commands[1:]
			continue
		}
		commands = append(commands[1:], cmd.Commands()...)
		if cmd.Example == "" || !strings.Contains(cmd.Long, "Exit codes: ") || cmd.Short == "" {
			t.Errorf("%s: no example, no exit codes or no summary", cmd.CommandPath())
		}
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
		if got.code != exitOK || !strings.Contains(got.out, want) {
			t.Errorf("%q: exit code %d, standard output %q; want %q", args, got.code, got.out, want)
		}
	}
}
