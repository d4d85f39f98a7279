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

	"cloud.google.com/go/pubsub/v2"
	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// releasable are the reasons that --all can name. A request that is no Pub/Sub
// message is never published.
var releasable = []string{
	string(payout.ReasonTooLarge), string(payout.ReasonEmptyData), string(payout.ReasonNotJSON), string(payout.ReasonDuplicateField),
	string(payout.ReasonUnknownField), string(payout.ReasonMissingField), string(payout.ReasonInvalidField),
}

// maxRefusalsNamed bounds the messages that --all names one by one.
const maxRefusalsNamed = 20

// releaseFlags are release's own flags.
type releaseFlags struct {
	topic, project, edit, reason string
	all, yes                     bool
	release                      ledger.Release
}

// releaseSummary is the answer of release --all.
type releaseSummary struct {
	Reason string `json:"reason"`
	ledger.Tally
	Left int64 `json:"left"` // open messages of the reason that the run did not come to
	// DefaultCurrency is what the defaulted ones were judged with.
	DefaultCurrency string `json:"default_currency,omitzero"`
	DryRun          bool   `json:"dry_run,omitzero"`
}

func newRelease(s streams) *cobra.Command {
	var (
		database databaseFlags
		output   outputFlags
		f        releaseFlags
	)
	cmd := &cobra.Command{
		Use:   "release MESSAGE | --all --reason REASON",
		Short: "Publish a message from quarantine again",
		Long: `release publishes a message that is kept in quarantine again, with its
attributes, its ordering key and the attribute settleonce-released, and marks
its row as released. MESSAGE is a Pub/Sub message ID or the hex message_key of
its row; a message ID that stands for several messages lists them. Looking for a
message ID reads the whole table, a message_key only its row.

The message is published first and marked then. A crash between the two leaves
it open; releasing the same again publishes a second copy, and the same payout
is settled once however often it is published.

What the function would refuse again is not released. A message that had no
currency needs --default-currency, as the function has it now: what is shown is
worked out with it, what is settled with the function's own DEFAULT_CURRENCY.

--edit FILE publishes the bytes of FILE in its place. Only the producer knows
what a payout was meant to be: it has to agree, and --note says who did. The
note and a digest of the bytes are kept with the row; put no payload into the
note.

--all releases every open message of one reason, the oldest first, as far as
each would be accepted now and Pub/Sub takes it: it asks first, or needs --yes.
A failure ends it, and another run goes on.

A released row is kept for 30 days. PUBSUB_EMULATOR_HOST leads to an emulator.

` + roleHelp + `
Publishing needs roles/pubsub.publisher.

Exit codes: 0 released, or would be with --dry-run, 1 refused (for --all: some
are), or several messages have the ID, 2 wrong usage or no connection, 3 no such
message, 130 interrupted.`,
		Example: `  settlectl release 7000000000000042 --by ines@example.com \
    --default-currency USD --topic projects/my-project/topics/payouts
  settlectl release 7000000000000042 --by ines --edit corrected.json \
    --note "Ada of claims agreed, ticket 311" \
    --project my-project --topic payouts
  settlectl release --all --reason missing_field --by ines \
    --topic projects/my-project/topics/payouts --dry-run`,
		Args:              argumentOr("MESSAGE", "all"),
		ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(database.check(), output.check(), f.check(cmd))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return operating(cmd.Context(), s, database, "", func(ctx context.Context, o *ledger.Operator) error {
				return f.run(ctx, s, output.form, o, args)
			})
		},
	}
	f.register(cmd, s)
	database.register(cmd, s)
	output.register(cmd, outputTable, outputJSON)
	return cmd
}

func (f *releaseFlags) register(cmd *cobra.Command, s streams) {
	flags := cmd.Flags()
	flags.StringVar(&f.topic, "topic", "", "`name` of the payouts topic: projects/P/topics/T, or T with --project")
	flags.StringVar(&f.project, "project", "", "`ID` of the topic's project, where --topic does not name it")
	flags.StringVar(&f.release.By, "by", "", "`who` releases it")
	flags.StringVar(&f.release.Note, "note", "", "`why`, in one line; with --edit, who of the producer agreed")
	flags.StringVar(&f.edit, "edit", "", "`FILE` with what is published in its place, - for standard input; needs --note")
	flags.StringVar(&f.release.DefaultCurrency, "default-currency", s.getenv("DEFAULT_CURRENCY"), "ISO 4217 `code` for messages without one, as the function has it; else DEFAULT_CURRENCY")
	flags.BoolVar(&f.all, "all", false, "every open message of --reason")
	flags.StringVar(&f.reason, "reason", "", "`code` for which --all releases: "+inWords(releasable))
	flags.BoolVar(&f.yes, "yes", false, "do not ask before --all")
	flags.BoolVar(&f.release.DryRun, "dry-run", false, "say what would be released, and change nothing")
	require(cmd, "topic", "by")
	cmd.MarkFlagsRequiredTogether("all", "reason")
	cmd.MarkFlagsMutuallyExclusive("all", "edit")
	completeWords(cmd, "reason", releasable...)
}

