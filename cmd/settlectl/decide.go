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

// decision is decide's answer.
type decision struct {
	SettlementID string            `json:"settlement_id"`
	Decision     transfer.Decision `json:"decision"`
	Verdict      string            `json:"verdict"` // made, made before, would be made or refused
	FromState    transfer.State    `json:"from_state"`
	ToState      transfer.State    `json:"to_state,omitzero"`
	Version      int64             `json:"version"`
	Bank         []bankStatus      `json:"bank,omitzero"`
	Key          string            `json:"idempotency_key,omitzero"`
	Reversed     bool              `json:"reversed"`
	NextCheckAt  time.Time         `json:"next_check_at,omitzero"`
	Why          string            `json:"why,omitzero"`
	Do           string            `json:"do,omitzero"`
}

// bankStatus is what the bank said of one key.
type bankStatus struct {
	Key        string `json:"idempotency_key"`
	Superseded bool   `json:"superseded,omitzero"`
	Later      bool   `json:"later,omitzero"` // a key that the database does not know to be used
	Reading    string `json:"reading"`
	HTTPStatus int    `json:"http_status,omitzero"`
	Status     string `json:"status,omitzero"`
	TransferID string `json:"bank_transfer_id,omitzero"`
	Detail     string `json:"detail,omitzero"`
}

const (
	verdictMade       = "made"
	verdictMadeBefore = "made before"
	verdictWouldBe    = "would be made"
)

