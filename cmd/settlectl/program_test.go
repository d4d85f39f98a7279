package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/child"
)

// asProgram makes a test binary run settlectl.
const asProgram = "SETTLECTL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	child.ExitWithParent()
	main()
}

// program returns settlectl as a process of its own, which ends with this one.
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

// start starts a process. wait waits for its end; the exit code of a killed process is -1.
func start(t *testing.T, cmd *exec.Cmd) (wait func() outcome) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() outcome {
		_ = cmd.Wait() // ExitCode has the result
		return outcome{code: cmd.ProcessState.ExitCode(), out: out.String(), errOut: errOut.String()}
	}
}

// streamsOf returns the streams of a program with this environment, without a terminal.
func streamsOf(in io.Reader, out, errOut io.Writer, env map[string]string) streams {
	return streams{
		Streams: term.Streams{In: in, Out: out, Err: errOut}, now: time.Now, getenv: func(name string) string { return env[name] },
	}
}

// outcome is the result of one run of the program.
type outcome struct {
	code        int
	out, errOut string
}

// settlectl runs the program in this process. env is its environment.
func settlectl(t *testing.T, in io.Reader, env map[string]string, args ...string) outcome {
	t.Helper()
	return settlectlAt(t, time.Now, in, env, args...)
}

// settlectlAt runs the program with another clock.
func settlectlAt(t *testing.T, now func() time.Time, in io.Reader, env map[string]string, args ...string) outcome {
	t.Helper()
	return settlectlOn(t, 0, now, in, env, args...)
}

// settlectlOn runs the program with a terminal of this width as standard output; 0: no
// terminal.
func settlectlOn(t *testing.T, columns int, now func() time.Time, in io.Reader, env map[string]string, args ...string) outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	s := streamsOf(in, &out, &errOut, env)
	s.now, s.OutColumns = now, columns
	code := run(t.Context(), args, s)
	return outcome{code: code, out: out.String(), errOut: errOut.String()}
}
