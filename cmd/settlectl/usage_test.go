package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/term"
)

// everyCommand calls f with a command and with all commands below it.
func everyCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, below := range cmd.Commands() {
		everyCommand(below, f)
	}
}

// TestUsageErrors checks that a usage error ends with exit code 2, a message and the
// help to read, and without a result. "DB" stands for a valid --database.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	const database = "--database=" + nowhere
	decide := "decide stl-1 --by=ines --second=bert --note=n DB "
	release := "release --by=ines --topic=projects/p/topics/t DB "
	for _, tt := range []struct{ args, want string }{
		// Commands, arguments and flags: the messages are cobra's.
		{"lst", "Did you mean this?\nsettlectl: \tlist\n"},
		{"settle", `unknown command "settle" for "settlectl"`},
		{"list", "name a list: conflicts, manual, movements, quarantine or uncertain"},
		{"list everything", `unknown command "everything" for "settlectl list"`},
		{"resolve conflicts", `unknown command "conflicts" for "settlectl resolve"`},
		{"show", "accepts 1 arg(s), received 0"},
		{"show a b", "accepts 1 arg(s), received 2"},
		{"check a b", "accepts at most 1 arg(s), received 2"},
		{"verify now DB", `unknown command "now" for "settlectl verify"`},
		{"doctor now", `unknown command "now" for "settlectl doctor"`},
		{"publish --topic=projects/p/topics/t", "accepts 1 arg(s), received 0"},
		{"check --verbose", "unknown flag: --verbose"},
		{"show a --csv DB", "unknown flag: --csv"},
		{"tail --csv DB", "unknown flag: --csv"},
		{"list uncertain --state=open DB", "unknown flag: --state"},
		{"list uncertain --reason=x DB", "unknown flag: --reason"},
		{"list manual --reason=x DB", "unknown flag: --reason"},
		{"list quarantine --account=a DB", "unknown flag: --account"},
		{"list movements --reason=x DB", "unknown flag: --reason"},
		{"show a", `required flag(s) "database" not set`},
		{"doctor --subscription=projects/p/subscriptions/s", `required flag(s) "database" not set`},
		{"doctor DB", `required flag(s) "subscription" not set`},
		{"report --from=2026-11-01 DB", `required flag(s) "account" not set`},
		{"report --account=a DB", `required flag(s) "from" not set`},
		{"verify", `required flag(s) "database" not set`},
		{"publish -", `required flag(s) "topic" not set`},
		{"capacity", `required flag(s) "rate" not set`},
		{"capacity --rate=many", `invalid argument "many" for "--rate" flag`},
		{"resolve conflict a --by=ines DB", `required flag(s) "note" not set`},
		{"decide a --rejected --by=ines --note=n DB", `required flag(s) "second" not set`},
		{"release m --topic=projects/p/topics/t DB", `required flag(s) "by" not set`},
		{"release m --by=ines DB", `required flag(s) "topic" not set`},
		{release + "--all", "[all reason] are set they must all be set; missing [reason]"},
		{release + "--all --reason=not_json --edit=f", "[all edit] are set none of the others can be"},
		{decide, "[confirmed rejected resend-new-key] is required"},
		{decide + "--rejected --confirmed", "[confirmed rejected] were all set"},
		{decide + "--resend-new-key --without-bank", "[resend-new-key without-bank] were all set"},
		{"show a --output=json --json DB", "[json output] were all set"},
		{"list manual --json --csv DB", "[csv json] were all set"},
		{"doctor DB --function=projects/p/locations/l/functions/f --function-timeout=1s --subscription=s", "[function function-timeout] were all set"},

		// Arguments and values that the commands check.
		{"reconcile --bank-from-environment DB", "give either ID or --due"},
		{"reconcile a --due --bank-from-environment DB", "give either ID or --due"},
		{"reconcile a DB", "--function is missing"},
		{release, "give either MESSAGE or --all"},
		{release + "m --all --reason=not_json", "give either MESSAGE or --all"},
		{release + "--all --reason=unsupported_event", "--reason is"},
		{release + "m --edit=edited.json", "--edit needs --note"},
		{release + "m --default-currency=usd", `--default-currency, or DEFAULT_CURRENCY, is "usd"`},
		{"release m --by=ines --topic=t DB", "give projects/P/topics/T"},
		{"resolve conflict a --by= --note=n DB", `--by is ""; give one line of text`},
		{"resolve conflict a --by=\x1b[2J --note=n DB", `--by is "\x1b[2J"`},
		{"resolve conflict a --by=ines --note= DB", `--note is ""`},
		{"show a --database=d", `--database, or SPANNER_DATABASE, is "d"; give projects/P`},
		{"show a --output=csv DB", `--output is "csv"; give table or json`},
		{"show a --role=no-way! DB", `--role, or SPANNER_DATABASE_ROLE, is "no-way!"`},
		{"show a --stale=-1s DB", "--stale is -1s"},
		{"show a --stale=169h DB", "--stale is 169h0m"},
		{"list conflicts --state=closed DB", `--state is "closed"; give open, resolved or all`},
		{"list conflicts --reason=amount DB", `--reason is "amount"; give account_id, amount_cents`},
		{"list conflicts --limit=-1 DB", "--limit is -1"},
		{"list conflicts --since=yesterday DB", `--since is "yesterday"; give a time such as`},
		{"list conflicts --since=1h --until=2h DB", "not before --until"},
		{"list movements --until=2020-01-01 DB", "--since is 24h by default"},
		{"list quarantine --reason=broken DB", `--reason is "broken"; give unsupported_event`},
		{"list movements --state=open DB", `--state is "open"; give uncertain`},
		{"tail --interval=1ms DB", "--interval is 1ms; give 100ms or more"},
		{"tail --since=-1s DB", `--since is "-1s"`},
		{"report --account=a --from=2026-11-01 --to=2026-10-01 DB", "not before --to"},
		{"report --account= --from=1x DB", "--account is empty"},
		{"check --default-currency=usd", `--default-currency, or DEFAULT_CURRENCY, is "usd"; give an ISO 4217`},
		{"publish - --topic=t", "give projects/P/topics/T"},
		{"publish - --topic=projects/p/subscriptions/s", "give projects/P/topics/T"},
		{"doctor DB --subscription=s", `--subscription is "s"`},
		{"doctor DB --subscription=projects/p/subscriptions/s --function=f", `--function is "f"`},
		{"doctor DB --subscription=projects/p/subscriptions/s --function-timeout=-1s", "--function-timeout is -1s"},
		{"doctor DB --subscription=projects/p/subscriptions/s --output=yaml", `--output is "yaml"`},
		{"capacity --rate=0", "above 0, at most 10,000,000"},
		{"capacity --rate=NaN", "--rate is NaN"},
		{"capacity --rate=Inf", "--rate is +Inf"},
		{"capacity --rate=1,2,3,4,5,6,7,8,9", "--rate is given 9 times"},
		{"capacity --rate=1 --bank-share=1.5", "--bank-share is 1.5"},
		{"capacity --rate=1 --bank-share=NaN", "--bank-share is NaN"},
		{"capacity --rate=1 --rpc-latency=-1s", "--rpc-latency is -1s"},
		{"capacity --rate=1 --concurrency=0", "--concurrency is 0"},
		{"capacity --rate=1 --output=yaml", `--output is "yaml"`},
		{"verify --limit=-1 DB", "--limit is -1"},
		{"verify --bank-rate=NaN DB", "--bank-rate is NaN"},
		{"verify --key-lifetime=24h,0s DB", "--key-lifetime is not"},
		{"verify --bank DB", "--function is missing"},
		{"verify --bank --bank-from-environment DB", "BANK_URL is not set"},
		{"verify --function=projects/p/locations/l/functions/f DB", "have no effect without --bank"},
		{"verify --bank-from-environment DB", "add --bank"},
		{"verify --output=csv DB", `--output is "csv"; give`},
	} {
		got := settlectl(t, nil, nil, strings.Fields(strings.ReplaceAll(tt.args, "DB", database))...)
		if got.code != term.ExitError || got.out != "" || !strings.Contains(got.errOut, tt.want) || !strings.HasSuffix(got.errOut, " --help'.\n") {
			t.Errorf("settlectl %s: exit code %d, standard output %q, standard error %q; want %q", tt.args, got.code, got.out, got.errOut, tt.want)
		}
	}
}

