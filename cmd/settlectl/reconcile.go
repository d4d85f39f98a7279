package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

const (
	// reconcileListed bounds the instructions that a run lists at once, reconcileAtOnce
	// those that it works on at once: a person beside the reconciler, not in its place.
	reconcileListed = 1000
	reconcileAtOnce = 8
)

// stepReport is the answer of reconcile about one settlement.
type stepReport struct {
	SettlementID string        `json:"settlement_id"`
	Stepped      bool          `json:"stepped"`
	Why          string        `json:"why,omitzero"` // nothing was done
	Before       instructionAt `json:"before"`
	After        instructionAt `json:"after"`
	Events       []stepEvent   `json:"events"`
}

// instructionAt is an instruction at one moment.
type instructionAt struct {
	State       transfer.State `json:"state"`
	Version     int64          `json:"version"`
	Sends       int64          `json:"sends"`
	NextCheckAt time.Time      `json:"next_check_at,omitzero"`
}

type stepEvent struct {
	Version    int64          `json:"version"`
	At         time.Time      `json:"recorded_at"`
	From       transfer.State `json:"from_state"`
	To         transfer.State `json:"to_state"`
	Cause      string         `json:"cause"`
	HTTPStatus int            `json:"http_status,omitzero"`
	Detail     string         `json:"detail,omitzero"`
}

// runReport is the answer of reconcile --due.
type runReport struct {
	Due             int                    `json:"due"`
	States          map[transfer.State]int `json:"states"`
	Skipped         int                    `json:"skipped"`
	Failed          int                    `json:"failed"`
	Left            int                    `json:"left"`
	OldestUncertain int64                  `json:"oldest_uncertain_seconds"`
	Manual          int                    `json:"manual"` // all that wait for a person
	NextDue         time.Time              `json:"next_due,omitzero"`
}

