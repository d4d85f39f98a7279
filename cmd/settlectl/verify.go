package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/term"
)

const (
	maxFindings = 100_000
	maxBankRate = 10_000
)

// verifyFlags are verify's flags.
type verifyFlags struct {
	database     databaseFlags
	output       outputFlags
	limit        int
	bank         bool
	from         bankFlags
	bankRate     float64
	keyLifetimes []time.Duration
}

const verifyHelp = `verify reads the whole database as of one timestamp and checks the rules of the
ledger. It prints each violation with a remedy, then the totals. It changes
nothing, and the rights of settleonce_operator are enough. With --bank it asks
the bank's status API about every instruction.

` + bankHelp + `

Exit codes: 0 no violation, 2 violation, incomplete run or usage error, 130
interrupted. For 2, standard error ends with one of:

  settlectl: verify: violations: N     all rows were read, and N are wrong
  settlectl: verify: incomplete: …     the database or the bank could not be
                                       read to the end; the data may be right
  See 'settlectl verify --help'.       usage error; nothing was read`

func newVerify(s streams) *cobra.Command {
	var flags verifyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every row of the database",
		Long:  verifyHelp,
		Example: `  settlectl verify --database projects/p/instances/i/databases/d \
    --role settleonce_operator
  settlectl verify --bank --bank-rate 50 \
    --function projects/p/locations/europe-west1/functions/settle-payout`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(s); err != nil {
				return err
			}
			return interruptible(cmd.Context(), func(ctx context.Context) error { return incomplete(verifyDatabase(ctx, flags, s)) })
		},
	}
	flags.database.register(cmd, s)
	flags.database.registerStale(cmd)
	flags.output.register(cmd, outputTable, outputJSON)
	f := cmd.Flags()
	f.IntVar(&flags.limit, "limit", 100, "maximum number of printed violations, and of printed pending differences")
	f.BoolVar(&flags.bank, "bank", false, "ask the bank about every instruction")
	flags.from.register(cmd)
	f.Float64Var(&flags.bankRate, "bank-rate", 10, "bank requests per second, with --bank")
	f.DurationSliceVar(&flags.keyLifetimes, "key-lifetime", nil, "`time` for which the bank remembers a key; give every value that was ever configured; default: BANK_KEY_LIFETIME")
	return cmd
}

func (f *verifyFlags) check(s streams) error {
	faults := []error{f.database.check(), f.output.check(), f.checkBank()}
	if life := s.getenv(config.EnvBankKeyLifetime); life != "" && len(f.keyLifetimes) == 0 {
		d, err := time.ParseDuration(life)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s is %q; give a duration such as 24h, or --key-lifetime", config.EnvBankKeyLifetime, life))
		} else {
			f.keyLifetimes = []time.Duration{d}
		}
	}
	if f.limit < 0 || f.limit > maxFindings {
		faults = append(faults, fmt.Errorf("--limit is %d; give 0 to %d", f.limit, maxFindings))
	}
	if !(f.bankRate > 0 && f.bankRate <= maxBankRate) { // NaN is neither
		faults = append(faults, fmt.Errorf("--bank-rate is %g; give a number above 0, at most %d", f.bankRate, maxBankRate))
	}
	if slices.ContainsFunc(f.keyLifetimes, func(life time.Duration) bool { return life <= 0 }) {
		faults = append(faults, errors.New("--key-lifetime is not above 0; give durations such as 24h,72h"))
	}
	return errors.Join(faults...)
}

func (f *verifyFlags) checkBank() error {
	switch {
	case f.bank:
		return f.from.check(f.database)
	case f.from.function != "" || f.from.fromEnvironment:
		return errors.New("--function and --bank-from-environment have no effect without --bank; add --bank")
	}
	return nil
}

// violationsFound is the number of violations in a complete run.
type violationsFound int64

func (n violationsFound) Error() string { return "verify: violations: " + grouped(int64(n)) }

// incomplete marks an error that says nothing about the data.
func incomplete(err error) error {
	coded, is := errors.AsType[*term.CodedError](err)
	_, complete := errors.AsType[violationsFound](err)
	if !is || complete || coded.Err == nil {
		return err
	}
	return &term.CodedError{Code: coded.Code, Err: fmt.Errorf("verify: incomplete: %w", coded.Err)}
}

