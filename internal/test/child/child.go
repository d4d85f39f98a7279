// Package child ends a child process with its parent, however that ends.
//
// It exists because tests run the test binary as a process of its own: clean-up
// does not run after SIGKILL, an os.Exit or the time-out of go test, and a child
// that is left behind keeps its port and its connections. The child's standard
// input is a pipe whose only write end the parent holds. The kernel closes that end
// with the parent, and the child, which waits for it, exits. Package emulator does
// the same for programs that do not know about it, with a shell between.
package child

import (
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Tie ties the program of cmd to this process. It has to be called before cmd is
// started, and the program has to call [Follow]. The tie holds until cmd.Wait
// returns; closing it ends the program.
func Tie(cmd *exec.Cmd) (io.Closer, error) {
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("tie %s to this process: %w", cmd.Path, err)
	}
	return pipe, nil
}

// Exit is the exit status of a process that ends because its parent has ended.
const Exit = 98

// Follow ends this process with status [Exit] when the one that tied it has ended.
// It takes standard input for itself and returns at once.
func Follow() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end too
		os.Exit(Exit)
	}()
}
