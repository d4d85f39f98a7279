package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/ledger"
)

func newResolve(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resolve",
		Short: "Close a case that was investigated",
		Long: `resolve closes cases that people have investigated. Nothing moves by it.

Exit codes: those of its commands.`,
		Example: `  settlectl resolve conflict stl-8474 --by ines@example.com \
    --note "the producer is mended"`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newResolveConflict(s))
	return cmd
}

func newResolveConflict(s streams) *cobra.Command {
	var (
		database databaseFlags
		output   outputFlags
		r        ledger.Resolution
	)
	cmd := &cobra.Command{
		Use:   "conflict ID",
		Short: "Close a conflict of a settlement",
		Long: `resolve conflict closes an open conflict: it leaves the list of open ones, with
who closed it and what was found. The ledger stays as it is: the first payout
stands, and what was not settled stays unsettled.

A settlement with several conflicts, open or closed, needs --hash, the payload
hash of the payout that was not settled or the beginning of it; without it they
are listed. The note is kept for ever: put no payload into it.

The same command again, after an answer that was lost, succeeds; if another
conflict has come meanwhile, with --hash.

` + roleHelp + `

Exit codes: 0 closed, 1 refused (no conflict, several of which none is named,
closed by somebody else or with another note), 2 wrong usage or no connection, 3
no such settlement, 130 interrupted.`,
		Example: `  settlectl resolve conflict stl-8474 --by ines@example.com \
    --note "the producer sent a draft; it is mended"
  settlectl resolve conflict stl-8475 --hash v1:5f2e --by ines@example.com \
    --note "a second claim, now stl-8501"`,
		Args:              oneArgument("ID"),
		ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(database.check(), output.check(), requireText(cmd, "by", "note"))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r.SettlementID = args[0]
			return operating(cmd.Context(), s, database, args[0], func(ctx context.Context, o *ledger.Operator) error {
				return resolveConflict(ctx, s, output.form, o, r)
			})
		},
	}
	cmd.Flags().StringVar(&r.Hash, "hash", "", "payload `hash` of the payout that was not settled, or its beginning")
	cmd.Flags().StringVar(&r.By, "by", "", "`who` closes it")
	cmd.Flags().StringVar(&r.Note, "note", "", "`what` was found, in one line")
	require(cmd, "by", "note")
	database.register(cmd, s)
	output.register(cmd, outputTable, outputJSON)
	return cmd
}

func resolveConflict(ctx context.Context, s streams, form string, o *ledger.Operator, r ledger.Resolution) error {
	closed, err := o.Resolve(ctx, r)
	if several, is := errors.AsType[*ledger.Several](err); is {
		if err := printConflicts(s, form, several.Conflicts); err != nil {
			return err
		}
		return &codedError{code: exitNo, err: errors.New("refused: there are several conflicts; name one by --hash")}
	}
	if err != nil {
		return err
	}
	return printConflicts(s, form, []ledger.ConflictSummary{closed})
}

// printConflicts prints conflicts, as one JSON value or one below the other.
func printConflicts(s streams, form string, all []ledger.ConflictSummary) error {
	if form == outputJSON {
		if len(all) == 1 {
			return printJSON(s.out, all[0])
		}
		return printJSON(s.out, all)
	}
	for i, c := range all {
		if i > 0 {
			if err := write(s.out, "\n"); err != nil {
				return err
			}
		}
		rows := [][2]string{
			{"settlement", c.SettlementID},
			{"conflict", string(c.PayloadHash)},
			{"differs in", strings.Join(c.Fields, ", ")},
			{"last seen", instant(c.LastSeenAt)},
		}
		if c.ResolvedBy != "" {
			rows = append(rows, [2]string{"resolved", clockOr(c.ResolvedAt, "never")}, [2]string{"by", c.ResolvedBy}, [2]string{"note", c.Note})
		}
		if err := printFacts(s, rows); err != nil {
			return err
		}
	}
	return nil
}

// printFacts prints names and what they stand for, one pair a line.
func printFacts(s streams, facts [][2]string) error {
	var rows [][]string
	for _, fact := range facts {
		rows = append(rows, []string{fact[0], visible(fact[1])})
	}
	return write(s.out, layOut(s, []column{{fixed: true}, {prose: true}}, rows, false)+"\n")
}

// instant writes a time for a person.
func instant(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
