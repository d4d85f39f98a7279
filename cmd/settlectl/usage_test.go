package main

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

// TestWrongCallsAreTold looks at whole messages: what is missing or wrong, of which
// command, what to type, and where the help is.
func TestWrongCallsAreTold(t *testing.T) {
	t.Parallel()
	const missing = "--database is missing: name of the database, projects/P/instances/I/databases/D; or set SPANNER_DATABASE"
	for _, tt := range []struct {
		args    string
		command string
		faults  []string
	}{
		// Arguments.
		{"show", "show", []string{"ID is missing; type: settlectl show ID", missing}},
		{"resolve conflict --database d --by b --note n", "resolve conflict", []string{"ID is missing; type: settlectl resolve conflict ID"}},
		{"show a b --database d", "show", []string{`"b" is one argument too many; type: settlectl show ID`}},
		{"check a b", "check", []string{`"b" is one argument too many; type: settlectl check [FILE|-]`}},
		{"verify now --database d", "verify", []string{`"now" is one argument too many; flags are all that goes here`}},
		{"completion bash now", "completion bash", []string{`"now" is one argument too many; flags are all that goes here`}},

		// Commands.
		{"lst", "", []string{"there is no command settlectl lst; did you mean settlectl list?"}},
		{"conflict", "", []string{"there is no command settlectl conflict; did you mean settlectl list conflicts or settlectl resolve conflict?"}},
		{"list conflict", "list", []string{"there is no command settlectl list conflict; did you mean settlectl list conflicts?"}},
		{"list conflict --since 7d", "list", []string{"there is no command settlectl list conflict; did you mean settlectl list conflicts?"}},
		{"list qarantined", "list", []string{"there is no command settlectl list qarantined; did you mean settlectl list quarantine?"}},
		{"list everything", "list", []string{"there is no command settlectl list everything; give conflicts, manual, movements, quarantine or uncertain"}},
		{"resolve conflicts stl-1", "resolve", []string{"there is no command settlectl resolve conflicts; did you mean settlectl resolve conflict?"}},
		{"completion nushell", "completion", []string{"there is no command settlectl completion nushell; give bash, fish, powershell or zsh"}},
		{"help list manuel", "help", []string{"there is no command settlectl list manuel; did you mean settlectl list manual?"}},
		{"list", "list", []string{"say what is to be listed: conflicts, manual, movements, quarantine or uncertain"}},

		// Flags.
		{"show a --databse d", "show", []string{"there is no flag --databse; did you mean --database?"}},
		{"list manual --state open", "list manual", []string{"there is no flag --state here; there is --account, --csv, --database, --help, --json, --limit, --output, --role, --since, --stale, --until"}},
		{"list --since 7d conflicts", "list conflicts", []string{missing}},
		{"list --since 7d conflict", "list", []string{"there is no flag --since here; name the command before its flags: conflicts, manual, movements, quarantine or uncertain"}},
		{"show -x", "show", []string{"there is no flag -x; flags begin with --, and -- alone stands before an argument that begins with -"}},
		{"capacity --rate many", "capacity", []string{`--rate is "many"; give a number`}},
		{"capacity --rate", "capacity", []string{"--rate has no value: payouts a second, a number; more than one: a column each"}},
		{"show a --json=perhaps", "show", []string{`--json is "perhaps"; give true or false, or nothing, which means true`}},
		{"tail --interval soon", "tail", []string{`--interval is "soon"; give a duration such as 90s, 15m or 24h`}},
		{"list manual --limit few", "list manual", []string{`--limit is "few"; give a whole number`}},
		{"show a --=b", "show", []string{`"--=b" is no flag; type: --NAME VALUE or --NAME=VALUE`}},

		// Flags that are needed, all at once, and those that do not go together.
		{"report", "report", []string{
			"--account is missing: ID of the ledger account", missing,
			"--from is missing: time from which on; " + timeForms,
		}},
		{"publish -", "publish", []string{"--topic is missing: name of the topic: projects/P/topics/T, or T with --project"}},
		{"decide", "decide", []string{
			"ID is missing; type: settlectl decide ID --confirmed|--rejected|--resend-new-key",
			"--by is missing: who decides", missing, "--note is missing: how they know, in one line",
			"--second is missing: who else has looked at it and agrees",
			"give one of --confirmed, --rejected or --resend-new-key",
		}},
		{"release --all --database d --by b --topic t", "release", []string{"--all needs --reason"}},
		{"release m --reason not_json --database d --by b --topic t", "release", []string{"--reason needs --all"}},
		{"list manual --json --csv --database d", "list manual", []string{"--json and --csv do not go together; give one of them"}},
	} {
		got := settlectl(t, nil, nil, strings.Fields(tt.args)...)
		path := strings.TrimSuffix("settlectl "+tt.command, " ")
		var want strings.Builder
		for _, fault := range tt.faults {
			fmt.Fprintf(&want, "%s: %s\n", path, fault)
		}
		fmt.Fprintf(&want, "See '%s --help'.\n", path)
		if got.code != exitError || got.out != "" || got.errOut != want.String() {
			t.Errorf("settlectl %s: exit code %d, standard output %q, standard error\n%swant\n%s", tt.args, got.code, got.out, got.errOut, want.String())
		}
	}
}