func newDecide(s streams) *cobra.Command {
	var (
		database databaseFlags
		from     bankFlags
		output   outputFlags
		v        ledger.Verdict
		is       [3]bool
	)
	cmd := &cobra.Command{
		Use:   "decide ID --confirmed|--rejected|--resend-new-key",
		Short: "Decide about a bank instruction that waits for a person",
		Long: `decide records what two people decide about an instruction that is manual, and
what they know it from. It asks the bank's status API first and shows what that
says; a decision that the bank contradicts is refused, and says what to do.

--by and --second are statements that are recorded for an audit. They
authenticate nobody: that the second one has looked is what the first one says.

  --confirmed       the bank executed the transfer, once and as instructed
  --rejected        the bank did not execute it and never will, or sent it back:
                    the movement is reversed, once and for ever
  --resend-new-key  it is to be sent again, under a new idempotency key

"Not found" is no proof that a transfer never will be executed: have the bank
say so in writing, and name the letter in the note, which is kept for ever. Put
no payload into it.

--resend-new-key needs proof that nothing will come of any key that the
instruction had: the bank's status says rejected, or it says not found and the
bank's key lifetime has passed since the latest send. The old keys are asked
about before each send and in every later question; one that turns out to be
alive makes the instruction manual again, severity CRITICAL. Both functions have
to run this version or a later one, or nobody watches the old keys. The send
itself comes with the next run of the reconciler, or with settlectl reconcile.

--rejected and --resend-new-key also ask about the keys that the instruction can
still get, of which the bank must know nothing: after a restore to an earlier
time the database does not know of a key that was used. --confirmed is refused
while the bank says executed or pending of more than one key.

--without-bank decides although the bank's status cannot be learnt; the note has
to say why. What the bank does say counts all the same. It does not go with
--resend-new-key.

` + bankHelp + `
` + changeHelp + `
` + roleHelp + `

The same command again, after an answer that was lost, succeeds and changes
nothing. Exit codes: 0 recorded, or would be with --dry-run, 1 refused, 2 wrong
usage or no connection, 3 no such settlement, 130 interrupted.`,
		Example: `  settlectl decide stl-8491 --rejected \
    --by ines@example.com --second bert@example.com \
    --note "bank's letter of 2026-11-30, ref 4711: never will be executed" \
    --function projects/p/locations/europe-west1/functions/settle-payout
  settlectl decide stl-8491 --confirmed --by ines --second bert \
    --note "statement of 2026-11-30" --bank-from-environment --dry-run`,
		Args:              oneArgument("ID"),
		ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(database.check(), from.check(database), output.check(), requireText(cmd, "by", "second", "note"))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for i, d := range []transfer.Decision{transfer.DecideConfirmed, transfer.DecideRejected, transfer.DecideResend} {
				if is[i] {
					v.Decision = d
				}
			}
			b, err := from.open(cmd.Context(), s, database)
			if err != nil {
				return err
			}
			if b.bank == nil && !v.WithoutBank {
				return fmt.Errorf("%w, or decide --without-bank", errNoBankHere)
			}
			v.Remark = b.remark
			return banked(cmd.Context(), s, database, args[0], b, func(ctx context.Context, o *ledger.Operator) error {
				err := decide(ctx, s, output.form, o, args[0], v)
				if shut := b.door.err(); shut != nil && err != nil {
					return shut
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&is[0], "confirmed", false, "the bank executed it")
	cmd.Flags().BoolVar(&is[1], "rejected", false, "the bank never will execute it, or sent it back")
	cmd.Flags().BoolVar(&is[2], "resend-new-key", false, "send it again under a new idempotency key")
	cmd.MarkFlagsOneRequired("confirmed", "rejected", "resend-new-key")
	cmd.MarkFlagsMutuallyExclusive("confirmed", "rejected", "resend-new-key")
	cmd.Flags().StringVar(&v.By, "by", "", "`who` decides")
	cmd.Flags().StringVar(&v.Second, "second", "", "`who` else has looked at it and agrees")
	cmd.Flags().StringVar(&v.Note, "note", "", "`how` they know, in one line")
	require(cmd, "by", "second", "note")
	cmd.Flags().BoolVar(&v.WithoutBank, "without-bank", false, "decide although the bank cannot be reached; the note says why")
	cmd.Flags().BoolVar(&v.DryRun, "dry-run", false, "ask the bank and say what would be recorded, and record nothing")
	cmd.MarkFlagsMutuallyExclusive("resend-new-key", "without-bank")
	database.register(cmd, s)
	from.register(cmd)
	output.register(cmd, outputTable, outputJSON)
	return cmd
}

// decide prints what the bank says whether or not the decision is made.
func decide(ctx context.Context, s streams, form string, o *ledger.Operator, id string, v ledger.Verdict) error {
	c, err := o.Open(ctx, id)
	if err != nil {
		return err
	}
	d := decision{
		SettlementID: id, Decision: v.Decision, FromState: c.Instruction.State, Version: c.Instruction.Version,
		Bank: bankStatuses(c), Key: c.Instruction.Transfer.Key.String(), Reversed: c.Reversed, Verdict: verdictRefused,
	}
	after, made, err := o.Decide(ctx, c, v)
	objection, refused := errors.AsType[*transfer.Refused](err)
	switch {
	case refused:
		d.Why, d.Do = objection.Why, objection.Do
	case err != nil:
		return err
	default:
		d.tell(c, after, made, v.DryRun)
	}
	if printErr := d.print(s, form, c); printErr != nil {
		return printErr
	}
	return err // the objection, if there is one
}

// tell takes what is after the decision.
func (d *decision) tell(c ledger.Case, after transfer.Instruction, made, dry bool) {
	switch {
	case made:
		d.Verdict = verdictMade
	case dry && after.Version > c.Instruction.Version:
		d.Verdict = verdictWouldBe
	default:
		d.Verdict, d.FromState = verdictMadeBefore, c.Decided.From
	}
	d.ToState, d.Version, d.NextCheckAt, d.Key = after.State, after.Version, after.NextCheckAt, after.Transfer.Key.String()
	d.Reversed = c.Reversed || after.State == transfer.StateRejected || after.State == transfer.StateReturned
}

func bankStatuses(c ledger.Case) (all []bankStatus) {
	if !c.Asked {
		return nil
	}
	one := func(key string, superseded bool, r transfer.StatusResult) bankStatus {
		a := r.Answer
		return bankStatus{
			Key: key, Superseded: superseded, Reading: r.Reading.String(),
			HTTPStatus: a.HTTPStatus, Status: a.Status, TransferID: a.TransferID, Detail: a.Detail,
		}
	}
	for i, r := range c.Said.Superseded {
		all = append(all, one(c.Instruction.Superseded[i].Key.String(), true, r))
	}
	for i, r := range c.Said.Later {
		if r.Reading != transfer.StatusNotFound { // which is what has to be
			status := one(c.Instruction.LaterKeys()[i].String(), false, r)
			status.Later = true
			all = append(all, status)
		}
	}
	return append(all, one(c.Instruction.Transfer.Key.String(), false, c.Said.Current))
}

func (d *decision) print(s streams, form string, c ledger.Case) error {
	if form == outputJSON {
		return printJSON(s.out, d)
	}
	facts := [][2]string{
		{"settlement", d.SettlementID},
		{"was", fmt.Sprintf("%s, version %d, since %s", c.Instruction.State, c.Instruction.Version, instant(c.Last.RecordedAt))},
		{"because", c.Last.Event.Detail},
	}
	if d.Bank == nil {
		facts = append(facts, [2]string{"bank", "not asked"})
	}
	for _, b := range d.Bank {
		name := "bank says"
		switch {
		case b.Superseded:
			name = "of an old key"
		case b.Later:
			name = "of a later key"
		}
		facts = append(facts, [2]string{name, b.words()})
	}
	facts = append(facts, [2]string{"decision", fmt.Sprintf("%s: %s", d.Decision, d.Verdict)})
	if d.ToState != "" {
		facts = append(facts, d.outcome()...)
	}
	return printFacts(s, facts)
}

// words is what the bank said, for a person.
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
	return text + ", key " + b.Key
}

func (d *decision) outcome() [][2]string {
	is := "is"
	if d.Verdict == verdictWouldBe {
		is = "would be"
	}
	facts := [][2]string{{is, fmt.Sprintf("%s, version %d", d.ToState, d.Version)}}
	if d.Reversed {
		facts = append(facts, [2]string{"movement", "reversed"})
	}
	if d.Decision == transfer.DecideResend {
		facts = append(facts, [2]string{"new key", d.Key})
	}
	return append(facts, [2]string{"next check", instant(d.NextCheckAt)})
}
