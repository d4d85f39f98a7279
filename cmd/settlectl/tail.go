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
		o        = operation{streams: s}
		since    string
		interval time.Duration
	)
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow the ledger",
		Long: `tail prints each commit once, in order. It reads the database every --interval.
Times are UTC. tail changes nothing.

Exit codes: 2 usage error or unreadable database, 130 interrupted, which is the
usual end.`,
		Example: `  settlectl tail --since 10m --json | jq -c 'select(.kind == "conflict")'`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := parseTime("since", since, s.now())
			if interval < minInterval {
				err = errors.Join(err, fmt.Errorf("--interval is %v; give %v or more", interval, minInterval))
			}
			return o.read(cmd.Context(), err, func(ctx context.Context, r ledger.Reader) error { return o.tail(ctx, r, from, interval) })
		},
	}
	o.register(cmd, outputTable, outputJSON)
	timeFlag(cmd, &since, "since", "", "of the first commit; default: now")
	cmd.Flags().DurationVar(&interval, "interval", defaultInterval, "time between two reads")
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

// tail prints commits until ctx is done, and returns the error of ctx.
func (o *operation) tail(ctx context.Context, r ledger.Reader, since time.Time, interval time.Duration) error {
	if since.IsZero() {
		now, err := r.Now(ctx)
		if err != nil {
			return o.database.explain(err)
		}
		since = now
	}
	err := r.Follow(ctx, since, pause(interval), func(h ledger.Change) error {
		if o.output.form == outputJSON {
			return printJSON(o.Out, h)
		}
		return write(o.Out, happeningLine(h, o.streams)+"\n")
	})
	if err != nil {
		return o.database.explain(err)
	}
	return ctx.Err()
}

// happeningLine describes a commit in one line.
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
		return []string{h.Movement.AccountID, h.Amount().String(), via(h.Movement.Source)}
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
		return []string{"differs in " + strings.Join(h.Conflict.Fields, ", "), via(h.Conflict.Source)}
	case ledger.KindQuarantine:
		return []string{string(h.Quarantined.Reason), h.Quarantined.Detail}
	case ledger.KindResolved:
		return []string{"by " + h.Conflict.ResolvedBy, h.Conflict.Note}
	}
	return []string{"by " + h.Quarantined.ReleasedBy, h.Quarantined.Note}
}

// via names the topic or subscription by which a message came; nothing for an unknown one.
func via(source string) string {
	if source == "" {
		return ""
	}
	return "via " + shortName(source)
}

// shortName returns the last part of a resource's full name.
func shortName(resource string) string { return resource[strings.LastIndexByte(resource, '/')+1:] }
