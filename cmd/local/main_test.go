package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/test/child"
)

// asMain makes the test binary the program itself. The functions are registered
// and configured once a process, so whatever serves them needs one of its own.
const asMain = "SETTLEONCE_TEST_LOCAL_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		child.Follow()
		main()
	}
	os.Exit(m.Run())
}

// childLimit bounds a child process: two emulators start in it, and other tests
// may be starting theirs.
const childLimit = 90 * time.Second

// child returns the program as a process of its own, which ends with this one. env is added to this
// process's, in which no emulator is named.
func startLocal(t *testing.T, env []string, args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), childLimit)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asMain+"=1", "SPANNER_EMULATOR_HOST=", "PUBSUB_EMULATOR_HOST=", "DEFAULT_CURRENCY=")
	cmd.Env = append(cmd.Env, env...)
	stderr = &bytes.Buffer{}
	cmd.Stderr = stderr
	cmd.WaitDelay = 10 * time.Second
	if _, err := child.Tie(cmd); err != nil {
		t.Fatal(err)
	}
	return cmd, stderr
}

// exitCode is what a process or an in-process run ended with.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	if !ok {
		return 0
	}
	return exit.ExitCode()
}

// local runs the program in-process, which is possible only without Spanner.
func local(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, streams{out: &o, err: &e})
	return code, o.String(), e.String()
}

// withoutEmulators takes away every way to an emulator.
func withoutEmulators(t *testing.T) {
	t.Helper()
	for _, name := range []string{"PATH", "SPANNER_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST", "CLOUDSDK_ROOT_DIR", "JAVA_HOME"} {
		t.Setenv(name, "")
	}
}

func TestWrongUsageIsToldFromFailure(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	withoutEmulators(t)
	t.Setenv("LOG_LEVEL", "LOUD")
	tests := []struct {
		args string
		code int
		text string
	}{
		{"--nonsense", exitUsage, "local: there is no flag --nonsense\nSee 'go run ./cmd/local --help'.\n"},
		{"demo --nonsense", exitUsage, "local: there is no flag --nonsense\nSee 'go run ./cmd/local demo --help'.\n"},
		{"-x", exitUsage, "local: there is no flag -x\n"},
		{"--reconcile-every soon", exitUsage, `--reconcile-every is "soon"; it is: time between two runs`},
		{"--listen", exitUsage, "--listen has no value: address of the functions"},
		{"now", exitUsage, `"now" is no command and no flag`},
		{"demo now", exitUsage, `"now" is no command and no flag`},
		{"--listen 0.0.0.0:0", exitUsage, "127.0.0.1:PORT"},
		{"--listen 8080", exitUsage, "127.0.0.1:PORT"},
		{"--reconcile-every 0s", exitUsage, "--reconcile-every is 0s"},
		{"--memory --listen " + l.Addr().String(), exitFailed, l.Addr().String()},
		{"--memory --listen 127.0.0.1:0", exitFailed, "LOG_LEVEL"},
		{"--listen 127.0.0.1:0", exitFailed, "--memory"}, // no emulator, and what works without
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			code, out, errOut := local(t, strings.Fields(test.args)...)
			if code != test.code || out != "" || !strings.Contains(errOut, test.text) {
				t.Errorf("exit code %d, standard output %q, standard error %q; want %d, nothing, and %q", code, out, errOut, test.code, test.text)
			}
		})
	}
}

// readReady reads the ready line, and then drains the stream.
func readReady(t *testing.T, stdout io.Reader) ready {
	t.Helper()
	reader := bufio.NewReader(stdout)
	text, err := reader.ReadBytes('\n')
	if err != nil {
		t.Fatalf("read the ready line: %v after %q", err, text)
	}
	var line ready
	if err := json.Unmarshal(text, &line, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("the first line on standard output is not the ready line: %v: %q", err, text)
	}
	if !line.Ready {
		t.Errorf("not ready: %q", text)
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	return line
}

// eventually polls until done, and fails the test when that takes too long.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// wantRefused checks that nothing listens on an address any more.
func wantRefused(t *testing.T, address string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect to %s after the end: %v; want it refused", address, err)
	}
}
