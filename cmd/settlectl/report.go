package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/ledger"
)

// reportFlags are report's flags.
type reportFlags struct{ account, from, to string }

func newReport(s streams) *cobra.Command {
	var (
		database databaseFlags
		output   outputFlags
		flags    reportFlags
		from, to time.Time
	)
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Sum up what a ledger account paid in a period",
		Long: `report sums up an account's movements and reversals of a period, by currency and
by the state of the bank instructions now. A movement and its reversal each
belong to the period in which they were recorded. Amounts are exact, in major
units by the currency's ISO 4217 exponent; currencies are never added up. It
changes nothing.

The period is what was recorded from --from on and before --to, to the
microsecond: for November, --from 2026-11-01 --to 2026-12-01, in UTC. The CSV
has the lines, not the totals.

Exit codes: 0, 2 wrong usage or a database that cannot be read, 130 interrupted.`,
		Example: `  settlectl report --account reserve-claims --from 2026-11-01 --to 2026-12-01
  settlectl report --account reserve-claims --from 2026-11-01 \
    --csv > november.csv`,
		Args: noArguments,
		PreRunE: func(*cobra.Command, []string) (err error) {
			from, to, err = flags.check(s.now())
			return errors.Join(database.check(), output.check(), err)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return interruptible(cmd.Context(), func(ctx context.Context) error {
				return printReport(ctx, flags.account, from, to, database, output.form, s)
			})
		},
	}
	database.register(cmd, s)
	database.registerStale(cmd)
	output.register(cmd, outputTable, outputJSON, outputCSV)
	cmd.Flags().StringVar(&flags.account, "account", "", "`ID` of the ledger account")
	timeFlag(cmd, &flags.from, "from", "", "from which on")
	require(cmd, "account", "from")
	timeFlag(cmd, &flags.to, "to", "", "before which; else now")
	return cmd
}

func (f reportFlags) check(now time.Time) (from, to time.Time, err error) {
	var faults []error
	if f.account == "" {
		faults = append(faults, wrongf("account", "--account is empty; give the ID of a ledger account"))
	}
	if f.from == "" {
		faults = append(faults, wrongf("from", "--from is empty; give %s", timeForms))
	}
	if f.to == "" {
		f.to = now.UTC().Format(time.RFC3339Nano)
	}
	from, to, err = period("from", f.from, "to", f.to, now)
	return from, to, errors.Join(append(faults, err)...)
}

func printReport(ctx context.Context, account string, from, to time.Time, database databaseFlags, form string, s streams) error {
	client, err := database.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	report, err := ledger.Reader{Client: client, Bound: database.bound()}.Report(ctx, account, from, to)
	switch {
	case err != nil:
		return database.explain(err)
	case form == outputJSON:
		return printJSON(s.out, report)
	case form == outputCSV:
		return printReportCSV(report, s)
	}
	return printReportTable(report, s)
}

func printReportTable(report ledger.Report, s streams) error {
	words := layOut(s, []column{{}, {}}, [][]string{
		{"account", visible(report.AccountID)}, {"recorded from", clock(report.From)}, {"before", clock(report.To)},
	}, false) + "\n"
	if len(report.Lines) == 0 {
		return write(s.out, words+"\nNo movements and no reversals.\n")
	}
	columns := []column{
		{name: "currency"},
		{name: "bank", colors: stateColors},
		{name: "movements", right: true},
		{name: "moved", right: true},
		{name: "reversals", right: true},
		{name: "reversed", right: true},
		{name: "net", right: true},
	}
	var rows [][]string
	for _, total := range report.Totals {
		for _, l := range report.Lines {
			if l.Currency == total.Currency {
				rows = append(rows, reportRow(l, l.State))
			}
		}
		rows = append(rows, reportRow(total, "total"))
	}
	return write(s.out, words+"\n"+layOut(s, columns, rows, true)+"\n")
}

func reportRow(l ledger.ReportLine, state string) []string {
	return []string{
		visible(l.Currency), visible(state), fmt.Sprint(l.Movements), majorOf(l.Moved), fmt.Sprint(l.Reversals), majorOf(l.Reversed), majorOf(l.Net),
	}
}

// majorOf is an amount beside its currency.
func majorOf(a ledger.Amount) string {
	if a.Major == "" {
		return a.Minor + " minor units"
	}
	return a.Major
}

func printReportCSV(report ledger.Report, s streams) error {
	printer := newRowPrinter(s, outputCSV, named("account_id", "from", "to", "currency", "state",
		"movement_count", "movements", "movements_minor", "reversal_count", "reversals", "reversals_minor", "net", "net_minor"))
	for _, l := range report.Lines {
		err := printer.print(report.AccountID, exact(report.From), exact(report.To), l.Currency, l.State,
			fmt.Sprint(l.Movements), l.Moved.Major, l.Moved.Minor, fmt.Sprint(l.Reversals), l.Reversed.Major, l.Reversed.Minor, l.Net.Major, l.Net.Minor)
		if err != nil {
			return err
		}
	}
	return printer.flush("")
}