// check finds flags that are wrong.
func (f *releaseFlags) check(cmd *cobra.Command) error {
	faults := []error{requireText(cmd, "by")}
	noted := cmd.Flags().Changed("note")
	if f.edit != "" && !noted {
		faults = append(faults, errors.New("--edit needs --note, which says in one line who of the producer agreed"))
	}
	if f.edit != "" && noted || f.release.Note != "" {
		faults = append(faults, requireText(cmd, "note"))
	}
	if f.edit != "" && f.edit != standardInput {
		if err := findFile(f.edit); err != nil {
			faults = append(faults, wrongf("edit", "--edit: %v", err))
		}
	}
	if _, _, err := topicName(f.project, f.topic); err != nil {
		faults = append(faults, err)
	}
	if cmd.Flags().Changed("reason") && !slices.Contains(releasable, f.reason) {
		faults = append(faults, wrongf("reason", "--reason is %q; give %s", f.reason, inWords(releasable)))
	}
	if c := f.release.DefaultCurrency; c != "" && !payout.ValidCurrency(c) {
		faults = append(faults, wrongf("default-currency", "--default-currency, or DEFAULT_CURRENCY, is %q; give an ISO 4217 alphabetic code in upper case, such as USD", c))
	}
	return errors.Join(faults...)
}

func (f *releaseFlags) run(ctx context.Context, s streams, form string, o *ledger.Operator, args []string) error {
	if err := f.readEdit(s); err != nil {
		return err
	}
	project, topic, err := topicName(f.project, f.topic)
	if err != nil {
		return err
	}
	if err := emulatorAnswers(ctx, s.getenv("PUBSUB_EMULATOR_HOST")); err != nil {
		return err
	}
	client, err := pubsub.NewClient(context.WithoutCancel(ctx), project)
	if err != nil {
		return failf("connect to Pub/Sub: %w; %s", err, accessHint)
	}
	defer client.Close()
	publisher := newTopicPublisher(client, topic)
	defer publisher.publisher.Stop()
	o.Topic = publisher
	if f.all {
		return f.releaseAll(ctx, s, form, o)
	}
	return f.releaseOne(ctx, s, form, o, args[0])
}

// readEdit reads the file of --edit, as far as a payout message goes.
func (f *releaseFlags) readEdit(s streams) error {
	if f.edit == "" {
		return nil
	}
	input, name, err := openInput([]string{f.edit}, s)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }() // nothing was written
	f.release.Edited, err = io.ReadAll(io.LimitReader(input, payout.MaxMessageBytes+1))
	if err != nil {
		return failf("read the message from %s: %w", name, err)
	}
	return nil
}

func (f *releaseFlags) releaseOne(ctx context.Context, s streams, form string, o *ledger.Operator, message string) error {
	found, err := o.Find(ctx, message)
	if err != nil {
		return err
	}
	if len(found) > 1 {
		if err := printKept(s, form, found); err != nil {
			return err
		}
		return &codedError{code: exitNo, err: fmt.Errorf("%d messages have the ID %s; name one by its message_key", len(found), visible(message))}
	}
	released, err := o.Release(ctx, found[0], f.release)
	if err != nil {
		return err
	}
	return f.printReleased(s, form, released)
}

func (f *releaseFlags) printReleased(s streams, form string, r ledger.Released) error {
	if form == outputJSON {
		return printJSON(s.out, r)
	}
	facts := append(keptFacts(r.Message), [2]string{"settlement", r.SettlementID}, [2]string{"hash", string(r.PayloadHash)})
	if r.DefaultCurrency != "" {
		facts = append(facts, [2]string{"currency", functionsCurrency(r.DefaultCurrency)})
	}
	switch {
	case f.release.DryRun:
		facts = append(facts, [2]string{"released", "it would be"})
	case r.ReleasedBy != f.release.By:
		facts = append(facts, [2]string{"published", "as message " + r.PublishedAs}, [2]string{"released", "by " + r.ReleasedBy + " at the same time: two messages were published, which are one payout only if both say the same; look at what became of each"})
	default:
		facts = append(facts, [2]string{"published", "as message " + r.PublishedAs}, [2]string{"released", clockOr(r.ReleasedAt, "never") + " by " + r.ReleasedBy})
	}
	return printFacts(s, facts)
}

// functionsCurrency says what a message without a currency is worked out with.
func functionsCurrency(ours string) string {
	return ours + " by default; what counts is the function's own DEFAULT_CURRENCY: with another one the hash is another, with none it is refused again"
}

