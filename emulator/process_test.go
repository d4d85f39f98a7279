package emulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testLimit bounds each wait of a test.
const testLimit = time.Minute

// await polls f and fails the test if it does not return nil in time.
func await(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	if err := poll(ctx, f); err != nil {
		t.Fatal(err)
	}
}

// member is a process of a group.
type member struct {
	pid  int
	args string
}

// group lists the processes of a group without its zombies.
func group(ctx context.Context, pgid int) ([]member, error) {
	out, err := exec.CommandContext(ctx, "/bin/ps", "-A", "-o", "pgid=,pid=,stat=,args=").Output()
	if err != nil {
		return nil, err
	}
	var members []member
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] != strconv.Itoa(pgid) || strings.HasPrefix(f[2], "Z") {
			continue
		}
		pid, err := strconv.Atoi(f[1])
		if err != nil {
			return nil, err
		}
		members = append(members, member{pid, strings.Join(f[3:], " ")})
	}
	return members, nil
}

// groupGone returns an error that names the group's processes.
func groupGone(ctx context.Context, pgid int) error {
	members, err := group(ctx, pgid)
	if err == nil && len(members) > 0 {
		err = fmt.Errorf("group %d still runs: %v", pgid, members)
	}
	return err
}

// memberOf returns the ID of the group's process that runs the program.
func memberOf(t *testing.T, pgid int, program string) int {
	t.Helper()
	members, err := group(t.Context(), pgid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if command, _, _ := strings.Cut(m.args, " "); filepath.Base(command) == program {
			return m.pid
		}
	}
	t.Fatalf("no %s in group %d: %v", program, pgid, members)
	return 0
}

// refuses returns an error while the address accepts connections.
func refuses(ctx context.Context, addr string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		return errors.Join(fmt.Errorf("%s still accepts connections", addr), conn.Close())
	}
	return nil
}

func TestParentKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*testLimit)
	defer cancel()
	parent := exec.CommandContext(ctx, os.Args[0])
	parent.Env = append(os.Environ(), parentRole+"=1")
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var got children
	if err := json.NewDecoder(out).Decode(&got); err != nil {
		t.Fatalf("read the parent's output: %v", errors.Join(err, parent.Wait()))
	}
	for _, pgid := range got.Groups {
		if groupGone(ctx, pgid) == nil {
			t.Fatalf("no process in group %d before the parent is killed", pgid)
		}
	}

	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed"

	for _, pgid := range got.Groups {
		await(t, func(ctx context.Context) error { return groupGone(ctx, pgid) })
	}
	for _, addr := range got.Addresses {
		await(t, func(ctx context.Context) error { return refuses(ctx, addr) })
	}
}

func startScript(t *testing.T, script string) *Process {
	t.Helper()
	p, err := startProcess(t.Context(), nil, "", "/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestProcessEndsByItself(t *testing.T) {
	t.Parallel()
	p := startScript(t, "sleep 1000 & echo out of memory; exit 7")
	<-p.done
	err := p.Err()
	if !errors.Is(err, errEnded) {
		t.Fatalf("Err = %v, want errEnded", err)
	}
	for _, want := range []string{"out of memory", "exit status 7"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Err = %q, want %q in it", err, want)
		}
	}
	// Its child, too.
	await(t, func(ctx context.Context) error { return groupGone(ctx, p.pgid) })
}

func TestProcessClose(t *testing.T) {
	t.Parallel()
	p := startScript(t, "trap '' TERM INT HUP; sleep 1000 & sleep 1000")
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-p.done:
	default:
		t.Error("done is open after Close")
	}
	if err := p.Err(); err != nil {
		t.Errorf("Err = %v after Close, want nil", err)
	}
	await(t, func(ctx context.Context) error { return groupGone(ctx, p.pgid) })
}

func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	p := startScript(t, "sleep 1000")
	if err := syscall.Kill(p.pgid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, func(ctx context.Context) error { return groupGone(ctx, p.pgid) })
}

func TestPollReturnsCauseAndLastError(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("no answer within 1m0s")
	var calls int
	err := poll(ctx, func(ctx context.Context) error {
		if calls++; calls == 1 {
			return refused
		}
		cancel(cause)
		return ctx.Err()
	})
	if !errors.Is(err, cause) || !errors.Is(err, refused) {
		t.Errorf("poll = %v, want %v and %v", err, cause, refused)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	tl := new(tail)
	for i := range 5000 {
		_, _ = fmt.Fprintf(tl, "line %d\n", i)
	}
	if got := tl.String(); len(got) > tailSize || !strings.HasSuffix(got, "line 4999") {
		t.Errorf("kept %d bytes that end in %q", len(got), got[max(0, len(got)-20):])
	}
}
