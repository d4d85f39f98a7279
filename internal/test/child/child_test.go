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

// role selects whether the test binary is the parent that the test kills, or its child.
const role = "CHILD_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "parent":
		fmt.Fprintln(os.Stderr, runParent())
		os.Exit(1)
	case "child":
		child.ExitWithParent()
		time.Sleep(time.Hour) // without a timer the runtime would report a deadlock
	}
	os.Exit(m.Run())
}

// runParent starts a child that shares its standard output, prints the child's process
// ID there, and waits.
func runParent() error {
	cmd := command(context.Background(), "child")
	cmd.Stdout = os.Stdout
	if _, err := child.BindToParent(cmd); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println(cmd.Process.Pid)
	return cmd.Wait()
}

func command(ctx context.Context, as string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), role+"="+as)
	return cmd
}

// The output that parent and child share ends when both have ended.
func TestChildExitsWhenItsParentIsKilled(t *testing.T) {
	t.Parallel()
	parent := command(t.Context(), "parent")
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
	if err := shared.Close(); err != nil { // parent and child have it open
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