// TestUsageErrorsAreReportedTogether, each on a line of its own.
func TestUsageErrorsAreReportedTogether(t *testing.T) {
	t.Parallel()
	got := settlectl(t, nil, nil, "capacity", "--rate=0", "--bank-share=2", "--cpu=0s", "--output=x")
	want := `settlectl capacity: --rate is 0; give a number above 0, at most 10,000,000
settlectl capacity: --bank-share is 2; give 0 to 1
settlectl capacity: --cpu is 0s; give a value above 0
settlectl capacity: --output is "x"; give table or json
See 'settlectl capacity --help'.
`
	if got.code != term.ExitError || got.errOut != want {
		t.Errorf("exit code %d, standard error\n%swant\n%s", got.code, got.errOut, want)
	}
}

// TestEnvironmentErrorsNameTheVariable, because the command line does not show the value.
func TestEnvironmentErrorsNameTheVariable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ args, name, want string }{
		{"check", "DEFAULT_CURRENCY", `DEFAULT_CURRENCY, is "wrong"; give an ISO 4217`},
		{"show a", "SPANNER_DATABASE", `SPANNER_DATABASE, is "wrong"`},
		{"verify --database=" + nowhere, "BANK_KEY_LIFETIME", `BANK_KEY_LIFETIME is "wrong"`},
	} {
		got := settlectl(t, nil, map[string]string{tt.name: "wrong"}, strings.Fields(tt.args)...)
		if got.code != term.ExitError || !strings.Contains(got.errOut, tt.want) {
			t.Errorf("%s: exit code %d, standard error %q; want %q", tt.args, got.code, got.errOut, tt.want)
		}
	}
}

