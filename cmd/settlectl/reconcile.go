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
	"github.com/settleonce/settleonce/internal/term"
)

const (
	// reconcileLimit is the number of due instructions that a run reads at a time.
	reconcileLimit = 1000
	// reconcileConcurrency is small because the reconciler runs at the same time.
	reconcileConcurrency = 8
)

// stepReport is the answer of reconcile about one settlement.
type stepReport struct {
	SettlementID string                  `json:"settlement_id"`
	Stepped      bool                    `json:"stepped"`
	Why          string                  `json:"why,omitzero"` // no step was made
	Before       instructionAt           `json:"before"`
	After        instructionAt           `json:"after"`
	Events       []spannerstore.EventRow `json:"events"`
}

// instructionAt is an instruction at one moment.
type instructionAt struct {
	State       transfer.State `json:"state"`
	Version     int64          `json:"version"`
	Sends       int64          `json:"sends"`
	NextCheckAt time.Time      `json:"next_check_at,omitzero"`
}

const reconcileHelp = `reconcile makes the step of a due instruction that the reconciler makes every
minute. It is safe to run beside the reconciler. An instruction that is not due
stays as it is. Warning: the command can send the transfer, which moves money.

` + bankHelp + `

Exit codes: 130 interrupted, and
  0  the step was made; with --due, no step failed
  1  ID is not due; with --due, a step failed
  1  an instruction became manual, or the bank's answer has severity CRITICAL
  2  usage error, no connection, rejected credentials, or a failed step of ID
  3  no such settlement`

func newReconcile(s streams) *cobra.Command {
	var (
		o    = operation{streams: s}
		from bankFlags
		due  bool
	)
	cmd := &cobra.Command{
		Use:   "reconcile ID|--due",
		Short: "Run the next step of a due bank instruction",
		Long:  reconcileHelp,
		Example: `  settlectl reconcile stl-8484 \
    --function projects/p/locations/europe-west1/functions/settle-payout
  settlectl reconcile --due --json --bank-from-environment`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(oneOf(args, "ID", due, "--due"), o.database.check(), from.check(o.database), o.output.check()); err != nil {
				return err
			}
			b, err := from.open(cmd.Context(), s, o.database)
			if err != nil {
				return err
			}
			if b.bank == nil {
				return errNoBank
			}
			return o.changeWithBank(cmd.Context(), strings.Join(args, ""), b, func(ctx context.Context, by *ledger.Operator) error {
				stepper, alarms := b.stepper(s, by.Store)
				var err error
				if due {
					err = o.reconcileDue(ctx, stepper, alarms)
				} else {
					err = o.reconcileOne(ctx, by, stepper, alarms, args[0])
				}
				if authErr := b.auth.err(); authErr != nil {
					return authErr
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&due, "due", false, "every due instruction")
	o.register(cmd, outputTable, outputJSON)
	from.register(cmd)
	return cmd
}

func (o *operation) reconcileOne(ctx context.Context, by *ledger.Operator, stepper *transfer.Stepper, alarms *atomic.Int64, id string) error {
	done, err := by.Step(ctx, stepper, id)
	idle := errors.Is(err, transfer.ErrNotDue) || errors.Is(err, transfer.ErrLeaseLost)
	if err != nil && !idle {
		return err
	}
	report := stepReport{SettlementID: id, Stepped: !idle, Before: instructionOf(done.Before), After: instructionOf(done.After), Events: done.Events}
	if idle {
		if report.Why = ledger.WhyNotDue(done.After, o.now()); report.Why == "" {
			report.Why = "another step held it"
		}
	}
	if err := o.print(report, report.facts); err != nil {
		return err
	}
	if idle {
		return noWith("no step was made: %s", report.Why)
	}
	became := 0
	if done.After.State == transfer.StateManual {
		became = 1
	}
	return needsPerson(became, alarms)
}

// needsPerson returns an error for steps that a person must look at, because no alert
// reads the log of this program.
func needsPerson(manual int, alarms *atomic.Int64) error {
	var why []string
	if manual > 0 {
		why = append(why, fmt.Sprintf("%d became manual and wait for a decision", manual))
	}
	if alarms.Load() > 0 {
		why = append(why, "severity CRITICAL: the bank's answer contradicts the ledger, and the bank may have paid twice")
	}
	if len(why) == 0 {
		return nil
	}
	return noWith("a person must look: %s; run settlectl list manual and settlectl show", strings.Join(why, "; "))
}

func instructionOf(in transfer.Instruction) instructionAt {
	return instructionAt{State: in.State, Version: in.Version, Sends: in.Sends, NextCheckAt: in.NextCheckAt}
}

func (a instructionAt) words() string {
	return fmt.Sprintf("%s, version %d, sends %d, next check %s", a.State, a.Version, a.Sends, clockOrNever(a.NextCheckAt))
}

func (r stepReport) facts() [][2]string {
	facts := [][2]string{{"settlement", r.SettlementID}, {"before", r.Before.words()}}
	for _, e := range r.Events {
		words := fmt.Sprintf("%s: %s → %s", e.Event.Cause, e.Event.From, e.Event.To)
		if e.Event.HTTPStatus != 0 {
			words += ", HTTP " + strconv.Itoa(e.Event.HTTPStatus)
		}
		if e.Event.Detail != "" {
			words += ": " + e.Event.Detail
		}
		facts = append(facts, [2]string{"event " + strconv.FormatInt(e.Version, 10), words})
	}
	return append(facts, [2]string{"after", r.After.words()})
}

func (o *operation) reconcileDue(ctx context.Context, stepper *transfer.Stepper, alarms *atomic.Int64) error {
	reconciler := transfer.Reconciler{
		Store: stepper.Store, Banking: stepper, Now: o.now, Limit: reconcileLimit, Concurrency: reconcileConcurrency, Margin: stepper.Longest(),
	}
	run, err := reconciler.Reconcile(ctx)
	if err != nil {
		return err
	}
	if err := o.print(run, func() [][2]string { return runFacts(run) }); err != nil {
		return err
	}
	manual := needsPerson(run.States[transfer.StateManual], alarms)
	switch {
	case run.Failed > 0:
		failed := fmt.Errorf("%s failed, with the reason above; the next run tries again", counted(run.Failed, "step"))
		return &term.CodedError{Code: term.ExitNo, Err: errors.Join(failed, manual)}
	case manual != nil:
		return manual
	}
	return ctx.Err()
}

func runFacts(r transfer.Reconciled) [][2]string {
	var states []string
	for _, state := range slices.Sorted(maps.Keys(r.States)) {
		states = append(states, fmt.Sprintf("%d %s", r.States[state], state))
	}
	if len(states) == 0 {
		states = []string{"none"}
	}
	return [][2]string{
		{"due", strconv.Itoa(r.Due)},
		{"states after", strings.Join(states, ", ")},
		{"skipped", fmt.Sprintf("%d, held by another step", r.Skipped)},
		{"failed", strconv.Itoa(r.Failed)},
		{"left", strconv.Itoa(r.Left)},
		{"manual", fmt.Sprintf("%d in all, waiting for two people", r.Manual)},
		{"next due", clockOrNever(r.NextDue)},
	}
}
