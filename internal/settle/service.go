package settle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoBank reports a payout that wants a bank instruction where no bank is
// configured. The payout is not settled, so that nothing is booked that could
// not be paid; it is delivered again until the configuration is right.
var ErrNoBank = errors.New("the payout names a creditor_account and no bank is configured")

// Service settles deliveries. Its fields are set once, before the first call;
// it is safe for concurrent use.
type Service struct {
	// Store keeps what is settled. Required.
	Store Store
	// Bank composes bank instructions. Nil means that none is configured:
	// payouts that want one fail with [ErrNoBank].
	Bank Bank
	// DefaultCurrency is the currency of messages that have none. Empty means
	// that such messages are quarantined.
	DefaultCurrency string
	// NewID returns an ID that is unique to each call. Required.
	NewID func() string
	// Now tells the time. Required.
	Now func() time.Time
}

// Deliver does what a delivery asks for. A nil error means that the result is
// committed and the message can be acknowledged. With an error nothing is known,
// and the message has to be delivered again; the result then holds the
// settlement ID and the payload hash if the message had them.
func (s *Service) Deliver(ctx context.Context, d Delivery) (Result, error) {
	if d.Refusal != nil {
		return s.quarantine(ctx, d, d.Refusal)
	}
	payout, err := Decode(d.Message.Data, s.DefaultCurrency)
	if refusal, refused := errors.AsType[*Refusal](err); refused {
		return s.quarantine(ctx, d, refusal)
	}
	settlement := Settlement{Payout: payout, Hash: payout.Hash(), DeliveryID: s.NewID(), Message: d.Message}
	unsettled := Result{SettlementID: payout.SettlementID, PayloadHash: settlement.Hash}
	if payout.WantsBank() {
		if settlement.Instruction, err = s.instruct(payout); err != nil {
			return unsettled, fmt.Errorf("settle %q: %w", payout.SettlementID, err)
		}
	}
	result, err := s.Store.Settle(ctx, settlement)
	if err != nil {
		return unsettled, fmt.Errorf("settle %q: %w", payout.SettlementID, err)
	}
	return result, nil
}

func (s *Service) instruct(p Payout) (*Instruction, error) {
	if s.Bank == nil {
		return nil, ErrNoBank
	}
	key := InstructionKey(p.SettlementID)
	body, err := s.Bank.Compose(p, key)
	if err != nil {
		return nil, fmt.Errorf("compose bank instruction: %w", err)
	}
	return &Instruction{Key: key, Body: body, NextCheckAt: s.Now()}, nil
}

func (s *Service) quarantine(ctx context.Context, d Delivery, refusal *Refusal) (Result, error) {
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
