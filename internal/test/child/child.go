// Package child ends a child process when its parent ends.
//
// Tests run the test binary as a separate process, and their cleanup does not run after
// SIGKILL, os.Exit or a timeout of go test. A child that is left behind keeps its port
// and its connections. The child's standard input is therefore a pipe, of which the
// parent has the only write end: when the parent ends, the kernel closes it, and the
// child, which reads, exits. Package emulator does the same for programs that do not
// read their standard input, with a shell in between.
package child

import (
	"fmt"
	"io"
	"os"
	"os/exec"
)

// BindToParent binds the program of cmd to this process. Call it before cmd is started;
// the program must call [ExitWithParent]. The binding ends when cmd.Wait returns.
// Closing the returned pipe ends the program.
func BindToParent(cmd *exec.Cmd) (io.Closer, error) {
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("bind %s to this process: %w", cmd.Path, err)
	}
	return pipe, nil
}

// ExitStatus is the exit status of a process whose parent has ended.
const ExitStatus = 98

// ExitWithParent returns at once, and ends this process with [ExitStatus] when the
// process that bound it ends. It reads all of standard input.
func ExitWithParent() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // a read error means the same
		os.Exit(ExitStatus)
	}()
}
