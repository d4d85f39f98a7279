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
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

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
	r := &run{progress: s.Err}
	err := r.parse(args, s.Err)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return term.ExitOK
	case err == nil:
		err = r.publish(ctx, s.Out, "docs")
	}
	if err != nil {
		_, _ = fmt.Fprintf(s.Err, "bench: %v\n", err)
		return term.ExitError
	}
	return term.ExitOK
}

const usageText = `Compare Settle Once with other ways to settle a payout once, on this machine.

The run starts the Spanner emulator, and PostgreSQL if it is installed. With --instance
it measures a real Spanner instance, in databases that it creates and drops again. A run
of all measures with the usual sizes writes docs/benchmarks.md and its chart.

Exit codes: 0 measured, 2 usage error, or measuring or writing failed.

`

// parse sets the options of the run.
func (r *run) parse(args []string, out io.Writer) error {
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(io.Discard) // execute prints the error
	small := set.Bool("quick", false, "take two minutes: show that everything works, with imprecise figures")
	set.Func("only", "take only these `measures`: "+strings.Join(measureNames(), ","), func(names string) error {
		r.only = strings.Split(names, ",")
		for _, name := range r.only {
			if !slices.Contains(measureNames(), name) {
				return fmt.Errorf("unknown measure %q", name)
			}
		}
		return nil
	})
	set.StringVar(&r.instance, "instance", "", "measure in this real Spanner `instance`: projects/P/instances/I")
	err := set.Parse(args)
	r.choose(*small)
	switch {
	case errors.Is(err, flag.ErrHelp):
		set.SetOutput(out)
		_, _ = io.WriteString(out, usageText) // to the terminal
		set.PrintDefaults()
		return err
	case err != nil:
		return fmt.Errorf("%w; see bench --help", err)
	case set.NArg() > 0:
		return fmt.Errorf("unexpected argument %q; see bench --help", set.Arg(0))
	case r.instance != "" && !instanceName.MatchString(r.instance):
		return fmt.Errorf("instance %q: use projects/P/instances/I: bench uses only databases that it has created", r.instance)
	}
	return nil
}

// choose chooses the sizes of the run.
func (r *run) choose(small bool) {
	r.sizes = usual
	if small {
		r.sizes = quick
	}
	if r.only != nil || r.instance != "" {
		r.sizes.name += ", changed"
	}
}

// publish takes the measures and writes the tables to out. A full run also writes them
// and the chart into the directory docs.
func (r *run) publish(ctx context.Context, out io.Writer, docs string) (err error) {
	var page *report.Page
	if r.sizes.name == report.Full {
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
