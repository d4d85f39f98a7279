package transfer

import (
	"context"
	"errors"
	"fmt"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"log/slog"
	"time"
)

// recordTimeout bounds the recording of what was seen of the bank. It does not
// depend on who waits: what the bank said must not be lost because a caller left.
const recordTimeout = 10 * time.Second

// claimTimeout bounds the whole of a step's waiting for the store before and
// between its exchanges. A claim that was begun is not given up because a caller
// left: it can have counted a send.
const claimTimeout = lease

// ErrNoBank reports a payout that wants a bank instruction where no bank is
// configured. The payout is not settled, so that nothing is booked that could
// not be paid; it is delivered again until the configuration is right.
var ErrNoBank = errors.New("the payout names a creditor_account and no bank is configured")

// Stepper takes bank instructions from where they are to where they go next. The
// delivery that creates an instruction, a redelivery of an open one and the
// reconciler all call the same [Stepper.Step]. Its fields are set once, before
// the first call; it is safe for concurrent use, by any number of instances.
type Stepper struct {
	// Store keeps the instructions. Required.
	Store Store
	// Bank is asked. Required.
	Bank Bank
	// Policy is the bank's. Required.
	Policy Policy
	// NewID returns an ID that is unique to each call. Required.
	NewID func() string
	// Now tells the time. Required.
	Now func() time.Time
	// Log gets one line for each exchange with the bank. Required.
	Log *slog.Logger
}

// Create returns the instruction of a payout, held by the delivery that creates it
// and with its send counted: the commit that settles the payout is the only one
// before the send. A nil Stepper fails with [ErrNoBank].
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

// SendCreated sends an instruction of [Stepper.Create] once it is committed, and
// returns its state afterwards.
func (s *Stepper) SendCreated(ctx context.Context, created Instruction) (State, error) {
	return s.runPlan(ctx, Change{Next: created, Follow: PlanSend})
}

// Step takes one instruction a step further and returns its state afterwards. It
// fails with [ErrNotDue] where there is nothing to do now, or another step is
// doing it.
//
// The bank is called between two transactions, never inside one: the first leases
// the instruction and counts the send, the second records what was seen.
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

// finish does what the plan of an instruction that this step holds says, and
// what follows from that.
func (s *Stepper) runPlan(ctx context.Context, held Change) (state State, err error) {
	for held.Follow != PlanNothing {
		if held, err = s.exchangeAndRecord(ctx, held); err != nil {
			return StateNone, fmt.Errorf("bank instruction of settlement %q: %w", held.Next.SettlementID, err)
		}
	}
	return held.Next.State, nil
}

// Longest is the longest that a step takes: a question that leads to a send, and
// the recording of both. Zero for a nil Stepper.
func (s *Stepper) Longest() time.Duration {
	if s == nil {
		return 0
	}
	return s.Policy.StatusTimeout + s.Policy.SendTimeout + 2*recordTimeout
}

// longest is the longest that one exchange of the plan takes.
func (s *Stepper) exchangeLimit(plan Plan) time.Duration {
	if plan == PlanSend {
		return s.Policy.SendTimeout
	}
	return s.Policy.StatusTimeout
}

// now is cut to microseconds, which every store keeps.
func (s *Stepper) now() time.Time { return s.Now().UTC().Truncate(time.Microsecond) }

// tooLate reports whether the exchange could outlast its lease, or would send a
// key that the bank may have forgotten: the commit before it can have taken long.
func (s *Stepper) tooLate(held Change, now time.Time) bool {
	if now.Add(s.exchangeLimit(held.Follow)).After(held.Next.LeaseUntil) {
		return true
	}
	return held.Follow == PlanSend && !now.Before(held.Next.ResendNotAfter)
}

// exchange does what the held instruction's plan says, and records it.
func (s *Stepper) exchangeAndRecord(ctx context.Context, held Change) (Change, error) {
	began := s.now()
	if s.tooLate(held, began) {
		return held, ErrOutOfTime
	}
	seen, err := s.callBank(ctx, held)
	if err != nil {
		return held, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
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

// ask makes the one exchange of the plan and works out what it changes.
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

// applyIfHeld makes the change that was worked out for held, if it is still what is
// stored. It recognises its own change after a lost answer.
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

// log writes the line of one exchange.
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
