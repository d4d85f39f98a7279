package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Case is a manual bank instruction, as it was read at one moment.
type Case struct {
	Instruction transfer.Instruction
	// Reversed says that the movement has a reversal.
	Reversed bool
	// Last is the latest event of the instruction's history.
	Last spannerstore.EventRow
	// Decided is the latest decision's event; its zero value: there is none. Steps may
	// have followed it.
	Decided transfer.Event
	// Asked says that the bank was asked. It is not asked where the instruction is not
	// manual, or no bank is configured.
	Asked bool
	// Said is the bank's answer, and Took when it was asked.
	Said transfer.StatusResult
	Took transfer.Interval
}

// Open reads the instruction of a settlement and asks the bank about it. It changes
// nothing. It fails with [ErrNoSettlement] or [transfer.ErrNoInstruction].
func (o *Operator) Open(ctx context.Context, settlementID string) (Case, error) {
	c, err := o.readCase(ctx, settlementID)
	if err != nil {
		return Case{}, fmt.Errorf("settlement %q: %w", settlementID, err)
	}
	c.Took.Began = o.now()
	if c.Instruction.State == transfer.StateManual && o.Bank != nil {
		c.Asked, c.Said = true, o.Bank.Status(ctx, transfer.StatusRequest{Transfer: c.Instruction.Transfer})
	}
	c.Took.Ended = o.now()
	return c, nil
}

// now is cut to microseconds, Spanner's precision.
func (o *Operator) now() time.Time { return o.Now().UTC().Truncate(time.Microsecond) }

func (o *Operator) readCase(ctx context.Context, id string) (c Case, err error) {
	tx := o.Client.ReadOnlyTransaction()
	defer tx.Close()
	if _, err := readMovement(ctx, tx, id); err != nil {
		return Case{}, err
	}
	if c.Instruction, err = spannerstore.ReadInstruction(ctx, tx, tagRead, id); err != nil {
		return Case{}, err
	}
	events, err := rowsOf(ctx, tx, spannerstore.Events, id)
	if err != nil {
		return Case{}, err
	}
	for _, e := range events {
		c.Last = e
		if e.Event.Cause == transfer.CauseDecided {
			c.Decided = e.Event
		}
	}
	if c.Last.Version != c.Instruction.Version {
		return Case{}, fmt.Errorf("settlement %q: the instruction has version %d and its last event %d; run settlectl verify",
			id, c.Instruction.Version, c.Last.Version)
	}
	reversal, err := rowOf(ctx, tx, spannerstore.Reversals, id)
	c.Reversed = reversal != nil
	return c, err
}

// Verdict is two people's decision about a case.
type Verdict struct {
	Decision         transfer.Decision
	By, Second, Note string
	// WithoutBank says that they decide although the bank cannot be reached.
	WithoutBank bool
	// Remark is added to the event's text; usually empty.
	Remark string
	// DryRun works the change out and does not make it.
	DryRun bool
}

// Decide makes the change of a verdict, and returns the instruction after it. made
// is false where the same people had made the same decision before, with the same
// note. A verdict that contradicts the state or the bank's answer fails with a
// *[transfer.Refused].
func (o *Operator) Decide(ctx context.Context, c Case, v Verdict) (after transfer.Instruction, made bool, err error) {
	r := transfer.Ruling{
		ID: o.NewID(), Decision: v.Decision, By: v.By, Second: v.Second, Note: v.Note,
		Version: c.Instruction.Version, Reversed: c.Reversed, Said: c.Said, Took: c.Took, WithoutBank: v.WithoutBank, Remark: v.Remark,
	}
	if c.Instruction.State != transfer.StateManual && records(c.Decided, r) {
		return c.Instruction, false, nil
	}
	if v.DryRun {
		change, err := o.Policy.Decide(c.Instruction, r)
		return change.Next, false, err
	}
	change, err := o.Store.Change(ctx, c.Instruction.SettlementID, func(in transfer.Instruction) (transfer.Change, error) {
		return o.Policy.Decide(in, r)
	})
	if _, refused := errors.AsType[*transfer.Refused](err); refused && o.wasMade(ctx, c, r) {
		again, err := o.readCase(ctx, c.Instruction.SettlementID)
		return again.Instruction, true, err
	}
	if err != nil {
		return transfer.Instruction{}, false, fmt.Errorf("decide about settlement %q: %w", c.Instruction.SettlementID, err)
	}
	return change.Next, true, nil
}

// records reports whether an event is a ruling's.
func records(e transfer.Event, r transfer.Ruling) bool {
	return e.Cause == transfer.CauseDecided && strings.HasPrefix(e.Detail, r.Proof())
}

// wasMade reports whether the history holds the ruling although the store refused
// it: the answer to its commit was lost, and a step came before the store's retry.
func (o *Operator) wasMade(ctx context.Context, c Case, r transfer.Ruling) bool {
	key := spanner.Key{spannerstore.SettlementKey(c.Instruction.SettlementID), r.Version + 1}
	events, err := spannerstore.Events.Rows(ctx, o.Client.Single(), key, nil)
	return err == nil && len(events) == 1 && records(events[0].Event, r)
}
