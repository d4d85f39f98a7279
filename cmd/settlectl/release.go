package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/term"
)

// releasable are the reasons that --all accepts. Only a Pub/Sub message can be published
// again.
var releasable = []string{
	string(payout.ReasonTooLarge), string(payout.ReasonEmptyData), string(payout.ReasonNotJSON), string(payout.ReasonDuplicateField),
	string(payout.ReasonUnknownField), string(payout.ReasonMissingField), string(payout.ReasonInvalidField),
}

// maxRefusalsNamed bounds the refused messages that --all names.
const maxRefusalsNamed = 20

// releaseFlags are release's own flags.
type releaseFlags struct {
	topic, edit, reason string
	all, yes            bool
	release             ledger.Release
}

// releaseSummary is the result of release --all.
type releaseSummary struct {
	Reason string `json:"reason"`
	ledger.Tally
	Left int64 `json:"left"` // open messages of the reason that the run did not reach
	// DefaultCurrency applied to the messages without a currency.
	DefaultCurrency string `json:"default_currency,omitzero"`
	DryRun          bool   `json:"dry_run,omitzero"`
}

const releaseHelp = `release publishes a quarantined message again, with its attributes and ordering
key, and marks its row as released. MESSAGE is a Pub/Sub message ID or a hex
message_key. release refuses a message that the function would refuse again. If
the message has no currency, give the function's DEFAULT_CURRENCY to
--default-currency. With --edit FILE, release publishes the bytes of FILE; the
producer must agree first. Put no payload into --note. PUBSUB_EMULATOR_HOST
selects an emulator.

Exit codes: 0 released, or with --dry-run it would be, 1 refused (with --all:
some messages), or several messages have the ID, 2 usage error or no connection,
3 no such message, 130 interrupted.`

func newRelease(s streams) *cobra.Command {
	var (
		o = operation{streams: s}
		f releaseFlags
	)
	cmd := &cobra.Command{
		Use:   "release MESSAGE | --all --reason REASON",
		Short: "Publish a quarantined message again",
		Long:  releaseHelp,
		Example: `  settlectl release 7000000000000042 --by ines@example.com \
    --default-currency USD --topic projects/my-project/topics/payouts
  settlectl release 7000000000000042 --by ines --edit corrected.json \
    --note "Ada of claims agreed, ticket 311" \
    --topic projects/my-project/topics/payouts`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(oneOf(args, "MESSAGE", f.all, "--all"), o.database.check(), o.output.check(), f.check(cmd)); err != nil {
				return err
			}
			if f.edit != "" {
				var err error
				if f.release.Edited, err = readMessage([]string{f.edit}, s); err != nil {
					return err
				}
			}
			return o.change(cmd.Context(), "", nil, func(ctx context.Context, by *ledger.Operator) error { return f.run(ctx, o, by, args) })
		},
	}
	f.register(cmd, s)
	o.register(cmd, outputTable, outputJSON)
	return cmd
}

func (f *releaseFlags) register(cmd *cobra.Command, s streams) {
	flags := cmd.Flags()
	flags.StringVar(&f.topic, "topic", "", "`name` of the payouts topic: projects/P/topics/T (required)")
	flags.StringVar(&f.release.By, "by", "", "`person` who releases it (required)")
	flags.StringVar(&f.release.Note, "note", "", "`reason`, in one line; with --edit, the person of the producer who agreed")
	flags.StringVar(&f.edit, "edit", "", "`FILE` to publish instead, - for standard input; needs --note")
	flags.StringVar(&f.release.DefaultCurrency, "default-currency", s.getenv("DEFAULT_CURRENCY"), "ISO 4217 `code` for messages without a currency, the same as the function's; default: DEFAULT_CURRENCY")
	flags.BoolVar(&f.all, "all", false, "all open messages of --reason")
	flags.StringVar(&f.reason, "reason", "", "reason `code` for --all: "+inWords(releasable))
	flags.BoolVar(&f.yes, "yes", false, "skip the question of --all")
	flags.BoolVar(&f.release.DryRun, "dry-run", false, "print the result, and change nothing")
	require(cmd, "topic", "by")
	cmd.MarkFlagsRequiredTogether("all", "reason")
	cmd.MarkFlagsMutuallyExclusive("all", "edit")
	completeWords(cmd, "reason", releasable...)
}