func newReconcile(s streams) *cobra.Command {
	var (
		database databaseFlags
		from     bankFlags
		output   outputFlags
		due      bool
	)
	cmd := &cobra.Command{
		Use:   "reconcile ID|--due",
		Short: "Take a bank instruction that is due a step further, now",
		Long: `reconcile does now what the reconciler does every minute: it leases an
instruction that is due, asks the bank about it or sends it, and records what
came of it. It shows the instruction before and after. With --due it does so
with every instruction that is due. A run beside the reconciler's is harmless.

An instruction that is not due stays as it is, and the command says when it will
be: asking earlier brings nothing, or is not safe yet.

It can send to the bank.

` + bankHelp + `
` + changeHelp + `
` + roleHelp + `

Exit codes: 0 a step was made, with --due none failed; 1 not due, or a step
failed with --due, or somebody has to look: an instruction became manual, or the
bank's answer is of severity CRITICAL; 2 wrong usage or no connection, the step
failed, or the bank does not let you in; 3 no such settlement, 130 interrupted.`,
		Example: `  settlectl reconcile stl-8484 \
    --function projects/p/locations/europe-west1/functions/settle-payout
  settlectl reconcile --due --json --bank-from-environment`,
		Args:              argumentOr("ID", "due"),
		ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(*cobra.Command, []string) error {
			return errors.Join(database.check(), from.check(database), output.check())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := from.open(cmd.Context(), s, database)
			if err != nil {
				return err
			}
			if b.bank == nil {
				return errNoBankHere
			}
			return banked(cmd.Context(), s, database, strings.Join(args, ""), b, func(ctx context.Context, o *ledger.Operator) error {
				stepper, alarms := b.stepper(s, o.Store)
				var err error
				if due {
					err = reconcileDue(ctx, s, output.form, stepper, alarms)
				} else {
					err = reconcileOne(ctx, s, output.form, o, stepper, alarms, args[0])
				}
				if shut := b.door.err(); shut != nil {
					return shut
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&due, "due", false, "every instruction that is due")
	database.register(cmd, s)
	from.register(cmd)
	output.register(cmd, outputTable, outputJSON)
	return cmd
}

func reconcileOne(ctx context.Context, s streams, form string, o *ledger.Operator, stepper *transfer.Stepper, alarms *atomic.Int64, id string) error {
	done, err := o.Step(ctx, stepper, id)
	idle := errors.Is(err, transfer.ErrNotDue) || errors.Is(err, transfer.ErrLeaseLost)
	if err != nil && !idle {
		return err
	}
	report := stepReport{SettlementID: id, Stepped: !idle, Before: instructionOf(done.Before), After: instructionOf(done.After), Events: stepEvents(done.Events)}
	if idle {
		if report.Why = ledger.WhyNotDue(done.After, s.now()); report.Why == "" {
			report.Why = "another step was working on it"
		}
	}
	if err := report.print(s, form); err != nil {
		return err
	}
	if idle {
		return &codedError{code: exitNo, err: fmt.Errorf("nothing was done: %s", report.Why)}
	}
	became := 0
	if done.After.State == transfer.StateManual {
		became = 1
	}
	return needsPerson(became, alarms)
}

// needsPerson is the error of steps that somebody has to look at: those of this
// program are in no log that an alert is made from.
func needsPerson(manual int, alarms *atomic.Int64) error {
	var why []string
	if manual > 0 {
		why = append(why, fmt.Sprintf("%d became manual, and nothing moves by itself any more", manual))
	}
	if alarms.Load() > 0 {
		why = append(why, "severity CRITICAL: what the bank says does not fit what is recorded, and it may have paid twice")
	}
	if len(why) == 0 {
		return nil
	}
	return &codedError{code: exitNo, err: fmt.Errorf("somebody has to look: %s; see it with settlectl list manual and settlectl show", strings.Join(why, "; "))}
}

func instructionOf(in transfer.Instruction) instructionAt {
	return instructionAt{State: in.State, Version: in.Version, Sends: in.Sends, NextCheckAt: in.NextCheckAt}
}

func (a instructionAt) words() string {
	return fmt.Sprintf("%s, version %d, sends %d, next check %s", a.State, a.Version, a.Sends, instant(a.NextCheckAt))
}

func stepEvents(events []spannerstore.EventRow) []stepEvent {
	all := []stepEvent{}
	for _, e := range events {
		all = append(all, stepEvent{e.Version, e.RecordedAt, e.Event.From, e.Event.To, e.Event.Cause, e.Event.HTTPStatus, e.Event.Detail})
	}
	return all
}

func (r stepReport) print(s streams, form string) error {
	if form == outputJSON {
		return printJSON(s.out, r)
	}
	facts := [][2]string{{"settlement", r.SettlementID}, {"before", r.Before.words()}}
	for _, e := range r.Events {
		words := fmt.Sprintf("%s: %s → %s", e.Cause, e.From, e.To)
		if e.HTTPStatus != 0 {
			words += ", HTTP " + strconv.Itoa(e.HTTPStatus)
		}
		if e.Detail != "" {
			words += ": " + e.Detail
		}
		facts = append(facts, [2]string{"event " + strconv.FormatInt(e.Version, 10), words})
	}
	return printFacts(s, append(facts, [2]string{"after", r.After.words()}))
}

func reconcileDue(ctx context.Context, s streams, form string, stepper *transfer.Stepper, alarms *atomic.Int64) error {
	reconciler := transfer.Reconciler{
		Store: stepper.Store, Banking: stepper, Now: s.now, Limit: reconcileListed, Concurrency: reconcileAtOnce, Margin: stepper.Longest(),
	}
	run, err := reconciler.Reconcile(ctx)
	if err != nil {
		return err
	}
	report := runReport{
		Due: run.Due, States: run.States, Skipped: run.Skipped, Failed: run.Failed, Left: run.Left,
		OldestUncertain: run.OldestUncertainSeconds, Manual: run.Manual, NextDue: run.NextDue,
	}
	if err := report.print(s, form); err != nil {
		return err
	}
	manual := needsPerson(run.States[transfer.StateManual], alarms)
	switch {
	case run.Failed > 0:
		failed := fmt.Errorf("%s failed; %s named above, and the next run tries again", counted(run.Failed, "step"), oneOr(run.Failed, "it is", "they are"))
		return &codedError{code: exitNo, err: errors.Join(failed, manual)}
	case manual != nil:
		return manual
	}
	return ctx.Err()
}

func (r runReport) print(s streams, form string) error {
	if form == outputJSON {
		return printJSON(s.out, r)
	}
	var states []string
	for _, state := range slices.Sorted(maps.Keys(r.States)) {
		states = append(states, fmt.Sprintf("%d %s", r.States[state], state))
	}
	if len(states) == 0 {
		states = []string{"none"}
	}
	return printFacts(s, [][2]string{
		{"due", strconv.Itoa(r.Due)},
		{"now", strings.Join(states, ", ")},
		{"skipped", fmt.Sprintf("%d, which another step was working on", r.Skipped)},
		{"failed", strconv.Itoa(r.Failed)},
		{"left", strconv.Itoa(r.Left)},
		{"manual", fmt.Sprintf("%d in all, which wait for a person", r.Manual)},
		{"next due", instant(r.NextDue)},
	})
}
