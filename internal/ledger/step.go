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

// StepEvent is a row of an instruction's history.
type StepEvent struct {
	Version    int64
	At         time.Time
	From, To   transfer.State
	Cause      string
	HTTPStatus int // zero: there was no answer
	Detail     string
}

// Stepped is what a step did to an instruction.
type Stepped struct {
	Before, After transfer.Instruction
	// Events are those that came meanwhile, the step's own among them.
	Events []StepEvent
}

// Step makes the step of an instruction that is due, as the functions do. Where it
// fails with [transfer.ErrNotDue] or [transfer.ErrLeaseLost], Before and After hold what
// was there all the same. It fails with [ErrNoSettlement] or
// [transfer.ErrNoInstruction] too.
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
	if s.Events, err = o.eventsAfter(ctx, settlementID, s.Before.Version); err != nil {
		return s, err
	}
	return s, stepErr
}

func (o *Operator) instruction(ctx context.Context, id string) (transfer.Instruction, error) {
	tx := o.Client.ReadOnlyTransaction()
	defer tx.Close()
	if err := settled(ctx, tx, id); err != nil {
		return transfer.Instruction{}, fmt.Errorf("settlement %q: %w", id, err)
	}
	in, err := readInstruction(ctx, tx, id)
	if err != nil {
		return in, fmt.Errorf("settlement %q: %w", id, err)
	}
	return in, nil
}

func (o *Operator) eventsAfter(ctx context.Context, id string, version int64) (events []StepEvent, err error) {
	key := spanner.Key{spannerstore.SettlementKey(id)}
	later := spanner.KeyRange{Start: append(key, version), End: key, Kind: spanner.OpenClosed}
	columns := []string{"version", "recorded_at", "from_state", "to_state", "cause", "http_status", "detail"}
	err = o.Client.Single().Read(ctx, "bank_instruction_events", later, columns).Do(func(row *spanner.Row) error {
		var (
			e            StepEvent
			from, detail spanner.NullString
			to           string
			status       spanner.NullInt64
		)
		err := row.Columns(&e.Version, &e.At, &from, &to, &e.Cause, &status, &detail)
		e.From, e.To = transfer.State(from.StringVal), transfer.State(to)
		e.HTTPStatus, e.Detail = int(status.Int64), detail.StringVal
		events = append(events, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read events of settlement %q: %w", id, err)
	}
	return events, nil
}

// WhyNotDue says in words why a step would do nothing now; empty where it would do
// something.
func WhyNotDue(in transfer.Instruction, now time.Time) string {
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	switch {
	case in.State == transfer.StateManual:
		return "it is manual: nothing is asked or sent until two people decide"
	case in.State == transfer.StateReturned:
		return "it is returned, which is final"
	case in.NextCheckAt.IsZero():
		return fmt.Sprintf("it is %s, and nobody looks at it any more", in.State)
	case now.Before(in.LeaseUntil):
		return "another step is working on it, until " + at(in.LeaseUntil) + " at the latest"
	case now.Before(in.NextCheckAt):
		return "it is due at " + at(in.NextCheckAt)
	}
	return ""
}