func (f *releaseFlags) check(cmd *cobra.Command) error {
	faults := []error{checkText(cmd, "by"), checkCurrency(f.release.DefaultCurrency)}
	noted := cmd.Flags().Changed("note")
	if f.edit != "" && !noted {
		faults = append(faults, errors.New("--edit needs --note with the person of the producer who agreed"))
	}
	if f.edit != "" && noted || f.release.Note != "" {
		faults = append(faults, checkText(cmd, "note"))
	}
	if _, err := projectOf(f.topic); err != nil {
		faults = append(faults, err)
	}
	if cmd.Flags().Changed("reason") && !slices.Contains(releasable, f.reason) {
		faults = append(faults, fmt.Errorf("--reason is %q; give %s", f.reason, inWords(releasable)))
	}
	return errors.Join(faults...)
}

func (f *releaseFlags) run(ctx context.Context, o operation, by *ledger.Operator, args []string) error {
	project, err := projectOf(f.topic)
	if err != nil {
		return err
	}
	client, err := openPubSub(ctx, project, o.streams)
	if err != nil {
		return err
	}
	defer client.Close()
	publisher := newTopicPublisher(client, f.topic)
	defer publisher.publisher.Stop()
	by.Topic = publisher
	if f.all {
		return f.releaseAll(ctx, o, by)
	}
	return f.releaseOne(ctx, o, by, args[0])
}

func (f *releaseFlags) releaseOne(ctx context.Context, o operation, by *ledger.Operator, message string) error {
	found, err := by.Find(ctx, message)
	if err != nil {
		return err
	}
	if len(found) > 1 {
		if err := printFound(o.streams, o.output.form, found); err != nil {
			return err
		}
		return noWith("%d messages have the ID %s; name one by its message_key", len(found), visible(message))
	}
	released, err := by.Release(ctx, found[0], f.release)
	if err != nil {
		return err
	}
	return o.print(released, func() [][2]string { return f.releasedFacts(released) })
}

func (f *releaseFlags) releasedFacts(r ledger.Released) [][2]string {
	facts := append(keptFacts(r.Message), [2]string{"settlement", r.SettlementID}, [2]string{"hash", string(r.PayloadHash)})
	if r.DefaultCurrency != "" {
		facts = append(facts, [2]string{"currency", defaultedCurrency(r.DefaultCurrency)})
	}
	switch {
	case f.release.DryRun:
		facts = append(facts, [2]string{"released", "no (--dry-run); it would be"})
	case r.ReleasedBy != f.release.By:
		facts = append(facts, [2]string{"published", "as message " + r.PublishedAs}, [2]string{"released", "by " + r.ReleasedBy + " at the same time: two messages were published, which are one payout only if they are equal; check both with settlectl show"})
	default:
		facts = append(facts, [2]string{"published", "as message " + r.PublishedAs}, [2]string{"released", clockOr(r.ReleasedAt, "never") + " by " + r.ReleasedBy})
	}
	return facts
}

// defaultedCurrency explains the currency of a message without one.
func defaultedCurrency(ours string) string {
	return ours + " by default; the function applies its own DEFAULT_CURRENCY: another value gives another hash, and without one it refuses the message again"
}

func keptFacts(k ledger.Message) [][2]string {
	return [][2]string{
		{"message", k.MessageID},
		{"message_key", k.Key},
		{"subscription", k.Subscription},
		{"reason", strings.TrimSpace(string(k.Reason) + " " + k.Member)},
		{"quarantined", clockOrNever(k.QuarantinedAt)},
	}
}

