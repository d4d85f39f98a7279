// Command bench measures Settle Once against what people use instead; see
// internal/test/bench for what and how. It prints a table, and writes the figures and a
// chart of them into docs/, so that no figure there is typed by hand.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/settleonce/settleonce/internal/test/bench"
)

// The exit codes.
const (
	exitOK = 0
	// exitNo: a claim does not hold, and --strict was given.
	exitNo = 1
	// exitError: the program was called wrongly, or could not measure or write.
	exitError = 2
)

// errClaims reports that a claim does not hold.
var errClaims = errors.New("a claim does not hold")

// streams is everything of the process that the program touches.
type streams struct {
	in       io.Reader
	out, err io.Writer
	// errColumns is the width of the terminal behind err; zero: it is none.
	errColumns int
	// child is the command that runs the hidden subcommand in a process of its own.
	child []string
}

func main() {
	program, err := os.Executable()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(exitError)
	}
	columns, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil {
		columns = 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, errColumns: columns, child: []string{program, "child"}})
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, s streams) (exitCode int) {
	root := newRoot(s) //nolint:contextcheck // cobra hands ctx to the command that runs
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errClaims):
		_, _ = fmt.Fprintf(s.err, "bench: %v\n", err)
		return exitNo
	}
	_, _ = fmt.Fprintf(s.err, "bench: %v\n", err)
	return exitError
}

// flags are the program's flags.
type flags struct {
	quick, tiny, json, strict bool
	rows                      []int
	kills, rounds, starts     int
	only                      []string
	seed                      uint64
	docs, module              string
	instance, database        string
	changed                   func(flag string) bool // tells those that were given
}

// altered reports whether the run is not a whole one of its sizes.
func (f flags) altered() bool {
	return slices.ContainsFunc([]string{"only", "rows", "rounds", "kills", "starts"}, f.changed)
}

func newRoot(s streams) *cobra.Command {
	var f flags
	root := &cobra.Command{
		Use:   "bench",
		Short: "Measure Settle Once against what people use instead",
		Long: `bench measures Settle Once against what people use instead, on this machine: round
trips and bytes of an event, latency over a network of 0 to 20 ms, throughput, growth
with the rows that are stored, what a crash leaves, cold starts, and the floor.

It starts what it needs: the Spanner emulator, and PostgreSQL where it is installed.
With --instance it measures in a real Spanner instance, in databases that it creates
there and drops again; it refuses any other database.

Exit codes: 0 measured, 1 a claim does not hold and --strict was given, 2 wrong usage
or something could not be measured or written.`,
		Example: `  bench
  bench --quick
  bench --only latency,throughput --json
  bench --quick --rows 100000 --only growth
  bench --instance projects/my-project/instances/my-instance`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true, // a page of usage would hide the error
		SilenceErrors: true, // run prints it
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.changed = cmd.Flags().Changed
			if !f.changed("docs") && (f.quick || f.tiny || f.instance != "" || f.altered()) {
				f.docs = "" // only a whole run of the usual sizes is worth keeping
			}
			return measure(cmd.Context(), s, f)
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w; see bench --help", err) })
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	set := root.Flags()
	set.BoolVar(&f.quick, "quick", false, "about a minute: shows that all works, the figures say little")
	set.BoolVar(&f.tiny, "tiny", false, "as little as can be, for tests")
	set.BoolVar(&f.json, "json", false, "print the report as JSON")
	set.BoolVar(&f.strict, "strict", false, "end with 1 when a claim does not hold")
	set.StringSliceVar(&f.only, "only", nil, "measure only `these`: "+strings.Join(bench.Measures(), ", "))
	set.IntSliceVar(&f.rows, "rows", nil, "`numbers` of stored rows for the growth of Settle Once, beside those of all; such as 100000, without the million that takes 8 GB")
	set.IntVar(&f.kills, "kills", 0, "`number` of processes to kill for each contender, else the size's")
	set.IntVar(&f.rounds, "rounds", 0, "`number` of rounds, else the size's")
	set.IntVar(&f.starts, "starts", 0, "`number` of cold starts of each function, else the size's")
	set.Uint64Var(&f.seed, "seed", 1, "`number` that draws the order of the kills")
	set.StringVar(&f.docs, "docs", "docs", "`directory` whose benchmarks.md and benchmarks.svg are written; empty: none, and so is the default with --instance and with all that changes sizes")
	set.StringVar(&f.module, "module", ".", "`directory` of the source, from which the functions are built")
	set.StringVar(&f.instance, "instance", "", "real Spanner `instance` to measure in: projects/P/instances/I")
	set.StringVar(&f.database, "database", "", "refused: databases are created by the run itself, in --instance")
	root.MarkFlagsMutuallyExclusive("quick", "tiny")
	_ = set.MarkHidden("tiny") // the flag exists
	root.AddCommand(newChild(s))
	return root
}

// newChild is the process that is killed.
func newChild(s streams) *cobra.Command {
	var c bench.ChildConfig
	cmd := &cobra.Command{
		Use: "child", Short: "Settle the messages of standard input, and be killed", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tuneClient()
			return bench.RunChild(cmd.Context(), c, s.in, s.out)
		},
	}
	set := cmd.Flags()
	set.StringVar(&c.Contender, "contender", "", "key of the contender")
	set.StringVar(&c.Database, "database", "", "its database")
	set.StringVar(&c.Spanner, "spanner", "", "address of the emulator")
	set.DurationVar(&c.Ahead, "ahead", 0, "how far the clock is ahead")
	return cmd
}

