// Command local runs the whole of Settle Once on one machine, for trying it out.
//
// Without a subcommand it runs until interrupted: the Spanner emulator with the
// schema, the Pub/Sub emulator with the topics, both
// functions under the Functions Framework, a fake bank (package fakebank), and a
// scheduler that publishes to the reconcile topic. When all of them answer, it
// prints their addresses as one line of JSON on standard output, and then help on
// standard error.
//
// The demo subcommand settles a sample of messages on the same system, prints the
// answers, the ledger and the bank's transfers, and checks that these agree.
//
// # The path of a message
//
//	run     topic -> function -> fake bank
//	demo    topic -> relay -> function -> fake bank
//
// The relay makes the demo's redeliveries real. It forwards every delivery to the
// function and records the answer. For chosen messages it drops the answer and
// answers Pub/Sub with 500, as if the acknowledgement had been lost. Pub/Sub then
// delivers the message again, under the same message ID.
//
// All servers listen on 127.0.0.1. Package emulator explains why no emulator
// survives this process.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/term"
)

// exitFailed is the exit code of a run that failed, and of a demo that found a
// difference. Usage errors end with term.ExitError.
const exitFailed = 1

var errInterrupted = errors.New("interrupted")

func main() {
	s := term.Process()
	// The Functions Framework prints the names of its functions on os.Stdout.
	os.Stdout = nil
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stdout = null
	}
	os.Exit(run(interruptible(context.Background()), os.Args[1:], s))
}

// interruptible returns a context that the first SIGINT or SIGTERM cancels. A
// second signal kills the process at once, except for one SIGTERM after a SIGTERM:
// the function drains and then sends SIGTERM to its own process.
func interruptible(ctx context.Context) context.Context {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		first := <-signals
		cancel(errInterrupted)
		ignore := first == syscall.SIGTERM
		for again := range signals {
			if ignore && again == syscall.SIGTERM {
				ignore = false
				continue
			}
			signal.Reset(syscall.SIGINT, syscall.SIGTERM)
			_ = syscall.Kill(os.Getpid(), again.(syscall.Signal)) // both are of that type
		}
	}()
	return ctx
}

// run runs the program with args, without the program's name, and returns its exit
// code.
func run(ctx context.Context, args []string, s term.Streams) (exitCode int) {
	root := newRun(s) //nolint:contextcheck // cobra passes ctx to the command that runs
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err) })
	root.AddCommand(newDemo(s)) //nolint:contextcheck // likewise
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return term.ExitOK
	}
	if coded, ok := errors.AsType[*term.CodedError](err); ok {
		_, _ = fmt.Fprintf(s.Err, "local: %v\nSee 'go run ./cmd/%s --help'.\n", err, cmd.CommandPath())
		return coded.Code
	}
	if errors.Is(context.Cause(ctx), errInterrupted) {
		_, _ = fmt.Fprintln(s.Err, "local: interrupted")
		return term.ExitInterrupted
	}
	_, _ = fmt.Fprintf(s.Err, "local: %v\n", err)
	return exitFailed
}

func usageError(err error) error { return &term.CodedError{Code: term.ExitError, Err: err} }

func noArguments(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError(err)
	}
	return nil
}