// cobras are words in which cobra and the standard library speak of wrong calls.
var cobras = regexp.MustCompile(`arg\(s\)|flag\(s\)|unknown|flags in the group|strconv|invalid argument|needs an argument|bad flag`)

// TestNoCommandSpeaksLikeItsLibrary calls every command wrongly in every way that all
// of them share.
func TestNoCommandSpeaksLikeItsLibrary(t *testing.T) {
	t.Parallel()
	everyCommand(newRoot(streams{getenv: func(string) string { return "" }}), func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		for _, wrong := range [][]string{{"one", "two"}, {"--no-such-flag"}, {"-?"}, {"--help=perhaps"}} {
			got := settlectl(t, nil, nil, append(path, wrong...)...)
			if got.code != exitError || got.out != "" || cobras.MatchString(got.errOut) || !strings.HasSuffix(got.errOut, " --help'.\n") {
				t.Errorf("settlectl %q %q: exit code %d, standard output %q, standard error %q", path, wrong, got.code, got.out, got.errOut)
			}
		}
		if got := settlectl(t, strings.NewReader(""), nil, path...); cobras.MatchString(got.errOut) {
			t.Errorf("settlectl %q: %q", path, got.errOut)
		}
	})
}

// TestHelpFitsATerminal reads the help of every command, where it goes to no terminal
// and to terminals of several widths.
func TestHelpFitsATerminal(t *testing.T) {
	t.Parallel()
	for _, columns := range []int{0, 80, 120} {
		widest := 0
		everyCommand(newRoot(streams{getenv: func(string) string { return "" }}), func(cmd *cobra.Command) {
			var out bytes.Buffer
			args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
			code := run(t.Context(), args, streams{out: &out, err: io.Discard, outColumns: columns, getenv: func(string) string { return "" }})
			if code != exitOK {
				t.Fatalf("%q: exit code %d", args, code)
			}
			for line := range strings.Lines(out.String()) {
				n := text.StringWidthWithoutEscSequences(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "        "))
				if widest = max(widest, n); n > max(columns, pageColumns) {
					t.Errorf("%q: a line of %d columns: %s", args, n, line)
				}
			}
		})
		if columns > pageColumns && widest <= pageColumns {
			t.Errorf("with %d columns no line is wider than %d", columns, widest)
		}
	}
}

// TestATerminalIsReadOnlyWithAWord: who forgot the file would wait for ever.
func TestATerminalIsReadOnlyWithAWord(t *testing.T) {
	t.Parallel()
	for _, terminal := range []bool{true, false} {
		var errOut bytes.Buffer
		run(t.Context(), []string{"check"}, streams{
			in: strings.NewReader(smallest), inTerminal: terminal, out: io.Discard, err: &errOut, getenv: func(string) string { return "" },
		})
		if told := strings.Contains(errOut.String(), "up to Ctrl-D"); told != terminal {
			t.Errorf("terminal %t: %q", terminal, errOut.String())
		}
	}
}