func verifyDatabase(ctx context.Context, flags verifyFlags, s streams) error {
	options := audit.Options{Bound: flags.database.bound(), KeyLifetimes: flags.keyLifetimes}
	var auth authObserver
	if flags.bank {
		b, err := flags.from.open(ctx, s, flags.database)
		if err != nil {
			return err
		}
		if b.bank == nil {
			return errNoBank
		}
		auth, options.Bank = b.auth, b.toVerify(s, flags.bankRate)
		if len(options.KeyLifetimes) == 0 && flags.from.function != "" {
			options.KeyLifetimes = []time.Duration{b.policy.KeyLifetime}
		}
	}
	client, err := flags.database.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	run := &verification{flags: flags, s: s, auth: auth, began: s.now(), printed: map[bool]int{}}
	run.bar = term.StartProgress(s.Streams, "settlectl", 0)
	run.bar.Begin("verified", progressUnits)
	options.Found, options.Progress = run.found, run.progress
	sum, err := audit.Run(ctx, client, options)
	run.bar.Stop(err == nil)
	if err != nil {
		return flags.database.explain(err)
	}
	return run.print(sum)
}

// toVerify returns the bank for package verify, which records no events and needs no
// remark.
func (b banking) toVerify(s streams, perSecond float64) *audit.Bank {
	silent := b.auth
	silent.remark = ""
	ask := func(ctx context.Context, in transfer.Instruction) transfer.Statuses {
		return transfer.AskStatuses(ctx, silent.Status, in)
	}
	return &audit.Bank{Status: ask, Now: s.now, Limiter: rate.NewLimiter(rate.Limit(perSecond), 1), Policy: b.policy}
}

const (
	// progressUnits is the total of the bar.
	progressUnits = 1_000_000
	// progressEvery is the time between two lines of progress without a bar.
	progressEvery = 10 * time.Second
)

// verification is one run of verify.
type verification struct {
	flags verifyFlags
	s     streams
	auth  authObserver
	bar   *term.Progress
	began time.Time

	lastLine time.Duration
	printed  map[bool]int // findings, by whether they are pending
	listed   []audit.Finding
}

// findingLine is a finding in JSON.
type findingLine struct {
	Type string `json:"type"` // violation or pending
	audit.Finding
}

func typeOf(f audit.Finding) string {
	if f.Pending {
		return "pending"
	}
	return "violation"
}

// found prints a finding, or keeps it for the table.
func (v *verification) found(f audit.Finding) error {
	if v.printed[f.Pending] == v.flags.limit {
		return nil
	}
	v.printed[f.Pending]++
	if v.flags.output.form == outputJSON {
		return printJSON(v.s.Out, findingLine{typeOf(f), f})
	}
	v.listed = append(v.listed, f)
	return nil
}

// progress shows the progress of the run.
func (v *verification) progress(p audit.Progress) {
	took := v.s.now().Sub(v.began)
	words := fmt.Sprintf("%s, %s rows/s", counted(p.Settlements, "settlement"), grouped(perSecond(p.Rows, took)))
	v.bar.Message(words)
	v.bar.Set(int64(p.Done * progressUnits))
	if !v.bar.Visible() && took >= v.lastLine+progressEvery {
		v.lastLine = took
		left := time.Duration(0)
		if p.Done > 0 {
			left = time.Duration(float64(took) * (1 - p.Done) / p.Done).Round(time.Second)
		}
		v.bar.Logf("%.1f %% verified: %s; about %v left", 100*p.Done, words, left)
	}
}

func perSecond(n int64, took time.Duration) int64 {
	if took <= 0 {
		return 0
	}
	return int64(float64(n) / took.Seconds())
}

// summaryLine is the summary of a run in JSON.
type summaryLine struct {
	Type string `json:"type"` // summary
	audit.Summary
	RetentionDays   int         `json:"retention_days"`
	Violations      int64       `json:"violations"`
	Totals          []totalLine `json:"totals"`
	Seconds         float64     `json:"seconds"`
	PeakMemoryBytes int64       `json:"peak_memory_bytes"`
}

// totalLine is one account's total in one currency.
type totalLine struct {
	Account   string        `json:"account"`
	Movements int64         `json:"movements"`
	Moved     ledger.Amount `json:"moved"`
	Reversals int64         `json:"reversals"`
	Reversed  ledger.Amount `json:"reversed"`
	Net       ledger.Amount `json:"net"`
}

// print prints the summary of a run, and returns an error for violations and for
// unanswered bank requests.
func (v *verification) print(sum audit.Summary) error {
	took := v.s.now().Sub(v.began)
	var err error
	if v.flags.output.form == outputJSON {
		line := summaryLine{
			Type: "summary", Summary: sum, RetentionDays: int(sum.Retention / day), Violations: sum.Count(), Seconds: took.Seconds(), PeakMemoryBytes: peakMemory(),
		}
		for _, t := range sum.Totals {
			line.Totals = append(line.Totals, newTotalLine(t))
		}
		err = printJSON(v.s.Out, line)
	} else {
		err = v.printTables(sum, took)
	}
	switch {
	case err != nil:
		return err
	case sum.Count() > 0:
		return &term.CodedError{Code: term.ExitError, Err: violationsFound(sum.Count())}
	case sum.Unanswered > 0 && v.auth.err() != nil:
		return v.auth.err()
	case sum.Unanswered > 0:
		return term.Failf("%s of %s without an answer; run it again", grouped(sum.Unanswered), counted(sum.Asked, "bank request"))
	}
	return nil
}

