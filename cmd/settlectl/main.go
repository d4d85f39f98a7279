// Command settlectl is the operator's tool.
//
// It answers what a person asks about payouts without SQL and without the
// Google Cloud console: what happened to a settlement (show), what waits for
// somebody (list), what goes on now (tail), what an account paid (report), what the
// function would say to a message (check), how messages get into the topic
// (publish), whether a deployment is as it has to be (doctor), and what a rate of
// payouts takes (capacity). Every command writes its result on standard output, as
// JSON or, where a person reads it too, as a table, and everything else on standard
// error; the exit code alone tells a script how it went.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// The exit codes. A command's help says when it ends with which.
const (
	exitOK = 0
	// exitNo: the command worked and its answer is no.
	exitNo = 1
	// exitError: the command was called wrongly, or could not read, write or connect;
	// and of verify, that something is wrong with the data.
	exitError = 2
	// exitAbsent: there is no such settlement, or no such message.
	exitAbsent = 3
	// exitInterrupted: 128 and the number of SIGINT, as shells have it.
	exitInterrupted = 130
)

// codedError is an error that ends the program with a code of its own. Any other
// error that reaches run is a usage error.
type codedError struct {
	code int
	err  error // nil: the result on standard output says it all
}

func (e *codedError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codedError) Unwrap() error { return e.err }

// failf gives an error that is not about usage: reading, writing, connecting.
func failf(format string, args ...any) error {
	return &codedError{code: exitError, err: fmt.Errorf(format, args...)}
}

// streams is everything of the process that commands touch, so that tests run
// them in-process.
type streams struct {
	in io.Reader
	// inTerminal says that somebody can be asked on in.
	inTerminal bool
	out, err   io.Writer
	// outColumns and errColumns are the widths of the terminals behind out and err;
	// zero: not a terminal.
	outColumns, errColumns int
	// now tells the time.
	now func() time.Time
	// getenv looks up an environment variable. The client libraries read theirs
	// (PUBSUB_EMULATOR_HOST, GOOGLE_APPLICATION_CREDENTIALS) from the process, but
	// for SPANNER_EMULATOR_HOST where a command opens the database itself.
	getenv func(string) string
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], streams{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		inTerminal: term.IsTerminal(int(os.Stdin.Fd())),
		outColumns: terminalColumns(os.Stdout), errColumns: terminalColumns(os.Stderr),
		now: time.Now, getenv: os.Getenv,
	}))
}

// run runs the program with args, the program's name not among them.
func run(ctx context.Context, args []string, s streams) (exitCode int) {
	root := newRoot(s) //nolint:contextcheck // cobra hands ctx to the command that runs
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	coded, ok := errors.AsType[*codedError](err)
	if !ok {
		path := cmd.CommandPath()
		for fault := range strings.SplitSeq(spoken(err), "\n") {
			_, _ = fmt.Fprintf(s.err, "%s: %s\n", path, fault)
		}
		_, _ = fmt.Fprintf(s.err, "See '%s --help'.\n", path)
		return exitError
	}
	if coded.err != nil {
		_, _ = fmt.Fprintf(s.err, "settlectl: %s\n", spoken(coded.err))
	}
	return coded.code
}

// clientsErrors are how the client libraries begin and end what a service said: its
// code and its words are worth telling.
var clientsErrors = regexp.MustCompile(`rpc error: code = (\w+) desc = |spanner: code = "(\w+)", desc = "((?:[^"\\]|\\.)*)"`)

// spoken is an error's text without the dress of the client libraries.
func spoken(err error) string {
	return clientsErrors.ReplaceAllStringFunc(err.Error(), func(text string) string {
		found := clientsErrors.FindStringSubmatch(text)
		if found[1] != "" {
			return found[1] + ": "
		}
		return found[2] + ": " + found[3]
	})
}

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "settlectl",
		Short: "The operator's tool of Settle Once",
		Long: `settlectl is the operator's tool of Settle Once, which settles payout messages
exactly once.

Results go to standard output: as one line of JSON, and where a person reads
them as a table unless --output json is given. Everything else goes to standard
error. Colours are for terminals only, and not where NO_COLOR is set.

Exit codes: 0 yes, 1 no (a refused message or decision, a message not published,
a check that failed), 2 wrong usage or an input, output or connection error, 3
no such settlement or message, 130 interrupted.`,
		Example: `  settlectl show stl-8472
  settlectl list conflicts
  settlectl check payout.json
  settlectl publish payouts.jsonl --topic projects/my-project/topics/payouts
  settlectl doctor --subscription projects/my-project/subscriptions/payouts \
    --function-timeout 90s
  settlectl capacity --rate 1000
  source <(settlectl completion bash)`,
		SilenceUsage:  true, // a page of usage would hide the error
		SilenceErrors: true, // run prints it
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.AddCommand(
		newShow(s), newList(s), newTail(s), newReport(s),
		newResolve(s), newDecide(s), newRelease(s), newReconcile(s),
		newCheck(s), newPublish(s), newDoctor(s), newCapacity(s), newVerify(s),
	)
	plain(root, s.columns())
	return root
}

// standardInput is the name of a file that stands for it.
const standardInput = "-"

// findFile finds what is wrong with a file that is to be read, as far as that is
// seen without opening it: a pipe can be opened once.
func findFile(path string) error {
	info, err := os.Stat(path)
	if failed, is := errors.AsType[*fs.PathError](err); is {
		err = failed.Err
	}
	switch {
	case err != nil:
		return fmt.Errorf("open %s: %w; name a file that can be read, or - for standard input", path, err)
	case info.IsDir():
		return fmt.Errorf("%s is a directory; name a file, or - for standard input", path)
	}
	return nil
}

// openInput opens the file that args name, or standard input where they name
// none or "-". name is how to speak of it.
func openInput(args []string, s streams) (input io.ReadCloser, name string, err error) {
	if len(args) == 0 || args[0] == standardInput {
		if s.inTerminal {
			_, _ = fmt.Fprintln(s.err, "settlectl: reading what is typed here, up to Ctrl-D at the beginning of a line")
		}
		return io.NopCloser(s.in), "standard input", nil
	}
	if err := findFile(args[0]); err != nil {
		return nil, "", failf("%w", err)
	}
	file, err := os.Open(args[0])
	if err != nil {
		return nil, "", failf("%w; name a file that can be read, or - for standard input", err)
	}
	return file, args[0], nil
}
