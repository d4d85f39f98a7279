package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// childCommand is the first argument of a child process.
const childCommand = "child"

// runChild settles a message and prints the outcome. The arguments after childCommand
// are the contender's key, the name of its database in the Spanner emulator or its
// PostgreSQL connection string, the emulator's host:port, and the message.
func runChild(ctx context.Context, args []string) (exitCode int) {
	outcome, err := settleAsChild(ctx, args[0], args[1], args[2], []byte(args[3]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return term.ExitError
	}
	fmt.Print(outcome)
	return term.ExitOK
}

func settleAsChild(ctx context.Context, key, database, spanner string, message []byte) (settle.Outcome, error) {
	chosen, err := contender.Find(key)
	if err != nil {
		return settle.OutcomeUnknown, err
	}
	place := contender.Place{Database: database, Emulator: spanner, Now: time.Now}
	settler, err := chosen.Open(ctx, place) // ends with the process
	if err != nil {
		return settle.OutcomeUnknown, err
	}
	return settler.Settle(ctx, message)
}

// killer counts the steps of a child process at a proxy, and kills the process at one of
// them.
type killer struct {
	at int // counted from 1; 0 means never

	mu      sync.Mutex
	process *os.Process
	steps   int
	point   string // name of the step of the kill
}

// settle runs a child, which is this program, with the arguments of runChild. The outcome
// is empty after a kill.
func (k *killer) settle(ctx context.Context, args ...string) (outcome string, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, slices.Concat([]string{childCommand}, args)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	k.mu.Lock() // the first step waits for the process
	err = cmd.Start()
	k.process = cmd.Process
	k.mu.Unlock()
	if err == nil {
		err = cmd.Wait()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.point != "" && err != nil:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("%w\n%s", err, stderr.String())
	}
	return stdout.String(), nil
}

// turn is the name of every step of a protocol whose steps have no names of their own.
const turn = "turn"

// step counts a step before the proxy forwards it.
func (k *killer) step(name string) (forward bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.point != "" {
		return false // killed
	}
	k.steps++
	if k.steps != k.at {
		return true
	}
	k.point = name
	if name == turn {
		k.point = fmt.Sprintf("%s %d", turn, k.steps)
	}
	_ = k.process.Kill() // an error means that it has ended
	return false
}
