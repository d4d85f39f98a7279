package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/ledger"
)

const (
	defaultInterval = 2 * time.Second
	minInterval     = 100 * time.Millisecond
)

func newTail(s streams) *cobra.Command {
	var (
		database databaseFlags
		output   outputFlags
		since    string
		interval time.Duration
		from     time.Time
	)
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print what is committed, as it happens",
		Long: `tail prints a line for each thing that is committed: movements, each step of a
bank instruction, reversals, conflicts and quarantined messages, and what people
close or release. It goes on until it is interrupted, in the order of the
commits, and misses nothing and prints nothing twice. A conflict that is
delivered again and again is printed once an interval. Times are UTC. It changes
nothing.

It asks every --interval for what was written since it last asked.

Exit codes: 2 wrong usage or a database that cannot be read, 130 interrupted,
which is how it usually ends.`,
		Example: `  settlectl tail
  settlectl tail --since 10m --json | jq -c 'select(.kind == "conflict")'`,
		Args: noArguments,
		PreRunE: func(*cobra.Command, []string) (err error) {
			from, err = parseTime("since", since, s.now())
			if interval < minInterval {
				err = errors.Join(err, wrongf("interval", "--interval is %v; give %v or more", interval, minInterval))
			}
			return errors.Join(database.check(), output.check(), err)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return interruptible(cmd.Context(), func(ctx context.Context) error {
				return tail(ctx, from, pause(interval), database, output.form, s)
			})
		},
	}
	database.register(cmd, s)
	output.register(cmd, outputTable, outputJSON)
	timeFlag(cmd, &since, "since", "", "after which, if not from now on")
	cmd.Flags().DurationVar(&interval, "interval", defaultInterval, "time between two questions")
	return cmd
}

// pause returns a function that waits for d.
func pause(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tail prints until ctx is done, and then fails with its error.
func tail(ctx context.Context, since time.Time, wait func(context.Context) error, database databaseFlags, form string, s streams) error {
	client, err := database.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	reader := ledger.Reader{Client: client}
	if since.IsZero() {
		if since, err = reader.Now(ctx); err != nil {
			return database.explain(err)
		}
	}
	err = reader.Follow(ctx, since, wait, func(h ledger.Change) error {
		if form == outputJSON {
			return printJSON(s.out, h)
		}
		return write(s.out, happeningLine(h, s)+"\n")
	})
	if err != nil {
		return database.explain(err)
	}
	return ctx.Err()
}

// happeningLine is what happened, in one line.
func happeningLine(h ledger.Change, s streams) string {
	subject := cmp.Or(h.Movement.SettlementID, h.Event.SettlementID, h.Reversal.SettlementID, h.Conflict.SettlementID)
	if subject == "" {
		subject = "message " + h.Quarantined.MessageID
	}
	words := []string{clock(h.At), fmt.Sprintf("%-11s", h.Kind), visible(subject)}
	for _, word := range happeningWords(h) {
		if word != "" {
			words = append(words, visible(word))
		}
	}
	line := strings.Join(words, "  ")
	if h.Kind == ledger.KindInstruction {
		return s.paint(stateColors(string(h.Event.Event.To)), line)
	}
	if h.Kind == ledger.KindConflict || h.Kind == ledger.KindQuarantine {
		return s.paint(openColors(ledger.StateOpen), line)
	}
	return line
}

func happeningWords(h ledger.Change) []string {
	switch h.Kind {
	case ledger.KindMovement:
		return []string{h.Movement.AccountID, h.Amount().String()}
	case ledger.KindReversal:
		return []string{h.Movement.AccountID, ledger.Cents(h.Reversal.AmountCents, h.Movement.Currency).String(), h.Reversal.Reason}
	case ledger.KindInstruction:
		e := h.Event.Event
		change := string(e.To)
		if e.From != "" && e.From != e.To {
			change = string(e.From) + " → " + change
		}
		status := ""
		if e.HTTPStatus != 0 {
			status = fmt.Sprintf("HTTP %d", e.HTTPStatus)
		}
		return []string{change, e.Cause, status, e.Detail}
	case ledger.KindConflict:
		return []string{"differs in " + strings.Join(h.Conflict.Fields, ", "), times(h.Conflict.Deliveries)}
	case ledger.KindQuarantine:
		return []string{string(h.Quarantined.Reason), times(h.Quarantined.Deliveries), h.Quarantined.Detail}
	case ledger.KindResolved:
		return []string{"by " + h.Conflict.ResolvedBy, h.Conflict.Note}
	}
	return []string{"by " + h.Quarantined.ReleasedBy, h.Quarantined.Note}
}

// times says how often something was delivered, if more than once.
func times(n int64) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf("delivered %d times", n)
}
