package main

import (
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
	err = reader.Follow(ctx, since, wait, func(h ledger.Happening) error {
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
func happeningLine(h ledger.Happening, s streams) string {
	subject := orEmpty(h.SettlementID)
	if h.SettlementID == nil {
		subject = "message " + orEmpty(h.MessageID)
	}
	words := []string{clock(h.At), fmt.Sprintf("%-11s", h.Kind), visible(subject)}
	for _, word := range happeningWords(h) {
		if word != "" {
			words = append(words, visible(word))
		}
	}
	line := strings.Join(words, "  ")
	if h.To != nil {
		return s.paint(stateColors(*h.To), line)
	}
	if h.Kind == ledger.HappenedConflict || h.Kind == ledger.HappenedQuarantine {
		return s.paint(openColors(ledger.StateOpen), line)
	}
	return line
}

func happeningWords(h ledger.Happening) []string {
	switch h.Kind {
	case ledger.HappenedMovement, ledger.HappenedReversal:
		return []string{orEmpty(h.AccountID), happeningAmount(h), orEmpty(h.Reason)}
	case ledger.HappenedInstruction:
		change := orEmpty(h.To)
		if h.From != nil && *h.From != change {
			change = *h.From + " → " + change
		}
		status := ""
		if h.HTTPStatus != nil {
			status = fmt.Sprintf("HTTP %d", *h.HTTPStatus)
		}
		return []string{change, orEmpty(h.Cause), status, orEmpty(h.Detail)}
	case ledger.HappenedConflict:
		return []string{"differs in " + strings.Join(h.Fields, ", "), times(h.Deliveries)}
	case ledger.HappenedQuarantine:
		return []string{orEmpty(h.Reason), times(h.Deliveries), orEmpty(h.Detail)}
	}
	return []string{"by " + orEmpty(h.By), orEmpty(h.Detail)}
}

func happeningAmount(h ledger.Happening) string {
	if h.AmountCents == nil || h.Currency == nil {
		return ""
	}
	return ledger.Cents(*h.AmountCents, *h.Currency).String()
}

// times says how often something was delivered, if more than once.
func times(n *int64) string {
	if n == nil || *n < 2 {
		return ""
	}
	return fmt.Sprintf("delivered %d times", *n)
}
