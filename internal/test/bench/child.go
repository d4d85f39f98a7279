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

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// childConfig is the argument of a child process, as JSON.
type childConfig struct {
	Contender string `json:"contender"` // key
	// Database is a name in the Spanner emulator, or a PostgreSQL connection string.
	Database string `json:"database"`
	// Emulator is the host:port of the Spanner emulator.
	Emulator string `json:"emulator"`
	Message  []byte `json:"message"`
}

// settleAsChild settles the message of a childConfig and returns the outcome.
func settleAsChild(ctx context.Context, argument string) (outcome string, err error) {
	var c childConfig
	if err := json.Unmarshal([]byte(argument), &c); err != nil {
		return "", err
	}
	chosen, err := contender.Find(c.Contender)
	if err != nil {
		return "", err
	}
	place := contender.Place{Database: c.Database, NewID: uuid.NewString, Now: time.Now}
	if chosen.System == contender.Spanner {
		place.Emulator = true
		place.Options = (&emulator.Spanner{GRPC: c.Emulator}).ClientOptions()
	}
	settler, err := chosen.Open(ctx, place) // ends with the process
	if err != nil {
		return "", err
	}
	result, err := settler.Settle(ctx, c.Message)
	return result.String(), err
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

// settle runs a child behind the proxy. The outcome is empty after a kill.
func (k *killer) settle(ctx context.Context, command []string, c childConfig) (outcome string, err error) {
	argument, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	command = slices.Concat(command, []string{string(argument)})
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
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
	if k.point = name; name == "turn" {
		k.point = fmt.Sprintf("turn %d", k.steps)
	}
	_ = k.process.Kill() // an error means that it has ended
	return false
}
