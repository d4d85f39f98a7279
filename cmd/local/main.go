// Command local runs the whole of Settle Once on one machine.
//
// Without a subcommand it serves: the Spanner emulator with the schema, the
// Pub/Sub emulator with the payouts and the reconcile topic, both functions under
// the functions framework, which is what runs them in the cloud, a fake bank (see
// package fakebank), and a scheduler that publishes to the reconcile topic. When
// all of it answers, one line of JSON on standard output says where; help for a
// person follows on standard error.
//
// The demo subcommand publishes a sample of messages, makes time pass for the bank
// instructions among them, shows what became of each delivery, what the ledger
// holds and what the bank did, and checks that these agree.
//
// # The way of a message
//
//	serve   topic -> function -> fake bank
//	demo    topic -> relay -> function -> fake bank
//
// The relay is what makes the demo's redeliveries real. It hands every delivery
// to the function and records the answer, and for chosen messages it throws the
// answer away and tells Pub/Sub 500, as if the acknowledgement had been lost. So
// it is Pub/Sub that delivers again, under the same message ID.
//
// # Without emulators
//
// With --memory the ledger is in memory and the topic in this process, and
// nothing but Go is needed. The deliveries are CloudEvents over HTTP all the
// same, and are repeated until they are acknowledged.
//
// Everything listens on 127.0.0.1, and nothing is left behind however the
// program ends; see package emulator for how.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// The exit codes.
const (
	exitOK = 0
	// exitFailed: something is wrong, and standard error or the demo's output says what.
	exitFailed = 1
	exitUsage  = 2
	// exitInterrupted: before the work was done; 128 and the number of SIGINT, as shells have it.
	exitInterrupted = 130
)

var (
	errInterrupted = errors.New("interrupted")
	// errWrong ends a demo whose output says what is wrong.
	errWrong = errors.New("the demo found something wrong; its output says what")
)

// usageError is a mistake in how the program was called.
type usageError struct{ error }

// streams is everything of the process that the commands print to.
type streams struct {
	out, err io.Writer
	// errColumns is the width of the terminal behind err; zero: err is not a terminal.
	errColumns int
}

func main() {
	out := os.Stdout
	// The functions framework prints which functions it serves, which the ready
	// line says too. Standard output is for results.
	os.Stdout = nil
	if null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stdout = null
	}
	ctx := interruptible(context.Background())
	os.Exit(run(ctx, os.Args[1:], streams{out: out, err: os.Stderr, errColumns: terminalColumns(os.Stderr)}))
}

// interruptible returns a context that the first SIGINT or SIGTERM ends; the
// second ends the program at once. They stay caught until the process exits: the
// function drains at SIGTERM and then sends that signal to its own process, which
// must not turn an orderly end into a death by signal, and is no second one.
func interruptible(ctx context.Context) context.Context {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		first := <-signals
		cancel(errInterrupted)
		forgiven := first == syscall.SIGTERM
		for again := range signals {
			if forgiven && again == syscall.SIGTERM {
				forgiven = false
				continue
			}
			signal.Reset(syscall.SIGINT, syscall.SIGTERM)
			_ = syscall.Kill(os.Getpid(), again.(syscall.Signal)) // both are of that type
		}
	}()
	return ctx
}

// terminalColumns returns the width of the terminal behind f, or 0 if there is none.
func terminalColumns(f *os.File) int {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return 0
	}
	columns, _, err := term.GetSize(fd)
	if err != nil || columns <= 0 {
		return 80 // a terminal that does not tell its size
	}
	return columns
}

// run runs the program with args, the program's name not among them.
func run(ctx context.Context, args []string, s streams) (exitCode int) {
	root := newRoot(s) //nolint:contextcheck // cobra hands ctx to the command that runs
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if _, wrongly := errors.AsType[usageError](err); wrongly {
		_, _ = fmt.Fprintf(s.err, "local: %v\nSee 'go run ./cmd/%s --help'.\n", err, cmd.CommandPath())
		return exitUsage
	}
	if errors.Is(context.Cause(ctx), errInterrupted) {
		_, _ = fmt.Fprintln(s.err, "local: interrupted")
		return exitInterrupted
	}
	_, _ = fmt.Fprintf(s.err, "local: %v\n", err)
	return exitFailed
}

func newRoot(s streams) *cobra.Command {
	root := newServe(s)
	root.SilenceUsage = true  // a page of usage would hide the error
	root.SilenceErrors = true // run prints it
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(flagFault)
	root.AddCommand(newDemo(s))
	return root
}

// flagFault says what is wrong with a flag.
func flagFault(_ *cobra.Command, err error) error {
	if unknown, is := errors.AsType[*pflag.NotExistError](err); is {
		dashes := "--"
		if unknown.GetSpecifiedShortnames() != "" {
			dashes = "-"
		}
		err = fmt.Errorf("there is no flag %s%s", dashes, unknown.GetSpecifiedName())
	} else if invalid, is := errors.AsType[*pflag.InvalidValueError](err); is {
		_, meaning := pflag.UnquoteUsage(invalid.GetFlag())
		err = fmt.Errorf("--%s is %q; it is: %s", invalid.GetFlag().Name, invalid.GetValue(), meaning)
	} else if empty, is := errors.AsType[*pflag.ValueRequiredError](err); is {
		_, meaning := pflag.UnquoteUsage(empty.GetFlag())
		err = fmt.Errorf("--%s has no value: %s", empty.GetFlag().Name, meaning)
	}
	return usageError{err}
}

// noArgs refuses arguments.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%q is no command and no flag", args[0])}
	}
	return nil
}
