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
	const (
		missing    = "--database is missing: name of the database, projects/P/instances/I/databases/D; or set SPANNER_DATABASE"
		noDatabase = `--database, or SPANNER_DATABASE, is "d"; give projects/P/instances/I/databases/D`
		noTopic    = `--topic is "t", without a project; add --project, or give projects/P/topics/t`
		noBank     = "--function is missing; name the deployed function whose bank it is, or give --bank-from-environment"
	)
	for _, tt := range []struct {
		args    string
		command string
		faults  []string
	}{
		// Arguments.
		{"show", "show", []string{"ID is missing; type: settlectl show ID", missing}},
		{"resolve conflict --database d --by b --note n", "resolve conflict", []string{"ID is missing; type: settlectl resolve conflict ID", noDatabase}},
		{"show a b --database d", "show", []string{`"b" is one argument too many; type: settlectl show ID`, noDatabase}},
		{"check a b", "check", []string{`"b" is one argument too many; type: settlectl check [FILE|-]`}},
		{"verify now --database d", "verify", []string{`"now" is one argument too many; flags are all that goes here`, noDatabase}},
		{"release m --all --reason not_json --topic t --by b --database d", "release", []string{"MESSAGE and --all do not go together; give one of them", noDatabase, noTopic}},
		{"reconcile stl-1 --due --database d", "reconcile", []string{"ID and --due do not go together; give one of them", noDatabase, noBank}},
		{"reconcile", "reconcile", []string{"ID is missing; type: settlectl reconcile ID|--due", missing, noBank}},
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
		{"capacity --rate 1 --rate many --concurrency x", "capacity", []string{`--concurrency is "x"; give a whole number`, `--rate is "many"; give a number`}},
		{"capacity --rate", "capacity", []string{"--rate has no value: payouts a second, a number; more than one: a column each"}},
		{"show a --json=perhaps", "show", []string{`--json is "perhaps"; give true or false, or nothing, which means true`, missing}},
		{"tail --interval soon", "tail", []string{`--interval is "soon"; give a duration such as 90s, 15m or 24h`, missing}},
		{"list manual --limit few", "list manual", []string{`--limit is "few"; give a whole number`, missing}},
		{"show a --help=perhaps", "show", []string{`--help is "perhaps"; give true or false, or nothing, which means true`}},
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
			"give one of --confirmed, --rejected or --resend-new-key", noBank,
		}},
		{"release --all --database d --by b --topic t", "release", []string{"--all needs --reason", noDatabase, noTopic}},
		{"release m --reason not_json --database d --by b --topic t", "release", []string{"--reason needs --all", noDatabase, noTopic}},
		{"release m --edit /no/file --database d --by b --topic t", "release", []string{
			noDatabase, "--edit needs --note, which says in one line who of the producer agreed",
			"--edit: open /no/file: no such file or directory; name a file that can be read, or - for standard input", noTopic,
		}},
		{"release m --edit . --note= --database d --by b --topic t", "release", []string{
			noDatabase, `--note is ""; give one line of text`, "--edit: . is a directory; name a file, or - for standard input", noTopic,
		}},
		{"list manual --json --csv --database d", "list manual", []string{"--json and --csv do not go together; give one of them", noDatabase}},

		// Values that do not fit, with what else is wrong.
		{"doctor --database d --subscription bar --function baz", "doctor", []string{
			noDatabase, `--function is "baz"; give projects/P/locations/L/functions/F`, `--subscription is "bar"; give projects/P/subscriptions/S`,
		}},
		{"doctor --database d --function baz --function-timeout 90", "doctor", []string{
			`--function-timeout is "90"; give a duration such as 90s, 15m or 24h`,
			"--subscription is missing: name of the trigger's subscription: projects/P/subscriptions/S",
			"--function and --function-timeout do not go together; give one of them",
			noDatabase, `--function is "baz"; give projects/P/locations/L/functions/F`,
		}},
		{"capacity --rate 0 --bank-share 2 --cpu 0s --log-bytes 0 --output x", "capacity", []string{
			"--rate is 0; give a number above 0, at most 10,000,000", "--bank-share is 2; give 0 to 1", "--cpu is 0s; it has to be above 0",
			"--log-bytes is 0; it has to be above 0", `--output is "x"; give table or json`,
		}},
		{"report --from 1x --to 2x", "report", []string{
			"--account is missing: ID of the ledger account", missing, `--from is "1x"; give ` + timeForms, `--to is "2x"; give ` + timeForms,
		}},
		{"list movements --state acepted --since 1x --limit -1 --stale -1s --role no-way! --database d", "list movements", []string{
			noDatabase, `--role, or SPANNER_DATABASE_ROLE, is "no-way!"; give the name of a database role, such as settleonce_operator, or nothing`,
			"--stale is -1s; give a duration of 0 to 168h0m0s", `--since is "1x"; give ` + timeForms, "--limit is -1; give a number above 0, or 0 for all",
			`--state is "acepted"; give uncertain, accepted, confirmed, rejected, returned, manual or none`,
		}},
		{"verify --limit -1 --workers 0 --bank-rate 0 --key-lifetime 0s --function f --database d", "verify", []string{
			noDatabase, "--function and --bank-from-environment say which bank is asked; add --bank to ask it", "--limit is -1; give 0 to 100000",
			"--workers is 0; give 1 to 64", "--bank-rate is 0; give a number above 0, at most 10000", "--key-lifetime is not above 0; give durations such as 24h,72h",
		}},
		{"resolve conflict stl-1 --by= --note= --database d", "resolve conflict", []string{
			noDatabase, `--by is ""; give one line of text`, `--note is ""; give one line of text`,
		}},
		{"check a b --default-currency eur", "check", []string{
			`"b" is one argument too many; type: settlectl check [FILE|-]`,
			`--default-currency is "eur"; give an ISO 4217 alphabetic code in upper case, such as USD`,
		}},
		{"publish --topic t", "publish", []string{"FILE is missing; type: settlectl publish FILE|-", noTopic}},
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
