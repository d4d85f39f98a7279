package child_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/test/child"
)

// role makes the test binary the parent that is killed, or its child.
const role = "LIFELINE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "parent":
		fmt.Fprintln(os.Stderr, beParent())
		os.Exit(1)
	case "child":
		child.Follow()
		time.Sleep(time.Hour) // or until it is ended; without a timer Go would call it a deadlock
	}
	os.Exit(m.Run())
}

// beParent starts a child with its own standard output, prints the child's process
// ID there, and waits to be killed.
func beParent() error {
	cmd := as(context.Background(), "child")
	cmd.Stdout = os.Stdout
	if _, err := child.Tie(cmd); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println(cmd.Process.Pid)
	return cmd.Wait()
}

func as(ctx context.Context, what string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), role+"="+what)
	return cmd
}

// TestAKilledParentTakesItsChildAlong sees the child's end by that of the output
// that it shares with its parent.
func TestAKilledParentTakesItsChildAlong(t *testing.T) {
	t.Parallel()
	parent := as(t.Context(), "parent")
	parent.Stderr = os.Stderr
	output, shared, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	parent.Stdout = shared
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	if err := shared.Close(); err != nil { // the parent and the child have it
		t.Fatal(err)
	}
	var pid int
	lines := bufio.NewReader(output)
	if _, err := fmt.Fscanln(lines, &pid); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed"
	if err := output.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Errorf("the child %d outlives its parent: %v", pid, err)
		if child, err := os.FindProcess(pid); err == nil {
			_ = child.Kill()
		}
	}
}
