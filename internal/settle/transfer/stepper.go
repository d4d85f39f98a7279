package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

// RecordTimeout bounds the commit that records an exchange. The caller's context does
// not end it: a cancelled request must not lose the bank's answer.
const RecordTimeout = 10 * time.Second

// claimTimeout bounds the commit that claims an instruction. The caller's context does
// not end it: the claim may have counted a send.
const claimTimeout = lease

// ErrNoBank reports a payout with a creditor account while no bank is configured. The
// payout is not settled, so the ledger holds no movement that cannot be paid. Pub/Sub
// redelivers it until the configuration is right.
var ErrNoBank = errors.New("the payout names a creditor_account and no bank is configured")

// Stepper makes the steps of bank instructions, for deliveries and for the reconciler.
// Its fields are set once, before the first call; it is safe for concurrent use, by any
// number of instances.
type Stepper struct {
	// Store keeps the instructions. Required.
	Store Store
	// Bank executes the instructions. Required.
	Bank Bank
	// Policy holds the bank's time limits. Required.
	Policy Policy
	// NewID returns a unique ID for each call. Required.
	NewID func() string
	// Now returns the current time. Required.
	Now func() time.Time
	// Log gets one line for each exchange with the bank. Required.
	Log *slog.Logger
}

// Create returns the instruction of a payout, leased to the delivery and with its send
// counted, so the commit that settles the payout is the only one before the send. A nil
// Stepper fails with [ErrNoBank].
func (s *Stepper) Create(p payout.Payout, deliveryID string) (*Instruction, error) {
	if s == nil {
		return nil, ErrNoBank
	}
	body, err := s.Bank.Compose(p, InstructionKey(p.SettlementID))
	if err != nil {
		return nil, fmt.Errorf("compose bank instruction: %w", err)
	}
	in := NewInstruction(p, body, s.now())
	s.Policy.holdForSend(in, deliveryID)
	return in, nil
}

// SendCreated sends a committed instruction of [Stepper.Create] and returns its new
// state.
func (s *Stepper) SendCreated(ctx context.Context, created Instruction) (State, error) {
	return s.runPlan(ctx, Change{Next: created, Follow: PlanSend})
}

// Step makes the next step of an instruction and returns its new state. It fails with
// [ErrNotDue] if the instruction is not due or another step holds it.
//
// It calls the bank between two transactions, never inside one: the first leases the
// instruction and counts the send, the second records the answer.
func (s *Stepper) Step(ctx context.Context, settlementID string) (State, error) {
	owner, now := s.NewID(), s.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	held, err := s.Store.Change(ctx, settlementID, func(in Instruction) (Change, error) {
		return s.Policy.Claim(in, owner, now)
	})
	if err != nil {
		return StateNone, fmt.Errorf("claim bank instruction of settlement %q: %w", settlementID, err)
	}
	return s.runPlan(ctx, held)
}

// runPlan carries out the plan of a leased instruction, and the plans that follow.
func (s *Stepper) runPlan(ctx context.Context, held Change) (state State, err error) {
	for held.Follow != PlanNothing {
		if held, err = s.exchangeAndRecord(ctx, held); err != nil {
			return StateNone, fmt.Errorf("bank instruction of settlement %q: %w", held.Next.SettlementID, err)
		}
	}
	return held.Next.State, nil
}

// Longest is [Policy.LongestStep]. Zero for a nil Stepper.
func (s *Stepper) Longest() time.Duration {
	if s == nil {
		return 0
	}
	return s.Policy.LongestStep()
}

func (s *Stepper) exchangeLimit(plan Plan) time.Duration {
	if plan == PlanSend {
		return s.Policy.SendTimeout
	}
	return s.Policy.StatusTimeout
}

// now is truncated to microseconds, the precision of every store.
func (s *Stepper) now() time.Time { return s.Now().UTC().Truncate(time.Microsecond) }

// tooLate reports whether the exchange could outlast its lease or send a forgotten key.
// Both can happen after a slow commit.
func (s *Stepper) tooLate(held Change, now time.Time) bool {
	if now.Add(s.exchangeLimit(held.Follow)).After(held.Next.LeaseUntil) {
		return true
	}
	return held.Follow == PlanSend && !now.Before(held.Next.ResendNotAfter)
}

// exchangeAndRecord makes one exchange with the bank and records its result.
func (s *Stepper) exchangeAndRecord(ctx context.Context, held Change) (Change, error) {
	began := s.now()
	if s.tooLate(held, began) {
		return held, ErrOutOfTime
	}
	seen, err := s.callBank(ctx, held)
	if err != nil {
		return held, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RecordTimeout)
	defer cancel()
	recorded, err := s.Store.Change(ctx, held.Next.SettlementID, func(in Instruction) (Change, error) {
		return applyIfHeld(in, held.Next, seen)
	})
	s.log(ctx, held, seen, err, s.now().Sub(began))
	if err != nil {
		return held, fmt.Errorf("record %s: %w", seen.Event.Cause, err)
	}
	return recorded, nil
}

// callBank makes one exchange with the bank and returns the resulting change.
func (s *Stepper) callBank(ctx context.Context, held Change) (Change, error) {
	in := held.Next
	took := Interval{Began: s.now()}
	switch held.Follow {
	case PlanSend:
		r := s.Bank.Send(ctx, SendRequest{Transfer: in.Transfer, Body: in.Body, EarlierMayHaveReached: in.earlierMayHaveReached()})
		took.Ended = s.now()
		return s.Policy.AfterSend(in, r, took)
	case PlanAsk:
		said := AskStatuses(ctx, s.Bank.Status, in)
		took.Ended = s.now()
		return s.Policy.AfterStatus(in, said, took)
	case PlanNothing:
	}
	return Change{}, fmt.Errorf("exchange without a plan (%d)", held.Follow)
}

// applyIfHeld returns the change seen if in is still the instruction that this step
// holds. After a lost answer it recognises its own change and writes nothing.
func applyIfHeld(in, held Instruction, seen Change) (Change, error) {
	switch {
	case in.Owner != held.Owner:
		return Change{}, ErrLeaseLost
	case in.Version == seen.Next.Version:
		seen.Write = false
		return seen, nil
	case in.Version != held.Version:
		return Change{}, ErrLeaseLost
	}
	return seen, nil
}

func (s *Stepper) log(ctx context.Context, held, seen Change, err error, took time.Duration) {
	attrs := []slog.Attr{
		slog.String("settlement_id", held.Next.SettlementID),
		slog.String("idempotency_key", held.Next.Transfer.Key.String()),
		slog.String("cause", seen.Event.Cause),
		slog.String("class", seen.Class),
		slog.String("from_state", string(seen.Event.From)),
		slog.String("to_state", string(seen.Event.To)),
		slog.Int("http_status", seen.Event.HTTPStatus),
		slog.String("detail", seen.Event.Detail),
		slog.Int64("sends", seen.Next.Sends),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
	}
	level := seen.Level
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
		level = max(level, slog.LevelWarn)
		if !errors.Is(err, ErrLeaseLost) {
			level = max(level, slog.LevelError)
		}
	}
	s.Log.LogAttrs(ctx, level, "bank exchange completed", attrs...)
}
