package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// decision is the answer of decide.
type decision struct {
	SettlementID string            `json:"settlement_id"`
	Decision     transfer.Decision `json:"decision"`
	Verdict      string            `json:"verdict"` // made, made before, would be made or refused
	FromState    transfer.State    `json:"from_state"`
	ToState      transfer.State    `json:"to_state,omitzero"`
	Version      int64             `json:"version"`
	Bank         *bankStatus       `json:"bank,omitzero"`
	Key          string            `json:"idempotency_key,omitzero"`
	Reversed     bool              `json:"reversed"`
	NextCheckAt  time.Time         `json:"next_check_at,omitzero"`
	Why          string            `json:"why,omitzero"`
	Do           string            `json:"do,omitzero"`
}

// bankStatus is the bank's answer about the transfer.
type bankStatus struct {
	Reading string `json:"reading"`
	transfer.BankAnswer
}

const (
	verdictMade       = "made"
	verdictMadeBefore = "made before"
	verdictWouldBe    = "would be made"
)

const decideHelp = `decide records the decision of two people about a manual instruction, and their
evidence. It makes a status check first. It refuses a decision that the bank's
answer contradicts, and names the next step. Put no payload into --note: the
note is kept forever. You can repeat the command after a lost answer.

` + bankHelp + `

Exit codes: 0 recorded, or with --dry-run it would be, 1 refused, 2 usage error
or no connection, 3 no such settlement, 130 interrupted.`

func newDecide(s streams) *cobra.Command {
	var (
		o    = operation{streams: s}
		from bankFlags
		v    ledger.Verdict
		is   [2]bool
	)
	cmd := &cobra.Command{
		Use:   "decide ID --confirmed|--rejected",
		Short: "Record a decision about a manual bank instruction",
		Long:  decideHelp,
		Example: `  settlectl decide stl-8491 --rejected \
    --by ines@example.com --second bert@example.com \
    --note "bank's letter of 2026-11-30, ref 4711: not executed" \
    --function projects/p/locations/europe-west1/functions/settle-payout`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(o.database.check(), from.check(o.database), o.output.check(), checkText(cmd, "by", "second", "note")); err != nil {
				return err
			}
			for i, d := range []transfer.Decision{transfer.DecideConfirmed, transfer.DecideRejected} {
				if is[i] {
					v.Decision = d
				}
			}
			b, err := from.open(cmd.Context(), s, o.database)
			if err != nil {
				return err
			}
			if b.bank == nil && !v.WithoutBank {
				return fmt.Errorf("%w, or give --without-bank", errNoBank)
			}
			v.Remark = b.auth.remark
			return o.changeWithBank(cmd.Context(), args[0], b, func(ctx context.Context, by *ledger.Operator) error {
				err := o.decide(ctx, by, args[0], v)
				if authErr := b.auth.err(); authErr != nil && err != nil {
					return authErr
				}
				return err
			})
		},
	}
	registerDecision(cmd, &v, &is)
	o.register(cmd, outputTable, outputJSON)
	from.register(cmd)
	return cmd
}

func registerDecision(cmd *cobra.Command, v *ledger.Verdict, is *[2]bool) {
	cmd.Flags().BoolVar(&is[0], "confirmed", false, "the bank executed the transfer")
	cmd.Flags().BoolVar(&is[1], "rejected", false, "the bank will never execute the transfer, or returned it")
	cmd.MarkFlagsOneRequired("confirmed", "rejected")
	cmd.MarkFlagsMutuallyExclusive("confirmed", "rejected")
	cmd.Flags().StringVar(&v.By, "by", "", "`person` who decides (required)")
	cmd.Flags().StringVar(&v.Second, "second", "", "second `person`, who agrees (required)")
	cmd.Flags().StringVar(&v.Note, "note", "", "`evidence`, in one line (required)")
	require(cmd, "by", "second", "note")
	cmd.Flags().BoolVar(&v.WithoutBank, "without-bank", false, "decide although the bank is unreachable; give the reason in the note")
	cmd.Flags().BoolVar(&v.DryRun, "dry-run", false, "ask the bank and print the result, and record nothing")
}

// decide prints the bank's answer also if it refuses the decision.
func (o *operation) decide(ctx context.Context, by *ledger.Operator, id string, v ledger.Verdict) error {
	c, err := by.Open(ctx, id)
	if err != nil {
		return err
	}
	d := decision{
		SettlementID: id, Decision: v.Decision, FromState: c.Instruction.State, Version: c.Instruction.Version,
		Key: c.Instruction.Transfer.Key.String(), Reversed: c.Reversed, Verdict: verdictRefused,
	}
	if c.Asked {
		d.Bank = &bankStatus{c.Said.Reading.String(), c.Said.Answer}
	}
	after, made, err := by.Decide(ctx, c, v)
	objection, refused := errors.AsType[*transfer.Refused](err)
	switch {
	case refused:
		d.Why, d.Do = objection.Why, objection.Do
	case err != nil:
		return err
	default:
		d.tell(c, after, made, v.DryRun)
	}
	if printErr := o.print(d, func() [][2]string { return d.facts(c) }); printErr != nil {
		return printErr
	}
	return err // nil, or the objection
}

// tell adds the instruction after the decision.
func (d *decision) tell(c ledger.Case, after transfer.Instruction, made, dry bool) {
	switch {
	case made:
		d.Verdict = verdictMade
	case dry && after.Version > c.Instruction.Version:
		d.Verdict = verdictWouldBe
	default:
		d.Verdict, d.FromState = verdictMadeBefore, c.Decided.From
	}
	d.ToState, d.Version, d.NextCheckAt = after.State, after.Version, after.NextCheckAt
	d.Reversed = c.Reversed || after.State == transfer.StateRejected || after.State == transfer.StateReturned
}

func (d *decision) facts(c ledger.Case) [][2]string {
	status := "not asked"
	if d.Bank != nil {
		status = d.Bank.words() + ", key " + d.Key
	}
	facts := [][2]string{
		{"settlement", d.SettlementID},
		{"state before", fmt.Sprintf("%s, version %d, since %s", c.Instruction.State, c.Instruction.Version, clockOrNever(c.Last.RecordedAt))},
		{"cause", c.Last.Event.Detail},
		{"bank status", status},
		{"decision", fmt.Sprintf("%s: %s", d.Decision, d.Verdict)},
	}
	if d.ToState != "" {
		facts = append(facts, d.outcome()...)
	}
	return facts
}

// words formats the answer for a person.
func (b bankStatus) words() string {
	text := b.Reading
	if b.Status != "" {
		text += " (" + b.Status + ")"
	}
	if b.TransferID != "" {
		text += ", transfer " + b.TransferID
	}
	if b.HTTPStatus != 0 {
		text += ", HTTP " + strconv.Itoa(b.HTTPStatus)
	}
	if b.Detail != "" {
		text += ": " + b.Detail
	}
	return text
}

func (d *decision) outcome() [][2]string {
	facts := [][2]string{{"state after", fmt.Sprintf("%s, version %d", d.ToState, d.Version)}}
	if d.Reversed {
		facts = append(facts, [2]string{"movement", "reversed"})
	}
	return append(facts, [2]string{"next check", clockOrNever(d.NextCheckAt)})
}
