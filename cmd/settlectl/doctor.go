package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/doctor"
	"github.com/settleonce/settleonce/internal/term"
)

// The forms of resource names. Google checks the IDs.
var (
	subscriptionName = regexp.MustCompile(`^projects/[^/\s]+/subscriptions/[^/\s]+$`)
	functionName     = regexp.MustCompile(`^projects/[^/\s]+/locations/[^/\s]+/functions/[^/\s]+$`)
)

// examination is the answer of doctor.
type examination struct {
	Status doctor.Status    `json:"status"`
	Checks []doctor.Finding `json:"checks"`
}

const doctorHelp = `doctor reads the settings of a deployment and checks that they fit together,
above all that a receipt outlives the last redelivery. It changes nothing.
Without --function it reads the function's settings from this program's
environment. SPANNER_EMULATOR_HOST and PUBSUB_EMULATOR_HOST select emulators.

Each check is ok, warn, fail or unknown. Exit codes: 0 all ok or warn, 1 a check
failed, 2 usage error, or no check failed and at least one is unknown.`

func newDoctor(s streams) *cobra.Command {
	var (
		target   = doctor.Target{Env: s.getenv}
		endpoint string
		output   outputFlags
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the settings of a deployment",
		Long:  doctorHelp,
		Example: `  settlectl doctor --database projects/p/instances/i/databases/d \
    --subscription projects/p/subscriptions/eventarc-europe-west1-payouts-sub \
    --function projects/p/locations/europe-west1/functions/settle-payout`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(checkTarget(target), output.check()); err != nil {
				return err
			}
			target.FunctionsOptions = functionsOptions(endpoint)
			return interruptible(cmd.Context(), func(ctx context.Context) error { return examine(ctx, target, output.form, s) })
		},
	}
	f := cmd.Flags()
	databaseFlag(cmd, &target.Database, s)
	f.StringVar(&target.Subscription, "subscription", "", "`name` of the trigger's subscription: projects/P/subscriptions/S (required)")
	require(cmd, "subscription")
	f.StringVar(&target.Function, "function", "", "`name` of SettlePayout: projects/P/locations/L/functions/F")
	f.DurationVar(&target.Timeout, "function-timeout", 0, "the function's timeout, if --function is not given")
	f.StringVar(&endpoint, "functions-endpoint", "", "`URL` of another Cloud Functions API than Google's; it gets no credentials")
	f.BoolVar(&target.WithoutRights, "without-rights", false, "skip the rights to move dead letters")
	cmd.MarkFlagsMutuallyExclusive("function", "function-timeout")
	output.register(cmd, outputTable, outputJSON)
	return cmd
}

func checkTarget(t doctor.Target) error {
	faults := []error{checkDatabaseName(t.Database), checkFunctionName(t.Function)}
	if !subscriptionName.MatchString(t.Subscription) {
		faults = append(faults, fmt.Errorf("--subscription is %q; give projects/P/subscriptions/S", t.Subscription))
	}
	if t.Timeout < 0 {
		faults = append(faults, fmt.Errorf("--function-timeout is %v; give a duration above 0", t.Timeout))
	}
	return errors.Join(faults...)
}

// checkFunctionName accepts a full name, and none.
func checkFunctionName(name string) error {
	if name == "" || functionName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("--function is %q; give projects/P/locations/L/functions/F", name)
}

func examine(ctx context.Context, target doctor.Target, output string, s streams) error {
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
		return &term.CodedError{Code: term.ExitNo}
	case doctor.Unknown:
		return &term.CodedError{Code: term.ExitError}
	case doctor.OK, doctor.Warn:
	}
	return nil
}

func printExamination(answer examination, output string, s streams) error {
	if output == outputJSON {
		return printJSON(s.Out, answer)
	}
	var rows [][]string
	for _, f := range answer.Checks {
		rows = append(rows, []string{f.Check, f.Status.String(), f.Figures})
	}
	columns := []column{{name: "check"}, {name: "status", colors: checkColors}, {name: "figures", text: true}}
	return write(s.Out, layOut(s, columns, rows, true)+"\n"+remedies(answer.Checks))
}

func checkColors(status string) text.Colors {
	switch status {
	case doctor.Fail.String():
		return text.Colors{text.FgRed}
	case doctor.OK.String():
		return nil
	}
	return text.Colors{text.FgYellow}
}

// remedies lists the remedies below the table. A command stands alone on one line, so
// that a person can copy it.
func remedies(checks []doctor.Finding) string {
	var b strings.Builder
	for _, f := range checks {
		if f.Remedy == "" {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("\nRemedies\n")
		}
		words, command := f.Remedy, ""
		if at := strings.Index(f.Remedy, "gcloud "); at >= 0 {
			words, command = strings.TrimSpace(f.Remedy[:at]), f.Remedy[at:]
		}
		fmt.Fprintf(&b, "  %s\n", f.Check)
		for _, line := range []string{words, command} {
			if line != "" {
				fmt.Fprintf(&b, "    %s\n", line)
			}
		}
	}
	return b.String()
}
