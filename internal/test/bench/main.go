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

func newRoot(s term.Streams) *cobra.Command {
	var (
		small bool
		r     = &run{progress: s.Err}
	)
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
		Args:          cobra.NoArgs,
		SilenceUsage:  true, // the usage would hide the error
		SilenceErrors: true, // execute prints it
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range r.only {
				if !slices.Contains(measureNames(), name) {
					return fmt.Errorf("--only %s: unknown measure; use %s", name, strings.Join(measureNames(), ", "))
				}
			}
			docs := ""
			if r.choose(small); r.sizes.name == report.Full && r.instance == "" {
				docs = "docs"
			}
			return r.publish(cmd.Context(), s.Out, docs)
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w; see bench --help", err) })
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.Flags().BoolVar(&small, "quick", false, "take about a minute: show that everything works, with imprecise figures")
	root.Flags().StringSliceVar(&r.only, "only", nil, "take only these `measures`: "+strings.Join(measureNames(), ", "))
	root.Flags().StringVar(&r.instance, "instance", "", "measure in this real Spanner `instance`: projects/P/instances/I")
	return root
}

// choose chooses the sizes of the run.
func (r *run) choose(small bool) {
	r.sizes = usual
	if small {
		r.sizes = quick
	}
	if r.only != nil {
		r.sizes.name += ", changed"
	}
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
