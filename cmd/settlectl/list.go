package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/ledger"
)

func newList(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what people look into, the newest first",
		Long: `list prints conflicts, uncertain or manual bank instructions, quarantined
messages or movements, the newest first, however many there are. It changes
nothing.

--json prints a line of JSON each, --csv comma-separated values under a line of
names. Times are UTC. Everything is read at one moment.

Exit codes: 0, 2 wrong usage or a database that cannot be read, 130 interrupted.`,
		Example: `  settlectl list conflicts
  settlectl list quarantine --reason invalid_field --since 7d --json
  settlectl list movements --account reserve-claims --since 2026-11-01 --csv`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("say what is to be listed: %s", inWords(commandNames(cmd)))
		},
	}
	cmd.AddCommand(
		listCommand(s, conflictList()), listCommand(s, uncertainList(s)), listCommand(s, manualList()),
		listCommand(s, quarantineList()), listCommand(s, movementList()),
	)
	return cmd
}

// listing is one of the lists.
type listing[E any] struct {
	name, short, long, example string
	// since is the default of --since.
	since string
	// time says what --since and --until are about.
	time string
	// account says that the list has --account.
	account bool
	// states and reasons are the values of --state and --reason, with what they are
	// about; none: the list has no such flag. The first state is the default.
	states, reasons        []string
	stateWords, reasonWord string
	read                   func(ledger.Reader, context.Context, ledger.Filter) iter.Seq2[E, error]
	// columns and row make the table, csvColumns and csvRow the CSV.
	columns, csvColumns []column
	row, csvRow         func(E) []string
	// nothing is said where the list is empty.
	nothing string
}

// listFlags are the flags of a list.
type listFlags struct {
	since, until, account, reason, state string
	limit                                int
}

func listCommand[E any](s streams, l listing[E]) *cobra.Command {
	var (
		database databaseFlags
		output   outputFlags
		flags    listFlags
		filter   ledger.Filter
	)
	cmd := &cobra.Command{
		Use:   l.name,
		Short: l.short,
		Long: l.long + `

Exit codes: 0, 2 wrong usage or a database that cannot be read, 130 interrupted.`,
		Example: l.example,
		Args:    noArguments,
		PreRunE: func(*cobra.Command, []string) (err error) {
			filter, err = flags.filter(s, l.states, l.reasons)
			return errors.Join(database.check(), output.check(), err)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return interruptible(cmd.Context(), func(ctx context.Context) error {
				return printList(ctx, l, filter, database, output.form, s)
			})
		},
	}
	database.register(cmd, s)
	database.registerStale(cmd)
	output.register(cmd, outputTable, outputJSON, outputCSV)
	timeFlag(cmd, &flags.since, "since", l.since, "from which on "+l.time)
	timeFlag(cmd, &flags.until, "until", "", "before which "+l.time)
	cmd.Flags().IntVar(&flags.limit, "limit", 0, "list so many at most; 0: all")
	if l.account {
		cmd.Flags().StringVar(&flags.account, "account", "", "only of payouts of this ledger account `ID`")
	}
	if len(l.states) > 0 {
		byDefault := l.states[0]
		if byDefault != ledger.StateOpen {
			byDefault = ""
		}
		cmd.Flags().StringVar(&flags.state, "state", byDefault, "only in this `state` "+l.stateWords+": "+inWords(l.states))
		completeWords(cmd, "state", l.states...)
	}
	if len(l.reasons) > 0 {
		cmd.Flags().StringVar(&flags.reason, "reason", "", "only for this "+l.reasonWord+": "+inWords(l.reasons))
		completeWords(cmd, "reason", l.reasons...)
	}
	return cmd
}

// filter finds flags that are wrong.
func (f listFlags) filter(s streams, states, reasons []string) (ledger.Filter, error) {
	since, until, err := period("since", f.since, "until", f.until, s.now())
	faults := []error{err}
	if f.limit < 0 {
		faults = append(faults, wrongf("limit", "--limit is %d; give a number above 0, or 0 for all", f.limit))
	}
	if f.state != "" && !slices.Contains(states, f.state) {
		faults = append(faults, wrongf("state", "--state is %q; give %s", f.state, inWords(states)))
	}
	if f.reason != "" && !slices.Contains(reasons, f.reason) {
		faults = append(faults, wrongf("reason", "--reason is %q; give %s", f.reason, inWords(reasons)))
	}
	return ledger.Filter{Since: since, Until: until, AccountID: f.account, Reason: f.reason, State: f.state, Limit: f.limit}, errors.Join(faults...)
}

func printList[E any](ctx context.Context, l listing[E], filter ledger.Filter, database databaseFlags, form string, s streams) error {
	client, err := database.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	columns, toRow := l.columns, l.row
	if form == outputCSV {
		columns, toRow = l.csvColumns, l.csvRow
	}
	printer := newRowPrinter(s, form, columns)
	for entry, err := range l.read(ledger.Reader{Client: client, Bound: database.bound()}, ctx, filter) {
		if err != nil {
			return database.explain(fmt.Errorf("list %s: %w", l.name, err))
		}
		if form == outputJSON {
			err = printJSON(s.out, entry)
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
	return printer.flush(l.nothing)
}

// named makes columns that have nothing but a name.
func named(names ...string) []column {
	columns := make([]column, len(names))
	for i, name := range names {
		columns[i].name = name
	}
	return columns
}
