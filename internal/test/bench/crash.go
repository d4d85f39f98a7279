package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// measureCrashes kills processes at every step of a delivery in turn, delivers their
// messages again, and counts the movements. It measures no times, so contenders run
// concurrently.
func (r *run) measureCrashes(ctx context.Context) error {
	results := make([]crashes, len(r.contenders))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for i, c := range r.contenders {
		group.Go(func() error {
			err := r.withFixture(ctx, c, &network{}, func(f *fixture) (err error) {
				results[i], err = f.crash(ctx)
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	table := r.report.Table(titleCrashes)
	for i, c := range r.contenders {
		result := results[i]
		table.Add("kills", float64(r.sizes.kills), c.Name)
		table.Add("correct", float64(result.correct), c.Name)
		table.Add("lost", float64(result.lost), c.Name)
		table.Add("doubled", float64(result.doubled), c.Name)
		table.Add("waited", float64(result.waited), c.Name)
		table.Text("steps", result.text(), c.Name)
	}
	return nil
}

// crashes is a contender's result. Message(1) to Message(kills) are those of the kills.
type crashes struct {
	correct, lost, doubled, waited int
	steps                          map[string]int // kills by step, such as "before Commit"
}

// text lists the steps and the number of their kills.
func (c crashes) text() string {
	var list []string
	for _, step := range slices.Sorted(maps.Keys(c.steps)) {
		list = append(list, fmt.Sprintf("%s %d", step, c.steps[step]))
	}
	return strings.Join(list, ", ")
}

func (f *fixture) crash(ctx context.Context) (crashes, error) {
	result := crashes{steps: map[string]int{}}
	undisturbed, err := f.settleInChild(ctx, 0, noKill)
	if err != nil {
		return crashes{}, err
	}
	for i := range f.run.sizes.kills {
		// The emulator keeps a dead process's transaction until the next one. This event
		// ends it, so that the next process does not need additional steps for that.
		if _, err := f.settle(ctx, fresh, f.run.number()); err != nil {
			return crashes{}, fmt.Errorf("before kill %d: %w", i+1, err)
		}
		killed, err := f.settleInChild(ctx, 1+i, 1+i%undisturbed.Steps)
		if err != nil {
			return crashes{}, fmt.Errorf("kill %d: %w", i+1, err)
		}
		result.steps[killed.Killed]++
	}
	if result.waited, err = f.redeliver(ctx); err != nil {
		return crashes{}, fmt.Errorf("redeliver: %w", err)
	}
	movements, err := f.client.Movements(ctx)
	for i := range f.run.sizes.kills {
		switch movements[contender.SettlementID(1+i)] {
		case 0:
			result.lost++
		case 1:
			result.correct++
		default:
			result.doubled++
		}
	}
	return result, err
}

// redeliver delivers the messages of the kills again. A contender may reject a message as
// in progress; waited counts these. They are delivered once more after the expiry.
func (f *fixture) redeliver(ctx context.Context) (waited int, err error) {
	var rejected []settle.Delivery
	for i := range f.run.sizes.kills {
		message := contender.Message(1 + i)
		_, err := f.client.Settle(ctx, message)
		switch {
		case errors.Is(err, contender.ErrInProgress):
			rejected = append(rejected, message)
		case err != nil:
			return 0, err
		}
	}
	place := f.run.place(f.database, f.network)
	place.Now = func() time.Time { return time.Now().Add(2 * contender.InProgressExpiry) }
	later, err := f.Open(ctx, place)
	if err != nil {
		return 0, err
	}
	defer later.Close()
	for _, message := range rejected {
		if _, err := later.Settle(ctx, message); err != nil {
			return 0, err
		}
	}
	return len(rejected), nil
}

// childCommand is the first argument of a child process.
const childCommand = "child"

// noKill is the step of a kill that does not happen. Steps count from 1.
const noKill = 0

// childResult is the output of a child process.
type childResult struct {
	// Killed is the name of the step of the kill; empty without one.
	Killed string
	// Outcome and Steps are those of a delivery without a kill.
	Outcome string
	Steps   int
}

// settleInChild settles Message(n) in a new process, which is killed at the given step.
func (f *fixture) settleInChild(ctx context.Context, n, killAt int) (result childResult, err error) {
	program, err := os.Executable()
	if err != nil {
		return childResult{}, err
	}
	place := f.run.place(f.database, f.network)
	cmd := exec.CommandContext(ctx, program, childCommand, f.Name, place.Database, place.Emulator, strconv.Itoa(n), strconv.Itoa(killAt))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, runErr := cmd.Output() // an error is expected of a kill
	if err := json.Unmarshal(out, &result); err != nil {
		return childResult{}, fmt.Errorf("child: %w\n%s", errors.Join(err, runErr), stderr.String())
	}
	if (killAt == noKill) != (result.Killed == "") || killAt == noKill && result.Outcome != settle.OutcomeApplied.String() {
		return childResult{}, fmt.Errorf("the child with a kill at step %d ended with %+v", killAt, result)
	}
	return result, nil
}

// runChild settles a message and prints the result. The arguments after childCommand
// are the contender's name, its database, the emulator's host:port, the number of the
// message, and the step of the kill.
func runChild(ctx context.Context, args []string) (exitCode int) {
	result, err := settleAsChild(ctx, args)
	if err == nil {
		err = json.MarshalWrite(os.Stdout, result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return term.ExitError
	}
	return term.ExitOK
}

func settleAsChild(ctx context.Context, args []string) (result childResult, err error) {
	chosen, err := contender.Find(args[0])
	number, numberErr := strconv.Atoi(args[3])
	killAt, killErr := strconv.Atoi(args[4])
	if err := errors.Join(err, numberErr, killErr); err != nil {
		return childResult{}, err
	}
	var mu sync.Mutex
	n := &network{byTurn: chosen.Postgres}
	n.step = func(name string) {
		mu.Lock()
		defer mu.Unlock()
		if result.Steps++; result.Steps == killAt {
			_ = json.MarshalWrite(os.Stdout, childResult{Killed: name})
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	place := contender.Place{Database: args[1], Emulator: args[2], Dial: n.dial, Options: n.options(), Now: time.Now}
	settler, err := chosen.Open(ctx, place) // ends with the process
	if err != nil {
		return childResult{}, err
	}
	outcome, err := settler.Settle(ctx, contender.Message(number))
	mu.Lock()
	defer mu.Unlock()
	result.Outcome = outcome.String()
	return result, err
}
