package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Stepped is the result of a step.
type Stepped struct {
	Before, After transfer.Instruction
	// Events are those between Before and After, other steps' included.
	Events []spannerstore.EventRow
}

// Step makes the due step of an instruction, as the functions do. Before and After
// are set too where it fails with [transfer.ErrNotDue] or [transfer.ErrLeaseLost]. It
// also fails with [ErrNoSettlement] and [transfer.ErrNoInstruction].
func (o *Operator) Step(ctx context.Context, stepper *transfer.Stepper, settlementID string) (s Stepped, err error) {
	if s.Before, err = o.instruction(ctx, settlementID); err != nil {
		return s, err
	}
	_, stepErr := stepper.Step(ctx, settlementID)
	if stepErr != nil && !errors.Is(stepErr, transfer.ErrNotDue) && !errors.Is(stepErr, transfer.ErrLeaseLost) {
		return s, stepErr
	}
	if s.After, err = o.instruction(ctx, settlementID); err != nil {
		return s, err
	}
	key := spanner.Key{spannerstore.SettlementKey(settlementID)}
	later := spanner.KeyRange{Start: append(key, s.Before.Version), End: key, Kind: spanner.OpenClosed}
	if s.Events, err = spannerstore.Events.Rows(ctx, o.Client.Single(), later, nil); err != nil {
		return s, fmt.Errorf("settlement %q: %w", settlementID, err)
	}
	return s, stepErr
}

func (o *Operator) instruction(ctx context.Context, id string) (transfer.Instruction, error) {
	tx := o.Client.ReadOnlyTransaction()
	defer tx.Close()
	_, err := readMovement(ctx, tx, id)
	if err != nil {
		return transfer.Instruction{}, fmt.Errorf("settlement %q: %w", id, err)
	}
	in, err := spannerstore.ReadInstruction(ctx, tx, tagRead, id)
	if err != nil {
		return in, fmt.Errorf("settlement %q: %w", id, err)
	}
	return in, nil
}

// WhyNotDue describes why a step would do nothing at a time; empty where the
// instruction is due.
func WhyNotDue(in transfer.Instruction, now time.Time) string {
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	switch {
	case in.State == transfer.StateManual:
		return "it is manual: no step asks or sends until two people decide"
	case in.State == transfer.StateReturned:
		return "it is returned, which is final"
	case in.NextCheckAt.IsZero():
		return fmt.Sprintf("it is %s, and no longer watched", in.State)
	case now.Before(in.LeaseUntil):
		return "another step is working on it, until " + at(in.LeaseUntil) + " at the latest"
	case now.Before(in.NextCheckAt):
		return "it is due at " + at(in.NextCheckAt)
	}
	return ""
}
