package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"google.golang.org/api/option"

	"github.com/settleonce/settleonce/internal/doctor"
)

// The shapes of resource names. Which IDs are allowed is Google's business.
var (
	subscriptionName = regexp.MustCompile(`^projects/[^/\s]+/subscriptions/[^/\s]+$`)
	functionName     = regexp.MustCompile(`^projects/[^/\s]+/locations/[^/\s]+/functions/[^/\s]+$`)
)

// examination is doctor's answer.
type examination struct {
	Status doctor.Status    `json:"status"`
	Checks []doctor.Finding `json:"checks"`
}

// doctorFlags are doctor's flags.
type doctorFlags struct {
	database, subscription, function, endpoint string
	timeout                                    time.Duration
	withoutRights                              bool
}

func newDoctor(s streams) *cobra.Command {
	var (
		flags  doctorFlags
		output outputFlags
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Compare a deployment with what it has to be",
		Long: `doctor reads the figures of a deployment and says whether they fit together. It
changes nothing.

The first of them is that a receipt lives as long as a message can come back:

  receipt retention >= subscription retention + dead-letter retention
                       + topic retention (what seek can bring back) + 72h

72h is by how much a row deletion policy may be late. Beside it: the bank's key
lifetime, the schema, point-in-time recovery, the function's timeout and the ack
deadline, the retry policy, dead letters and who may move them, the topic's
message schema, the function's trigger and its database role. Every check has
its figures, and where something is to be done a remedy.

--subscription is the one of the function's trigger. --function is read through
the Cloud Functions API, its time limits from its environment variables. Without
it, --function-timeout and this program's environment (SETTLE_TIMEOUT,
BANK_URL, BANK_KEY_LIFETIME, BANK_SEND_TIMEOUT, BANK_STATUS_TIMEOUT, else the
function's own defaults) stand for it; its trigger and role are then unknown.

Rights are read from the policies of the subscription and the dead-letter topic;
a role on the whole project is not seen. Emulators have no policies.

SPANNER_EMULATOR_HOST and PUBSUB_EMULATOR_HOST lead to emulators; elsewhere the
application default credentials are used.

Each check is ok, warn, fail or unknown. Exit codes: 0 all ok or warn, 1 a check
failed, 2 wrong usage, or none failed and at least one is unknown.`,
		Example: `  settlectl doctor --database projects/p/instances/i/databases/d \
    --subscription projects/p/subscriptions/eventarc-europe-west1-payouts-sub \
    --function projects/p/locations/europe-west1/functions/settle-payout
  settlectl doctor --subscription projects/p/subscriptions/s \
    --function-timeout 90s --without-rights
  settlectl doctor … --output json |
    jq -r '.checks[] | select(.status == "fail") | .remedy'`,
		Args:    noArguments,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(flags.check(), output.check()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return interruptible(cmd.Context(), func(ctx context.Context) error { return examine(ctx, flags, output.form, s) })
		},
	}
	f := cmd.Flags()
	databaseFlag(cmd, &flags.database, s)
	f.StringVar(&flags.subscription, "subscription", "", "`name` of the trigger's subscription: projects/P/subscriptions/S")
	require(cmd, "subscription")
	f.StringVar(&flags.function, "function", "", "`name` of SettlePayout: projects/P/locations/L/functions/F")
	f.DurationVar(&flags.timeout, "function-timeout", 0, "the function's timeout, where --function is not given")
	f.StringVar(&flags.endpoint, "functions-endpoint", "", "`URL` of the Cloud Functions API, where it is not Google's; no credentials are sent there")
	f.BoolVar(&flags.withoutRights, "without-rights", false, "leave out who may move dead letters")
	cmd.MarkFlagsMutuallyExclusive("function", "function-timeout")
	output.register(cmd, outputTable, outputJSON)
	return cmd
}

// check finds flags that are wrong.
func (f doctorFlags) check() error {
	faults := []error{checkDatabaseName(f.database), checkFunctionName(f.function)}
	if !subscriptionName.MatchString(f.subscription) {
		faults = append(faults, wrongf("subscription", "--subscription is %q; give projects/P/subscriptions/S", f.subscription))
	}
	if f.timeout < 0 {
		faults = append(faults, wrongf("function-timeout", "--function-timeout is %v; give a duration above 0", f.timeout))
	}
	return errors.Join(faults...)
}

// checkFunctionName finds a name that is given and none.
func checkFunctionName(name string) error {
	if name == "" || functionName.MatchString(name) {
		return nil
	}
	return wrongf("function", "--function is %q; give projects/P/locations/L/functions/F", name)
}

func examine(ctx context.Context, flags doctorFlags, output string, s streams) error {
	target := doctor.Target{
		Database: flags.database, Subscription: flags.subscription, Function: flags.function, Timeout: flags.timeout,
		Env: s.getenv, WithoutRights: flags.withoutRights,
	}
	if flags.endpoint != "" {
		target.FunctionsOptions = []option.ClientOption{option.WithEndpoint(flags.endpoint), option.WithoutAuthentication()}
	}
	findings := doctor.Examine(doctor.Gather(ctx, target))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	answer := examination{Status: doctor.Worst(findings), Checks: findings}
	if err := printExamination(answer, output, s); err != nil {
		return err
	}
	switch answer.Status {
	case doctor.Fail:
		return &codedError{code: exitNo}
	case doctor.Unknown:
		return &codedError{code: exitError}
	case doctor.OK, doctor.Warn:
	}
	return nil
}

func printExamination(answer examination, output string, s streams) error {
	if output == outputJSON {
		return printJSON(s.out, answer)
	}
	var rows [][]string
	for _, f := range answer.Checks {
		rows = append(rows, []string{f.Check, f.Status.String(), f.Figures})
	}
	return write(s.out, boxed([]string{"check", "", "figures"}, rows)+remedies(answer.Checks))
}

// remedies are what is to be done, below the table: a command has to be copied out
// of it, and is broken where a shell goes on reading.
func remedies(checks []doctor.Finding) string {
	var b strings.Builder
	for _, f := range checks {
		if f.Remedy == "" {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("\nWhat to do\n")
		}
		words, command := f.Remedy, ""
		if at := strings.Index(f.Remedy, "gcloud "); at >= 0 {
			words, command = strings.TrimSpace(f.Remedy[:at]), f.Remedy[at:]
		}
		fmt.Fprintf(&b, "  %s\n", f.Check)
		if words != "" {
			b.WriteString(indented(text.WrapSoft(words, remedyColumns)))
		}
		if command != "" {
			b.WriteString(indented(brokenCommand(command, remedyColumns)))
		}
	}
	return b.String()
}

// remedyIndent stands before a remedy, and remedyColumns is what it leaves of a box.
const (
	remedyIndent  = "    "
	remedyColumns = boxColumns - len(remedyIndent)
)

func indented(lines string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(lines, "\n") {
		b.WriteString(remedyIndent + strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// shellWord is a word of a command, with quotes in it or not.
var shellWord = regexp.MustCompile(`(?:[^\s"']|"[^"]*"|'[^']*')+`)

// brokenCommand breaks a command between its words, with the backslash that a shell
// wants there. A statement of SQL in quotes that is too long alone is broken too:
// to it a new line is a blank.
func brokenCommand(command string, columns int) string {
	const goesOn, more = " \\\n", "  "
	columns -= len(goesOn) + len(more)
	lines := filled(shellWord.FindAllString(command, -1), columns)
	for i, line := range lines {
		lines[i] = strings.Join(filled(strings.Split(line, " "), columns), "\n")
	}
	return strings.Join(lines, goesOn+more)
}