func keptFacts(k ledger.Message) [][2]string {
	return [][2]string{
		{"message", k.MessageID},
		{"message_key", k.Key},
		{"from", k.Subscription},
		{"refused for", strings.TrimSpace(string(k.Reason) + " " + k.Member)},
		{"quarantined", instant(k.QuarantinedAt)},
	}
}

func printKept(s streams, form string, found []ledger.Message) error {
	if form == outputJSON {
		return printJSON(s.out, found)
	}
	for i, k := range found {
		if i > 0 {
			if err := write(s.out, "\n"); err != nil {
				return err
			}
		}
		facts := keptFacts(k)
		if k.ReleasedBy != "" {
			facts = append(facts, [2]string{"released", clockOr(k.ReleasedAt, "never") + " by " + k.ReleasedBy})
		}
		if err := printFacts(s, facts); err != nil {
			return err
		}
	}
	return nil
}

func (f *releaseFlags) releaseAll(ctx context.Context, s streams, form string, o *ledger.Operator) error {
	extent, err := o.Extent(ctx, payout.Reason(f.reason))
	if err != nil {
		return err
	}
	if !f.release.DryRun && !f.yes {
		if err := confirm(s, fmt.Sprintf("Publish up to %s of %s again? [y/N] ", counted(extent.Messages, "message"), f.reason)); err != nil {
			return err
		}
	}
	bar := newReleaseBar(s, extent.Messages)
	tally, runErr := o.ReleaseAll(ctx, extent, f.release, bar.each)
	bar.stop(runErr == nil)
	summary := releaseSummary{Reason: f.reason, Tally: tally, Left: extent.Messages - int64(tally.Released+tally.Refused), DryRun: f.release.DryRun}
	if tally.Defaulted > 0 {
		summary.DefaultCurrency = f.release.DefaultCurrency
	}
	if err := summary.print(s, form); err != nil {
		return err
	}
	switch {
	case runErr != nil:
		return runErr
	case tally.Refused > 0:
		return &codedError{code: exitNo, err: fmt.Errorf("%s %s", counted(tally.Refused, "message"), oneOr(tally.Refused,
			"stays in quarantine: it would be refused again, or Pub/Sub does not take it",
			"stay in quarantine: they would be refused again, or Pub/Sub does not take them"))}
	}
	return nil
}

func (r releaseSummary) print(s streams, form string) error {
	if form == outputJSON {
		return printJSON(s.out, r)
	}
	released := strconv.Itoa(r.Released)
	if r.DryRun {
		released = "none (--dry-run); " + released + " would be"
	}
	facts := [][2]string{
		{"reason", r.Reason}, {"released", released}, {"refused", strconv.Itoa(r.Refused)}, {"left", strconv.FormatInt(r.Left, 10)},
	}
	if r.Defaulted > 0 {
		facts = append(facts, [2]string{"currency", fmt.Sprintf("of %d: %s", r.Defaulted, functionsCurrency(r.DefaultCurrency))})
	}
	return printFacts(s, facts)
}

// confirm asks on a terminal. Where there is none it refuses: --yes is then needed.
func confirm(s streams, question string) error {
	if !s.inTerminal {
		return errors.New("there is no terminal to ask on; give --yes, or --dry-run first")
	}
	_, _ = io.WriteString(s.err, question)
	answer, err := bufio.NewReader(io.LimitReader(s.in, 100)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return failf("read the answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return &codedError{code: exitNo, err: errors.New("nothing was released")}
	}
	return nil
}

// nameOf is the message ID of a message in quarantine and, since an ID alone may
// stand for several, the subscription that it came from. A message without an ID has
// its key.
func nameOf(k ledger.Message) string {
	if k.MessageID == "" {
		return k.Key
	}
	return k.MessageID + " from " + k.Subscription[strings.LastIndex(k.Subscription, "/")+1:]
}

// releaseBar shows how far release --all is, and names messages that stay.
type releaseBar struct {
	*reporter
	done, refused int
}

func newReleaseBar(s streams, total int64) *releaseBar {
	return &releaseBar{reporter: startReporter(s, &progress.Tracker{Message: releaseProgress(0, 0), Total: total})}
}

func releaseProgress(done, refused int) string {
	return fmt.Sprintf("released %d, refused %d", done-refused, refused)
}

// each is told of every message, one at a time.
func (b *releaseBar) each(k ledger.Message, refused *transfer.Refused) {
	b.done++
	if refused != nil {
		b.refused++
	}
	if b.tracker != nil {
		b.tracker.UpdateMessage(releaseProgress(b.done, b.refused))
		b.tracker.SetValue(int64(b.done))
	}
	switch {
	case refused == nil:
	case b.refused <= maxRefusalsNamed:
		b.say("message %s stays: %s", visible(nameOf(k)), visible(refused.Error()))
	case b.refused == maxRefusalsNamed+1:
		b.say("more messages stay; list quarantine names all that are left")
	}
}