// sizes are those that the flags ask for.
func (f flags) sizes() (bench.Sizes, error) {
	sizes := bench.Usual
	switch {
	case f.quick:
		sizes = bench.Quick
	case f.tiny:
		sizes = bench.Tiny
	}
	for _, option := range []struct {
		name  string
		value int
		into  *int
	}{{"kills", f.kills, &sizes.Kills}, {"rounds", f.rounds, &sizes.Rounds}, {"starts", f.starts, &sizes.Starts}} {
		if !f.changed(option.name) {
			continue
		}
		if option.value < 1 {
			return bench.Sizes{}, fmt.Errorf("--%s is %d; give a number above 0", option.name, option.value)
		}
		*option.into = option.value
	}
	for _, rows := range f.rows {
		if rows < 1 || rows > maxRows {
			return bench.Sizes{}, fmt.Errorf("--rows has %d; give numbers from 1 to %d", rows, maxRows)
		}
	}
	if f.rows != nil {
		sizes.OnlyRows = f.rows
	}
	if f.altered() {
		sizes.Name += ", changed"
	}
	return sizes, nil
}

// maxRows is below the settlement IDs of events.
const maxRows = 10_000_000

func measure(ctx context.Context, s streams, f flags) error {
	if f.database != "" {
		return fmt.Errorf("--database %s: %w; give --instance projects/P/instances/I", f.database, bench.ErrNotOurs)
	}
	sizes, err := f.sizes()
	if err != nil {
		return err
	}
	module, err := filepath.Abs(f.module)
	if err != nil {
		return fmt.Errorf("find the source: %w", err)
	}
	if f.docs != "" {
		if _, err := readPage(f.docs); err != nil { // now, and not after a quarter of an hour
			return err
		}
	}
	if f.instance == "" {
		tuneClient()
	}
	progress := newProgress(s)
	report, err := bench.Run(ctx, bench.Config{
		Sizes: sizes, Only: f.only, Instance: f.instance, Child: s.child, Module: module, Seed: f.seed, Progress: progress,
	})
	progress.stop(err == nil)
	if err != nil {
		return err
	}
	if err := f.write(s, report); err != nil {
		return err
	}
	for _, claim := range report.Claims {
		if f.strict && !claim.Holds {
			return fmt.Errorf("%w: %s: %s, found %s", errClaims, claim.Text, claim.Limit, claim.Found)
		}
	}
	return nil
}

// write writes the report where it is wanted.
func (f flags) write(s streams, report bench.Report) error {
	if f.docs != "" {
		if err := writeDocs(f.docs, report); err != nil {
			return err
		}
	}
	text := tables(report)
	if f.json {
		encoded, err := json.Marshal(report, jsontext.WithIndent("  "), json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("encode the report: %w", err)
		}
		text = string(encoded) + "\n"
	}
	if _, err := io.WriteString(s.out, text); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// seconds says a duration in words.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}
