package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/settleonce/settleonce/internal/test/child"
)

// asProgram says to a test binary that it is to be settlectl.
const asProgram = "SETTLECTL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	child.ExitWithParent()
	main()
}

// program is settlectl as a process of its own, which ends with this one.
func program(ctx context.Context, t *testing.T, env map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if _, err := child.BindToParent(cmd); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// start starts it. wait waits for its end; the exit code is -1 where it was killed.
func start(t *testing.T, cmd *exec.Cmd) (wait func() outcome) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() outcome {
		_ = cmd.Wait() // the exit code tells how it ended
		return outcome{code: cmd.ProcessState.ExitCode(), out: out.String(), errOut: errOut.String()}
	}
}
