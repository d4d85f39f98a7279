// Command bench compares Settle Once with other ways to settle a payout once. It prints
// tables, and writes them and a chart into docs/.
//
// The run uses the Spanner emulator or a Spanner instance, PostgreSQL with fsync, and the
// function under the functions framework, and kills real processes. Only the network's
// latency is simulated.
//
// # Method
//
// Contenders take turns within each round (A B C A B C …), so that a disturbance of the
// machine affects all of them. A figure is the median of the rounds, with the lowest and
// the highest; a ratio is computed within each round. gRPC's statistics count RPCs, and
// the connection counts bytes and commits.
//
// # Limits
//
// The emulator is one process that keeps all data in memory, runs one read-write
// transaction at a time, and scans whole tables in a query. Times with it consist of the
// client's work and the round trips. Round trips, bytes and commits are the same with
// Spanner.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/test/bench/report"
)

const (
	exitOK = 0
	// exitNo means that a limit is exceeded and --strict is given.
	exitNo = 1
	// exitError means a usage error, or that measuring or writing failed.
	exitError = 2
)

var errLimits = errors.New("limit exceeded")

// streams are the standard streams of the process.
type streams struct {
	out, err io.Writer
	// child is the command of the process to kill.
	child []string
}

func main() {
	program, err := os.Executable()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(exitError)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], streams{out: os.Stdout, err: os.Stderr, child: []string{program, "child"}})
	stop()
	os.Exit(code)
}

func execute(ctx context.Context, args []string, s streams) (exitCode int) {
	root := newRoot(s) //nolint:contextcheck // cobra passes ctx to the command
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	_, _ = fmt.Fprintf(s.err, "bench: %v\n", err)
	if errors.Is(err, errLimits) {
		return exitNo
	}
	return exitError
}

type flags struct {
	quick, tiny, json, strict bool
	rows                      []int
	only                      []string
	docs, instance            string
}

func newRoot(s streams) *cobra.Command {
	var f flags
	root := &cobra.Command{
		Use:   "bench",
		Short: "Compare Settle Once with other ways to settle a payout once",
		Long: `Compare Settle Once with other ways to settle a payout once, on this machine: round
trips and bytes of an event, latency with a network of 0 to 20 ms, throughput, growth
with the stored rows, crashes, cold starts, and the client's own work.

The run starts the Spanner emulator, and PostgreSQL if it is installed. With --instance
it measures a real Spanner instance, in databases that it creates and drops again; it
refuses any other database.

Exit codes: 0 measured, 1 a limit is exceeded and --strict is given, 2 usage error, or
measuring or writing failed.`,
		Example: `  bench
  bench --quick
  bench --only latency,throughput --json
  bench --quick --rows 100000 --only growth
  bench --instance projects/my-project/instances/my-instance`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true, // the usage would hide the error
		SilenceErrors: true, // execute prints it
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("docs") && (f.sizes().name != report.Full || f.instance != "") {
				f.docs = ""
			}
			return f.measure(cmd.Context(), s)
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w; see bench --help", err) })
	root.SetOut(s.out)
	root.SetErr(s.err)
	set := root.Flags()
	set.BoolVar(&f.quick, "quick", false, "take about a minute: show that everything works, with imprecise figures")
	set.BoolVar(&f.tiny, "tiny", false, "use the sizes of the tests")
	set.BoolVar(&f.json, "json", false, "print the report as JSON")
	set.BoolVar(&f.strict, "strict", false, "exit with 1 if a limit is exceeded")
	set.StringSliceVar(&f.only, "only", nil, "take only these `measures`: "+strings.Join(measureNames(), ", "))
	set.IntSliceVar(&f.rows, "rows", nil, "additional `numbers` of stored rows for the growth of Settle Once, in place of a million, which needs 8 GB; such as 100000")
	set.StringVar(&f.docs, "docs", "docs", "write benchmarks.md and benchmarks.svg in this `directory`; empty: none, the default unless the run is a full one")
	set.StringVar(&f.instance, "instance", "", "measure in this real Spanner `instance`: projects/P/instances/I")
	root.MarkFlagsMutuallyExclusive("quick", "tiny")
	_ = set.MarkHidden("tiny") // the flag exists
	root.AddCommand(&cobra.Command{
		Use: "child", Short: "Settle one message", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			outcome, err := settleAsChild(cmd.Context(), args[0])
			_, _ = io.WriteString(s.out, outcome) // the parent detects a missing outcome
			return err
		},
	})
	return root
}

// sizes returns the sizes of the run.
func (f flags) sizes() sizes {
	chosen := usual
	switch {
	case f.quick:
		chosen = quick
	case f.tiny:
		chosen = tiny
	}
	if f.rows != nil {
		chosen.moreRows = f.rows
	}
	if f.rows != nil || f.only != nil {
		chosen.name += ", changed"
	}
	return chosen
}

// maxRows is below the numbers of new settlements.
const maxRows = firstNumber / 10

func (f flags) measure(ctx context.Context, s streams) (err error) {
	for _, rows := range f.rows {
		if rows < 1 || rows > maxRows {
			return fmt.Errorf("--rows %d: out of range; use 1 to %d", rows, maxRows)
		}
	}
	for _, name := range f.only {
		if !slices.Contains(measureNames(), name) {
			return fmt.Errorf("--only %s: unknown measure; use %s", name, strings.Join(measureNames(), ", "))
		}
	}
	var page *report.Page
	if f.docs != "" {
		if page, err = report.OpenPage(f.docs); err != nil { // before the long run
			return err
		}
	}
	r := &run{sizes: f.sizes(), only: f.only, instance: f.instance, child: s.child, progress: s.err}
	if err := r.all(ctx); err != nil {
		return err
	}
	if page != nil {
		if err := page.Write(&r.report); err != nil {
			return err
		}
	}
	text := r.report.Markdown()
	if f.json {
		encoded, err := json.Marshal(r.report, jsontext.WithIndent("  "), json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("encode the report: %w", err)
		}
		text = string(encoded) + "\n"
	}
	if _, err := io.WriteString(s.out, text); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if f.strict && len(r.exceeded) > 0 {
		return fmt.Errorf("%w: %s", errLimits, strings.Join(r.exceeded, "; "))
	}
	return nil
}