func newTotalLine(t audit.Total) totalLine {
	of := func(minor *big.Int) ledger.Amount { return ledger.NewAmount(minor, t.Currency) }
	return totalLine{t.Account, t.Movements, of(t.Moved), t.Reversals, of(t.Reversed), of(t.Net())}
}

func (v *verification) printTables(sum audit.Summary, took time.Duration) error {
	var b strings.Builder
	v.writeFindings(&b, false, "Violations", sum.Violations)
	v.writeFindings(&b, true, "Pending differences, which are no violations", sum.Pending)
	if len(sum.Totals) > 0 {
		b.WriteString(v.totals(sum) + "\n\n")
	}
	fmt.Fprintf(&b, "%s, %s, %s in quarantine, as of %s\n", counted(sum.Settlements, "settlement"), counted(sum.Rows, "row"),
		counted(sum.Quarantined, "message"), sum.ReadAt.UTC().Format(time.RFC3339Nano))
	if v.flags.bank {
		fmt.Fprintf(&b, "%s, %s without an answer\n", counted(sum.Asked, "bank request"), grouped(sum.Unanswered))
	}
	fmt.Fprintf(&b, "%.1f s, %s rows/s, peak memory %d MiB\n", took.Seconds(), grouped(perSecond(sum.Rows, took)), peakMemory()>>20)
	if sum.Count() == 0 {
		b.WriteString(v.s.paint(text.Colors{text.FgGreen}, "No violation.") + "\n")
	}
	return write(v.s.Out, b.String())
}

// writeFindings writes the findings of one kind, and their counts by rule.
func (v *verification) writeFindings(b *strings.Builder, pending bool, title string, counts map[audit.Rule]int64) {
	if len(counts) == 0 {
		return
	}
	color := text.Colors{text.FgRed}
	if pending {
		color = text.Colors{text.FgYellow}
	}
	b.WriteString(v.s.paint(text.Colors{text.Bold}, title) + "\n\n")
	listed := slices.DeleteFunc(slices.Clone(v.listed), func(f audit.Finding) bool { return f.Pending != pending })
	slices.SortStableFunc(listed, func(a, b audit.Finding) int {
		return cmp.Or(cmp.Compare(a.SettlementID, b.SettlementID), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Rule, b.Rule))
	})
	for _, f := range listed {
		fmt.Fprintf(b, "%s %s\n", v.s.paint(color, string(f.Rule)), visible(f.SettlementID+f.Message))
		rows := [][]string{{"  found", visible(f.Found)}, {"  expected", visible(f.Want)}, {"  remedy", visible(f.Remedy)}}
		b.WriteString(layOut(v.s, []column{{}, {text: true}}, rows, false) + "\n\n")
	}
	var all int64
	var words []string
	for _, rule := range slices.Sorted(maps.Keys(counts)) {
		all += counts[rule]
		words = append(words, fmt.Sprintf("%s %s", grouped(counts[rule]), rule))
	}
	fmt.Fprintf(b, "%s in all: %s", grouped(all), strings.Join(words, ", "))
	if more := all - int64(len(listed)); more > 0 {
		fmt.Fprintf(b, "; %s not shown (--limit)", grouped(more))
	}
	b.WriteString("\n\n")
}

func (v *verification) totals(sum audit.Summary) string {
	var rows [][]string
	for _, t := range sum.Totals {
		line := newTotalLine(t)
		rows = append(rows, []string{
			visible(t.Currency), visible(t.Account), grouped(t.Movements), majorOf(line.Moved), grouped(t.Reversals), majorOf(line.Reversed), majorOf(line.Net),
		})
	}
	return layOut(v.s, sumColumns(column{name: "account"}), rows, true)
}

// peakMemory returns the peak memory of the process in bytes; 0: unknown. It prefers
// /proc, because getrusage includes the program that the process ran before exec.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		if _, after, found := strings.Cut(string(status), "VmHWM:"); found {
			var kibibytes int64
			if _, err := fmt.Sscan(after, &kibibytes); err == nil {
				return kibibytes << 10
			}
		}
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return usage.Maxrss // in bytes there
	}
	return usage.Maxrss << 10 // in KiB
}
