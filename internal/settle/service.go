package settle

import (
	"context"
	"errors"
	"fmt"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"log/slog"
	"time"
)

// Service settles deliveries. Its fields are set once, before the first call;
// it is safe for concurrent use.
type Service struct {
	// Store keeps what is settled. Required.
	Store Store
	// Banking looks after bank instructions. Nil means that no bank is
	// configured: payouts that want one fail with [transfer.ErrNoBank].
	Banking *transfer.Stepper
	// DefaultCurrency is the currency of messages that have none. Empty means
	// that such messages are quarantined.
	DefaultCurrency string
	// NewID returns an ID that is unique to each call. Required.
	NewID func() string
	// Now tells the time. Required.
	Now func() time.Time

	inflight inflight
}

// Deliver does what a delivery asks for. A nil error means that the result is
// committed and the message can be acknowledged. With an error nothing is known,
// and the message has to be delivered again; the result then holds the
// settlement ID and the payload hash if the message had them.
func (s *Service) Deliver(ctx context.Context, d Delivery) (Result, error) {
	if d.Refusal != nil {
		return s.quarantine(ctx, d, d.Refusal)
	}
	p, err := payout.Decode(d.Message.Data, s.DefaultCurrency)
	if refusal, refused := errors.AsType[*payout.Refusal](err); refused {
		return s.quarantine(ctx, d, refusal)
	}
	settlement := Settlement{Payout: p, Hash: p.Hash(), DeliveryID: s.NewID(), Message: d.Message}
	unsettled := Result{SettlementID: p.SettlementID, PayloadHash: settlement.Hash}
	result, shared, err := s.inflight.settle(ctx, settlement, func() (Result, error) {
		if p.WantsBank() { // now, since the instruction's times count from here
			var err error
			if settlement.Instruction, err = s.Banking.Create(p, settlement.DeliveryID); err != nil {
				return Result{}, err
			}
		}
		return s.Store.Settle(ctx, settlement)
	})
	if err != nil {
		return unsettled, fmt.Errorf("settle %q: %w", p.SettlementID, err)
	}
	if shared { // the delivery that found it settled looks after the instruction
		return result, nil
	}
	return s.goOnAtTheBank(ctx, settlement, result), nil
}

// goOnAtTheBank takes the settlement's instruction a step further: the delivery
// that created it sends, a later one runs the step if one is due. The settlement
// is committed already, so that nothing that happens here changes the answer but
// the state that it tells; what could not be done is left to the reconciler.
func (s *Service) goOnAtTheBank(ctx context.Context, st Settlement, result Result) Result {
	open := result.Instruction == transfer.StateUncertain || result.Instruction == transfer.StateAccepted
	if s.Banking == nil || !open {
		return result
	}
	var (
		state transfer.State
		err   error
	)
	switch result.Outcome {
	case OutcomeApplied:
		created := *st.Instruction
		created.CreatedAt = result.AppliedAt
		state, err = s.Banking.SendCreated(ctx, created)
	case OutcomeDuplicate:
		state, err = s.Banking.Step(ctx, result.SettlementID)
	case OutcomeConflict, OutcomeQuarantined, OutcomeUnknown:
		return result
	}
	switch {
	case err == nil:
		result.Instruction = state
	case !errors.Is(err, transfer.ErrNotDue):
		s.Banking.Log.LogAttrs(ctx, slog.LevelError, "bank instruction left to the reconciler",
			slog.String("settlement_id", result.SettlementID), slog.String("error", err.Error()))
	}
	return result
}

func (s *Service) quarantine(ctx context.Context, d Delivery, refusal *payout.Refusal) (Result, error) {
	result := Result{Refusal: refusal}
	q := Quarantined{Message: d.Message, Refusal: *refusal, DeliveryID: s.NewID()}
	if len(d.Message.Data) > MaxQuarantineBytes {
		return result, fmt.Errorf("quarantine message %q of %d bytes: %w", d.Message.ID, len(d.Message.Data), ErrTooLargeToKeep)
	}
	if err := s.Store.Quarantine(ctx, q); err != nil {
		return result, fmt.Errorf("quarantine message %q: %w", d.Message.ID, err)
	}
	result.Outcome = OutcomeQuarantined
	return result, nil
}
