package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/ledger"
)

func newResolve(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resolve",
		Short: "Close an investigated case",
		Long: `resolve closes cases after their investigation. It moves no money.

Exit codes: those of its commands.`,
		Example: `  settlectl resolve conflict stl-8474 --by ines --note "the producer is fixed"`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newResolveConflict(s))
	return cmd
}

func newResolveConflict(s streams) *cobra.Command {
	var (
		o = operation{streams: s}
		r ledger.Resolution
	)
	cmd := &cobra.Command{
		Use:   "conflict ID",
		Short: "Close a conflict of a settlement",
		Long: `resolve conflict closes a conflict, and records the person and the finding. The
first payout stands. The note is kept for ever: put no payload into it. The
command can be repeated. With several conflicts it lists them and needs --hash.

Exit codes: 0 closed, 1 refused, 2 usage error or no connection, 3 no such
settlement, 130 interrupted.`,
		Example: `  settlectl resolve conflict stl-8475 --hash v1:5f2e --by ines@example.com \
    --note "a second claim, now stl-8501"`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.SettlementID = args[0]
			return o.change(cmd.Context(), args[0], checkText(cmd, "by", "note"), func(ctx context.Context, by *ledger.Operator) error {
				return resolveConflict(ctx, s, o.output.form, by, r)
			})
		},
	}
	cmd.Flags().StringVar(&r.Hash, "hash", "", "payload `hash` of the conflicting payout, or its beginning")
	cmd.Flags().StringVar(&r.By, "by", "", "`person` who closes it (required)")
	cmd.Flags().StringVar(&r.Note, "note", "", "`finding`, in one line (required)")
	require(cmd, "by", "note")
	o.register(cmd, outputTable, outputJSON)
	return cmd
}

func resolveConflict(ctx context.Context, s streams, form string, o *ledger.Operator, r ledger.Resolution) error {
	closed, err := o.Resolve(ctx, r)
	if several, is := errors.AsType[*ledger.Several](err); is {
		if err := printConflicts(s, form, several.Conflicts); err != nil {
			return err
		}
		return noWith("refused: the settlement has several conflicts; name one by --hash")
	}
	if err != nil {
		return err
	}
	return printConflicts(s, form, []ledger.ConflictSummary{closed})
}

// printConflicts prints conflicts as one JSON value or as tables.
func printConflicts(s streams, form string, all []ledger.ConflictSummary) error {
	if form == outputJSON {
		if len(all) == 1 {
			return printJSON(s.Out, all[0])
		}
		return printJSON(s.Out, all)
	}
	return printBlocks(s, all, func(c ledger.ConflictSummary) [][2]string {
		facts := [][2]string{
			{"settlement", c.SettlementID},
			{"conflict", string(c.PayloadHash)},
			{"differs in", strings.Join(c.Fields, ", ")},
			{"seen", clock(c.SeenAt)},
		}
		if c.ResolvedBy == "" {
			return facts
		}
		return append(facts, [2]string{"resolved", clockOr(c.ResolvedAt, "never")}, [2]string{"by", c.ResolvedBy}, [2]string{"note", c.Note})
	})
}

// printBlocks prints the facts of each element, with blank lines between the elements.
func printBlocks[T any](s streams, all []T, facts func(T) [][2]string) error {
	for i, one := range all {
		if i > 0 {
			if err := write(s.Out, "\n"); err != nil {
				return err
			}
		}
		if err := printFacts(s, facts(one)); err != nil {
			return err
		}
	}
	return nil
}

// printFacts prints pairs of a label and a value.
func printFacts(s streams, facts [][2]string) error {
	var rows [][]string
	for _, fact := range facts {
		rows = append(rows, []string{fact[0], visible(fact[1])})
	}
	return write(s.Out, layOut(s, []column{{}, {text: true}}, rows, false)+"\n")
}
