// Command settlectl is the operator's tool. Each command's --help describes it.
//
// Every command writes its result on standard output, as JSON or as a table, and all
// other text on standard error. The exit code alone tells a script the outcome.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/term"
)

// streams are the parts of the process that commands use. Tests replace them.
type streams struct {
	term.Streams

	now func() time.Time
	// getenv looks up an environment variable. The Google Cloud clients read their own
	// variables (PUBSUB_EMULATOR_HOST, GOOGLE_APPLICATION_CREDENTIALS) from the process.
	getenv func(string) string
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], streams{term.Process(), time.Now, os.Getenv}))
}

// run runs the program with args, which exclude the program's name. An error that is
// no [term.CodedError] is a usage error.
func run(ctx context.Context, args []string, s streams) (exitCode int) {
	root := newRoot(s) //nolint:contextcheck // cobra passes ctx to the command that runs
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return term.ExitOK
	}
	coded, ok := errors.AsType[*term.CodedError](err)
	if !ok {
		path := cmd.CommandPath()
		for fault := range strings.SplitSeq(trimRPCPrefix(err), "\n") {
			if fault != "" {
				_, _ = fmt.Fprintf(s.Err, "%s: %s\n", path, fault)
			}
		}
		_, _ = fmt.Fprintf(s.Err, "See '%s --help'.\n", path)
		return term.ExitError
	}
	if coded.Err != nil {
		_, _ = fmt.Fprintf(s.Err, "settlectl: %s\n", trimRPCPrefix(coded.Err))
	}
	return coded.Code
}

// noWith returns an error that ends the program with [term.ExitNo].
func noWith(format string, args ...any) error {
	return &term.CodedError{Code: term.ExitNo, Err: fmt.Errorf(format, args...)}
}

// clientErrors matches the code and message of a service within the text that the
// Google Cloud clients put around them.
var clientErrors = regexp.MustCompile(`rpc error: code = (\w+) desc = |spanner: code = "(\w+)", desc = "((?:[^"\\]|\\.)*)"`)

// trimRPCPrefix returns the text of err with "CODE: message" for every service error.
func trimRPCPrefix(err error) string {
	return clientErrors.ReplaceAllStringFunc(err.Error(), func(text string) string {
		found := clientErrors.FindStringSubmatch(text)
		if found[1] != "" {
			return found[1] + ": "
		}
		return found[2] + ": " + found[3]
	})
}

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "settlectl",
		Short: "Operate Settle Once",
		Long: `settlectl is the operator's tool of Settle Once, which settles payout messages
exactly once. Results go to standard output, all other text to standard error.

Exit codes: 0 yes, 1 no (a refused message or decision, a failed check), 2 usage
error, or an input, output or connection error, 3 no such settlement or message,
130 interrupted.`,
		Example: `  settlectl show stl-8472
  source <(settlectl completion bash)`,
		SilenceUsage:  true, // a page of usage would hide the error
		SilenceErrors: true, // run prints it
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return errors.Join(
				config.CheckEmulatorHost(config.EnvEmulatorHost, s.getenv(config.EnvEmulatorHost)),
				config.CheckEmulatorHost(config.EnvPubSubEmulatorHost, s.getenv(config.EnvPubSubEmulatorHost)),
			)
		},
	}
	columns := s.OutColumns
	if columns == 0 {
		columns = term.PageColumns
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", columns)))
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.AddCommand(
		newShow(s), newList(s), newTail(s), newReport(s),
		newResolve(s), newDecide(s), newRelease(s), newReconcile(s),
		newCheck(s), newPublish(s), newDoctor(s), newCapacity(s), newVerify(s),
	)
	return root
}

// require marks flags that a command needs.
func require(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a fault of the program: no such flag
		}
	}
}

// interruptible runs f with a context that SIGINT and SIGTERM cancel.
func interruptible(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return &term.CodedError{Code: term.ExitInterrupted, Err: errInterrupted}
	}
	return err
}

var errInterrupted = errors.New("interrupted")

// standardInput stands for standard input where a command takes a file's name.
const standardInput = "-"

// openInput opens the file that args name, or standard input if they name none or "-".
// name describes the input in messages.
func openInput(args []string, s streams) (input io.ReadCloser, name string, err error) {
	if len(args) == 0 || args[0] == standardInput {
		if s.InTerminal {
			_, _ = fmt.Fprintln(s.Err, "settlectl: reading from the terminal; end the input with Ctrl-D at the beginning of a line")
		}
		return io.NopCloser(s.In), "standard input", nil
	}
	file, err := os.Open(args[0])
	if err != nil {
		return nil, "", term.Failf("%w; name a readable file, or - for standard input", err)
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		_ = file.Close()
		return nil, "", term.Failf("%s is a directory; name a file, or - for standard input", args[0])
	}
	return file, args[0], nil
}

// readMessage reads a message from openInput's file. One byte over the limit is enough to
// refuse a message, however large it is.
func readMessage(args []string, s streams) ([]byte, error) {
	input, name, err := openInput(args, s)
	if err != nil {
		return nil, err
	}
	defer func() { _ = input.Close() }() // nothing was written
	data, err := io.ReadAll(io.LimitReader(input, payout.MaxMessageBytes+1))
	if err != nil {
		return nil, term.Failf("read the message from %s: %w", name, err)
	}
	return data, nil
}
