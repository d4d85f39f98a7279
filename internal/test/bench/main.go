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
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		os.Exit(runChild(context.Background(), os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], term.Process())
	stop()
	os.Exit(code)
}

func execute(ctx context.Context, args []string, s term.Streams) (exitCode int) {
	root := newRoot(s) //nolint:contextcheck // cobra passes ctx to the command
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintf(s.Err, "bench: %v\n", err)
		return term.ExitError
	}
	return term.ExitOK
}

type flags struct {
	quick    bool
	rows     []int
	only     []string
	instance string
}

func newRoot(s term.Streams) *cobra.Command {
	var f flags
	root := &cobra.Command{
		Use:   "bench",
		Short: "Compare Settle Once with other ways to settle a payout once",
		Long: `Compare Settle Once with other ways to settle a payout once, on this machine: round
trips and bytes of an event, latency with a network of 0 to 20 ms, throughput, growth
with the stored rows, crashes, cold starts, and the client's own work.

The run starts the Spanner emulator, and PostgreSQL if it is installed. With --instance
it measures a real Spanner instance, in databases that it creates and drops again; it
refuses any other database. A full run writes docs/benchmarks.md and its chart.

Exit codes: 0 measured, 2 usage error, or measuring or writing failed.`,
		Example: `  bench
  bench --quick
  bench --only latency,throughput
  bench --quick --rows 100000 --only growth
  bench --instance projects/my-project/instances/my-instance`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true, // the usage would hide the error
		SilenceErrors: true, // execute prints it
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			docs := ""
			if f.sizes().name == report.Full && f.instance == "" {
				docs = "docs"
			}
			r := &run{sizes: f.sizes(), only: f.only, instance: f.instance, progress: s.Err}
			return r.publish(cmd.Context(), s.Out, docs)
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w; see bench --help", err) })
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	set := root.Flags()
	set.BoolVar(&f.quick, "quick", false, "take about a minute: show that everything works, with imprecise figures")
	set.StringSliceVar(&f.only, "only", nil, "take only these `measures`: "+strings.Join(measureNames(), ", "))
	set.IntSliceVar(&f.rows, "rows", nil, "additional `numbers` of stored rows for the growth of Settle Once, in place of a million, which needs 8 GB; such as 100000")
	set.StringVar(&f.instance, "instance", "", "measure in this real Spanner `instance`: projects/P/instances/I")
	return root
}

// sizes returns the sizes of the run.
func (f flags) sizes() sizes {
	chosen := usual
	if f.quick {
		chosen = quick
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

func (f flags) check() error {
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
	return nil
}

// publish takes the measures, writes the tables to out, and writes them and the chart
// into the directory docs; empty means no directory.
func (r *run) publish(ctx context.Context, out io.Writer, docs string) (err error) {
	var page *report.Page
	if docs != "" {
		if page, err = report.OpenPage(docs); err != nil { // before the long run
			return err
		}
	}
	if err := r.all(ctx); err != nil {
		return err
	}
	if page != nil {
		if err := page.Write(&r.report); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(out, r.report.Markdown()); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}
