package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/ledger"
)

// readingExits are the exit codes of a command that only reads.
const readingExits = "Exit codes: 0, 2 usage error or unreadable database, 130 interrupted."

func newList(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List cases and movements, the newest first",
		Long: `list prints all cases or movements as of one moment. Times are UTC.

` + readingExits,
		Example: `  settlectl list quarantine --reason invalid_field --since 7d --json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("name a list: conflicts, manual, movements, quarantine or uncertain")
		},
	}
	cmd.AddCommand(
		listCommand(s, conflictList()), listCommand(s, uncertainList(s)), listCommand(s, manualList()),
		listCommand(s, quarantineList()), listCommand(s, movementList()),
	)
	return cmd
}

// listing is one of the lists.
type listing struct {
	name, short, long, example string
	// since is the default of --since.
	since string
	// time is the event that --since and --until are about.
	time string
	// account adds --account.
	account bool
	// states and reasons are the values of --state and --reason, stateHelp and reasonHelp
	// describe them; without values the list lacks the flag.
	states, reasons       []string
	stateHelp, reasonHelp string
	read                  func(ledger.Reader, context.Context, ledger.Filter) iter.Seq2[ledger.Entry, error]
	// columns and row make the table, csvColumns and csvRow the CSV.
	columns, csvColumns []column
	row, csvRow         func(ledger.Entry) []string
	// entries names the entries in the text of an empty list.
	entries string
}

// listFlags are the flags of a list.
type listFlags struct {
	since, until, account, reason, state string
	limit                                int
}

func listCommand(s streams, l listing) *cobra.Command {
	var (
		o     = operation{streams: s}
		flags listFlags
	)
	cmd := &cobra.Command{
		Use:     l.name,
		Short:   l.short,
		Long:    l.long + "\n\n" + readingExits,
		Example: l.example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := flags.filter(s.now(), l.states, l.reasons)
			if err != nil && !cmd.Flags().Changed("since") && l.since != "" {
				err = fmt.Errorf("%w; --since is %s by default", err, l.since)
			}
			return o.read(cmd.Context(), err, func(ctx context.Context, r ledger.Reader) error { return o.list(ctx, r, l, filter) })
		},
	}
	o.register(cmd, outputTable, outputJSON, outputCSV)
	o.database.registerStale(cmd)
	timeFlag(cmd, &flags.since, "since", l.since, "from which "+l.time)
	timeFlag(cmd, &flags.until, "until", "", "before which "+l.time)
	cmd.Flags().IntVar(&flags.limit, "limit", 0, "maximum number of entries; 0: all")
	if l.account {
		cmd.Flags().StringVar(&flags.account, "account", "", "only payouts of this ledger account `ID`")
	}
	if len(l.states) > 0 {
		byDefault := l.states[0]
		if byDefault != ledger.StateOpen {
			byDefault = ""
		}
		cmd.Flags().StringVar(&flags.state, "state", byDefault, "only this `state` "+l.stateHelp+": "+inWords(l.states))
		completeWords(cmd, "state", l.states...)
	}
	if len(l.reasons) > 0 {
		cmd.Flags().StringVar(&flags.reason, "reason", "", "only this "+l.reasonHelp+": "+inWords(l.reasons))
		completeWords(cmd, "reason", l.reasons...)
	}
	return cmd
}

// filter checks the flags and returns the filter that they describe.
func (f listFlags) filter(now time.Time, states, reasons []string) (ledger.Filter, error) {
	since, until, err := period("since", f.since, "until", f.until, now)
	faults := []error{err}
	if f.limit < 0 {
		faults = append(faults, fmt.Errorf("--limit is %d; give a number above 0, or 0 for all", f.limit))
	}
	if f.state != "" && !slices.Contains(states, f.state) {
		faults = append(faults, fmt.Errorf("--state is %q; give %s", f.state, inWords(states)))
	}
	if f.reason != "" && !slices.Contains(reasons, f.reason) {
		faults = append(faults, fmt.Errorf("--reason is %q; give %s", f.reason, inWords(reasons)))
	}
	return ledger.Filter{Since: since, Until: until, AccountID: f.account, Reason: f.reason, State: f.state, Limit: f.limit}, errors.Join(faults...)
}

func (o *operation) list(ctx context.Context, r ledger.Reader, l listing, filter ledger.Filter) error {
	form := o.output.form
	columns, toRow := l.columns, l.row
	if form == outputCSV {
		columns, toRow = l.csvColumns, l.csvRow
	}
	printer := newRowPrinter(o.streams, form, columns)
	for entry, err := range l.read(r, ctx, filter) {
		if err != nil {
			return o.database.explain(fmt.Errorf("list %s: %w", l.name, err))
		}
		if form == outputJSON {
			err = printJSON(o.Out, entry)
		} else {
			err = printer.print(toRow(entry)...)
		}
		if err != nil {
			return err
		}
	}
	if form == outputJSON {
		return nil
	}
	return printer.flush(emptyList(l.entries, filter))
}

// emptyList names the filters that can explain an empty list.
func emptyList(entries string, filter ledger.Filter) string {
	text := "No " + entries
	if filter.AccountID != "" {
		text += " of account " + visible(filter.AccountID) + " (letter case matters)"
	}
	if !filter.Since.IsZero() {
		text += " since " + clock(filter.Since)
	}
	return text + "."
}