// printFound prints the messages of one ID.
func printFound(s streams, form string, found []ledger.Message) error {
	if form == outputJSON {
		return printJSON(s.Out, found)
	}
	return printBlocks(s, found, func(k ledger.Message) [][2]string {
		if k.ReleasedBy == "" {
			return keptFacts(k)
		}
		return append(keptFacts(k), [2]string{"released", clockOr(k.ReleasedAt, "never") + " by " + k.ReleasedBy})
	})
}

func (f *releaseFlags) releaseAll(ctx context.Context, o operation, by *ledger.Operator) error {
	extent, err := by.Extent(ctx, payout.Reason(f.reason))
	if err != nil {
		return err
	}
	if !f.release.DryRun && !f.yes {
		if err := confirm(o.streams, fmt.Sprintf("Publish up to %s of %s again? [y/N] ", counted(extent.Messages, "message"), f.reason)); err != nil {
			return err
		}
	}
	bar := term.StartProgress(o.Streams, "settlectl", 0)
	bar.Begin("released 0, refused 0", extent.Messages)
	tally, runErr := by.ReleaseAll(ctx, extent, f.release, reportRelease(bar))
	bar.Stop(runErr == nil)
	summary := releaseSummary{Reason: f.reason, Tally: tally, Left: extent.Messages - int64(tally.Released+tally.Refused), DryRun: f.release.DryRun}
	if tally.Defaulted > 0 {
		summary.DefaultCurrency = f.release.DefaultCurrency
	}
	if err := o.print(summary, summary.facts); err != nil {
		return err
	}
	switch {
	case runErr != nil:
		return runErr
	case tally.Refused > 0:
		return noWith("%s in quarantine: the function would refuse %s again, or Pub/Sub does not take %[2]s",
			counted(tally.Refused, "message")+oneOr(tally.Refused, " stays", " stay"), oneOr(tally.Refused, "it", "them"))
	}
	return nil
}

func (r releaseSummary) facts() [][2]string {
	released := strconv.Itoa(r.Released)
	if r.DryRun {
		released = "0 (--dry-run); " + released + " would be"
	}
	facts := [][2]string{
		{"reason", r.Reason}, {"released", released}, {"refused", strconv.Itoa(r.Refused)}, {"left", strconv.FormatInt(r.Left, 10)},
	}
	if r.Defaulted > 0 {
		facts = append(facts, [2]string{"currency", fmt.Sprintf("of %d: %s", r.Defaulted, defaultedCurrency(r.DefaultCurrency))})
	}
	return facts
}

// confirm asks a question. Without a terminal it fails.
func confirm(s streams, question string) error {
	if !s.InTerminal {
		return errors.New("standard input is no terminal to ask on; give --yes, or --dry-run first")
	}
	_, _ = io.WriteString(s.Err, question)
	answer, err := bufio.NewReader(io.LimitReader(s.In, 100)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return term.Failf("read the answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return noWith("no message was released")
	}
	return nil
}

// nameOf returns the message ID and the subscription of a quarantined message, because
// several subscriptions can deliver the same ID. A message without an ID has its key.
func nameOf(k ledger.Message) string {
	if k.MessageID == "" {
		return k.Key
	}
	return k.MessageID + " from " + k.Subscription[strings.LastIndex(k.Subscription, "/")+1:]
}

// reportRelease returns a function that counts a message on the bar, and names it if it
// was refused.
func reportRelease(bar *term.Progress) func(ledger.Message, *transfer.Refused) {
	released, refusals := 0, 0
	return func(m ledger.Message, refused *transfer.Refused) {
		if refused == nil {
			released++
		} else {
			refusals++
		}
		bar.Message(fmt.Sprintf("released %d, refused %d", released, refusals))
		bar.Set(int64(released + refusals))
		switch {
		case refused == nil:
		case refusals <= maxRefusalsNamed:
			bar.Logf("message %s stays: %s", visible(nameOf(m)), visible(refused.Error()))
		case refusals == maxRefusalsNamed+1:
			bar.Logf("more messages stay; settlectl list quarantine names all")
		}
	}
}
