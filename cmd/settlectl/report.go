package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/ledger"
)

func newReport(s streams) *cobra.Command {
	var (
		o     = operation{streams: s}
		flags reportFlags
	)
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Sum up the payouts of a ledger account in a period",
		Long: `report sums up an account's movements and reversals from --from and before --to,
by currency and present state of the bank instructions. Amounts are exact.

` + readingExits,
		Example: `  settlectl report --account reserve-claims --from 2026-11-01 --to 2026-12-01`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, to, err := flags.period(s.now())
			return o.read(cmd.Context(), err, func(ctx context.Context, r ledger.Reader) error {
				report, err := r.Report(ctx, flags.account, from, to)
				if err != nil {
					return o.database.explain(err)
				}
				return printReport(report, o.output.form, s)
			})
		},
	}
	o.register(cmd, outputTable, outputJSON, outputCSV)
	o.database.registerStale(cmd)
	cmd.Flags().StringVar(&flags.account, "account", "", "`ID` of the ledger account")
	timeFlag(cmd, &flags.from, "from", "", "of the beginning")
	require(cmd, "account", "from")
	timeFlag(cmd, &flags.to, "to", "", "of the end, exclusive; default: now")
	return cmd
}

// reportFlags are report's flags.
type reportFlags struct{ account, from, to string }

// period checks the flags and returns the period.
func (f reportFlags) period(now time.Time) (from, to time.Time, err error) {
	var faults []error
	if f.account == "" {
		faults = append(faults, errors.New("--account is empty; give the ID of a ledger account"))
	}
	if f.from == "" {
		faults = append(faults, fmt.Errorf("--from is empty; give %s", timeForms))
	}
	if f.to == "" {
		f.to = now.UTC().Format(time.RFC3339Nano)
	}
	from, to, err = period("from", f.from, "to", f.to, now)
	return from, to, errors.Join(append(faults, err)...)
}

func printReport(report ledger.Report, form string, s streams) error {
	switch form {
	case outputJSON:
		return printJSON(s.Out, report)
	case outputCSV:
		return printReportCSV(report, s)
	}
	return printReportTable(report, s)
}

func printReportTable(report ledger.Report, s streams) error {
	words := layOut(s, []column{{}, {}}, [][]string{
		{"account", visible(report.AccountID)}, {"recorded from", clock(report.From)}, {"before", clock(report.To)},
	}, false) + "\n"
	if len(report.Lines) == 0 {
		return write(s.Out, words+"\nNo movements and no reversals. Letter case matters in --account.\n")
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
	return write(s.Out, words+"\n"+layOut(s, sumColumns(column{name: "bank", colors: stateColors}), rows, true)+"\n")
}

// sumColumns are the columns of sums by currency and another value.
func sumColumns(by column) []column {
	return []column{
		{name: "currency"},
		by,
		{name: "movements", right: true},
		{name: "moved", right: true},
		{name: "reversals", right: true},
		{name: "reversed", right: true},
		{name: "net", right: true},
	}
}

func reportRow(l ledger.ReportLine, state string) []string {
	return []string{
		visible(l.Currency), visible(state), fmt.Sprint(l.Movements), majorOf(l.Moved), fmt.Sprint(l.Reversals), majorOf(l.Reversed), majorOf(l.Net),
	}
}

// majorOf returns an amount without its currency, in minor units if the currency's
// exponent is unknown.
func majorOf(a ledger.Amount) string { return cmp.Or(a.Major, a.Minor+" minor units") }

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