// TestHelp checks the help of every command of this program: a summary, an example, the
// exit codes, and lines of at most 80 columns.
func TestHelp(t *testing.T) {
	t.Parallel()
	everyCommand(newRoot(streamsOf(nil, nil, nil, nil)), func(cmd *cobra.Command) {
		got := settlectl(t, nil, nil, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		if got.code != term.ExitOK || cmd.Short == "" || !strings.Contains(got.out, "Examples:\n") || !strings.Contains(got.out, "Exit codes: ") {
			t.Errorf("%s --help: exit code %d:\n%s", cmd.CommandPath(), got.code, got.out)
		}
		wantNarrow(t, got.out)
	})
}

// TestTerminalInputIsAnnounced, because a forgotten file name would look like a hanging
// program.
func TestTerminalInputIsAnnounced(t *testing.T) {
	t.Parallel()
	for _, terminal := range []bool{true, false} {
		var out, errOut strings.Builder
		s := streamsOf(strings.NewReader(smallest), &out, &errOut, nil)
		s.InTerminal = terminal
		run(t.Context(), []string{"check"}, s)
		if announced := strings.Contains(errOut.String(), "end the input with Ctrl-D"); announced != terminal {
			t.Errorf("terminal %t: %q", terminal, errOut.String())
		}
	}
}

// TestUnreadableInput ends with exit code 2 and the name of the input.
func TestUnreadableInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, command := range []string{
		"check %s", "publish %s --topic=projects/p/topics/t",
		"release m --edit=%s --note=n --by=ines --topic=projects/p/topics/t --database=" + nowhere,
	} {
		for path, want := range map[string]string{
			filepath.Join(dir, "missing.json"): "missing.json: no such file or directory; name a readable file",
			dir:                                dir + " is a directory; name a file",
		} {
			got := settlectl(t, nil, nil, strings.Fields(fmt.Sprintf(command, path))...)
			if got.code != term.ExitError || got.out != "" || !strings.Contains(got.errOut, want) {
				t.Errorf(command+": exit code %d, standard output %q, standard error %q; want %q", path, got.code, got.out, got.errOut, want)
			}
		}
	}
	got := settlectl(t, iotest.ErrReader(errFull), nil, "check")
	if want := "read the message from standard input: no space left"; got.code != term.ExitError || got.out != "" || !strings.Contains(got.errOut, want) {
		t.Errorf("exit code %d, standard output %q, standard error %q; want %q", got.code, got.out, got.errOut, want)
	}
}
