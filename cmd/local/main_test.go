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

	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/child"
)

// asMain makes the test binary run as the program. The functions are registered and
// configured once a process, so each system needs a process of its own.
const asMain = "SETTLEONCE_TEST_LOCAL_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) == "" {
		os.Exit(m.Run())
	}
	child.ExitWithParent()
	main()
}

// childLimit bounds a child process, which starts two emulators while other tests
// start theirs.
const childLimit = 90 * time.Second

// startLocal returns a command that runs the program and ends with this process. Its
// environment is this process's without running emulators, and env.
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
	if _, err := child.BindToParent(cmd); err != nil {
		t.Fatal(err)
	}
	return cmd, stderr
}

// exitCode returns the exit code in the error of a command.
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

// local runs the program in this process, up to the start of the functions.
func local(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, term.Streams{Out: &o, Err: &e})
	return code, o.String(), e.String()
}

// withoutEmulators hides all emulators and the programs that start them.
func withoutEmulators(t *testing.T) {
	t.Helper()
	for _, name := range []string{"PATH", "SPANNER_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST", "CLOUDSDK_ROOT_DIR", "JAVA_HOME"} {
		t.Setenv(name, "")
	}
}

func TestExitCodes(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	withoutEmulators(t)
	tests := []struct {
		args string
		code int
		text string
	}{
		{"--nonsense", 2, "local: unknown flag: --nonsense\nSee 'go run ./cmd/local --help'.\n"},
		{"demo --nonsense", 2, "local: unknown flag: --nonsense\nSee 'go run ./cmd/local demo --help'.\n"},
		{"--reconcile-every soon", 2, `"soon" for "--reconcile-every"`},
		{"now", 2, `unknown command "now"`},
		{"demo now", 2, `unknown command "now"`},
		{"--listen 0.0.0.0:0", 2, "127.0.0.1:PORT"},
		{"--listen 8080", 2, "127.0.0.1:PORT"},
		{"--reconcile-every 0s", 2, "--reconcile-every is 0s"},
		{"--topic ab", 2, `--topic is "ab"`},
		{"--topic payouts", 2, `--topic is "payouts"`},
		{"--topic claims --topic claims", 2, `--topic is "claims"`},
		{"--listen " + l.Addr().String(), 1, l.Addr().String()},
		{"--listen 127.0.0.1:0", 1, "no emulator found"},
		{"demo", 1, "no emulator found"},
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

// readReady reads the ready line, and discards the rest of the stream.
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

// eventually polls until done returns true, for at most 30 s.
func eventually(t *testing.T, event string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); !done(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for: %s", event)
		}
	}
}

// wantRefused checks that no server listens on an address.
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
