// Package term holds the parts that every program of this module needs to talk to a
// person or a shell: the standard streams as a value, the exit codes, the width of the
// terminal, and a progress bar.
//
// Programs take [Streams] as a value, so that tests run them in the test's own process.
package term

import (
	"fmt"
	"io"
	"os"

	xterm "golang.org/x/term"
)

// The exit codes of all programs.
const (
	// ExitOK: the command succeeded, and its answer is yes.
	ExitOK = 0
	// ExitNo: the command ran, and its answer is no: a failed check, a refused message or
	// decision, a claim that does not hold.
	ExitNo = 1
	// ExitError: a usage error, or the program could not read, write or connect.
	ExitError = 2
	// ExitNotFound: the named settlement or message does not exist.
	ExitNotFound = 3
	// ExitInterrupted: SIGINT or SIGTERM ended the command. Shells report 128 plus the
	// number of SIGINT.
	ExitInterrupted = 130
)

// CodedError is an error with the exit code that the program ends with.
type CodedError struct {
	Code int
	// Err is printed on standard error; nil: standard output already holds the answer.
	Err error
}

// Error implements error.
func (e *CodedError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *CodedError) Unwrap() error { return e.Err }

// Failf returns an error that ends the program with [ExitError].
func Failf(format string, args ...any) error {
	return &CodedError{Code: ExitError, Err: fmt.Errorf(format, args...)}
}

// PageColumns is the width of text for people where no terminal tells its own.
const PageColumns = 80

// Streams are the standard streams of a process. The zero value of each width and flag
// means "not a terminal".
type Streams struct {
	In         io.Reader
	InTerminal bool // a person can answer a question on In
	Out, Err   io.Writer
	// OutColumns and ErrColumns are the widths of the terminals behind Out and Err; 0: not
	// a terminal.
	OutColumns, ErrColumns int
	// Colors allows escape sequences for colours on Out.
	Colors bool
}

// Process returns the streams of this process.
func Process() Streams {
	s := Streams{
		In: os.Stdin, InTerminal: xterm.IsTerminal(int(os.Stdin.Fd())),
		Out: os.Stdout, OutColumns: columns(os.Stdout),
		Err: os.Stderr, ErrColumns: columns(os.Stderr),
	}
	s.Colors = colors(s.OutColumns, os.Getenv)
	return s
}

// columns returns the width of the terminal behind f, or 0 if f is not a terminal.
func columns(f *os.File) int {
	fd := int(f.Fd())
	if !xterm.IsTerminal(fd) {
		return 0
	}
	columns, _, err := xterm.GetSize(fd)
	if err != nil || columns <= 0 {
		return PageColumns // a serial line, for example, has no size
	}
	return columns
}

// colors reports whether a stream of this width accepts colours (https://no-color.org).
func colors(columns int, getenv func(string) string) bool {
	return columns > 0 && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}
