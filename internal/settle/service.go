package settle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// coalesceLimit bounds the wait for another delivery of the same payout. After it the
// waiting deliveries call the store, so a stuck delivery does not make them fail.
const coalesceLimit = 2 * time.Second

// Service settles deliveries. Its fields are set once, before the first call;
// it is safe for concurrent use.
type Service struct {
	// Store keeps settlements and quarantined messages. Required.
	Store Store
	// Banking makes the steps of bank instructions. Nil means that no bank is
	// configured: payouts with a creditor account fail with [transfer.ErrNoBank].
	Banking *transfer.Stepper
	// DefaultCurrency is the currency of messages without one. Empty means that such
	// messages are quarantined.
	DefaultCurrency string
	// NewID returns a unique ID for each call. Required.
	NewID func() string
	// Now returns the current time. Required.
	Now func() time.Time

	mu       sync.Mutex
	inflight map[inflightKey]*inflightSettle
}

// inflightKey identifies a payout whose settlement is in progress.
type inflightKey struct {
	settlementID string
	hash         payout.Hash
}

// inflightSettle is one call of the store that other deliveries wait for.
type inflightSettle struct {
	done   chan struct{} // closed when result is set
	result Result        // outcome unknown after an error
}

// Deliver settles or quarantines one delivery. A nil error means that the result is
// committed and the message can be acknowledged. After an error no commit is known,
// and Pub/Sub has to redeliver the message; the result then holds the settlement ID
// and the payload hash if the message had them.
func (s *Service) Deliver(ctx context.Context, d Delivery) (Result, error) {
	if d.Refusal != nil {
		return s.quarantine(ctx, d, d.Refusal)
	}
	p, err := payout.Decode(d.Message.Data, s.DefaultCurrency)
	if refusal, refused := errors.AsType[*payout.Refusal](err); refused {
		return s.quarantine(ctx, d, refusal)
	}
	st := Settlement{Payout: p, Hash: p.Hash(), DeliveryID: s.NewID(), Message: d.Message}
	result, shared, err := s.coalesce(ctx, &st)
	switch {
	case err != nil:
		return Result{SettlementID: p.SettlementID, PayloadHash: st.Hash}, fmt.Errorf("settle %q: %w", p.SettlementID, err)
	case shared, s.Banking == nil, result.Instruction != transfer.StateUncertain && result.Instruction != transfer.StateAccepted:
		return result, nil
	}
	return s.goOnAtTheBank(ctx, st, result), nil
}

// coalesce settles st. Concurrent deliveries of one payout in this instance call the
// store one after another. Once a call has found or made the settlement, the waiting
// deliveries are duplicates and share its result. A settlement never changes, so the
// shared result stays true. Deliveries of other payouts never wait.
//
// Failures and conflicts are not shared: the next delivery calls the store itself.
// Coalescing saves calls and decides nothing, since each instance coalesces alone.
func (s *Service) coalesce(ctx context.Context, st *Settlement) (result Result, shared bool, err error) {
	key := inflightKey{st.Payout.SettlementID, st.Hash}
	own := &inflightSettle{done: make(chan struct{})}
	limit := time.NewTimer(coalesceLimit)
	defer limit.Stop()
	for waiting := true; waiting; {
		if ctx.Err() != nil {
			return Result{}, false, fmt.Errorf("wait for another delivery of the payout: %w", context.Cause(ctx))
		}
		s.mu.Lock()
		other, found := s.inflight[key]
		if !found {
			if s.inflight == nil {
				s.inflight = make(map[inflightKey]*inflightSettle)
			}
			s.inflight[key] = own
			defer func() {
				s.mu.Lock()
				delete(s.inflight, key)
				s.mu.Unlock()
				if err == nil {
					own.result = result // unknown after a panic
				}
				close(own.done)
			}()
		}
		s.mu.Unlock()
		if !found {
			break
		}
		select {
		case <-other.done:
		case <-limit.C:
			waiting = false
			continue
		case <-ctx.Done():
			continue
		}
		if outcome := other.result.Outcome; outcome == OutcomeApplied || outcome == OutcomeDuplicate {
			result = other.result
			result.Outcome = OutcomeDuplicate
			return result, true, nil
		}
	}
	if st.Payout.CreditorAccount != "" { // created after the wait, because its times begin with the call of the store
		if st.Instruction, err = s.Banking.Create(st.Payout, st.DeliveryID); err != nil {
			return Result{}, false, err
		}
	}
	result, err = s.Store.Settle(ctx, *st)
	return result, false, err
}

// goOnAtTheBank makes the next step of the settlement's instruction. The delivery that
// created the instruction sends it; a later one makes the due step. The settlement is
// already committed, so only the reported state depends on the step, and the
// reconciler repeats a failed one.
func (s *Service) goOnAtTheBank(ctx context.Context, st Settlement, result Result) Result {
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
		s.Banking.Log.LogAttrs(ctx, slog.LevelError, "bank step deferred",
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

// Outcome is the result of a delivery. The zero value, [OutcomeUnknown], must not be
// acknowledged.
type Outcome string

const (
	// OutcomeUnknown means that no commit is known. Pub/Sub redelivers the message.
	OutcomeUnknown Outcome = ""
	// OutcomeApplied means that this delivery settled the payout.
	OutcomeApplied Outcome = "applied"
	// OutcomeDuplicate means that an earlier delivery settled the same payout.
	OutcomeDuplicate Outcome = "duplicate"
	// OutcomeConflict means that the settlement ID is known with another payload hash.
	// Nothing moved; the conflict is recorded for investigation.
	OutcomeConflict Outcome = "conflict"
	// OutcomeQuarantined means that the message cannot be a payout. Nothing moved; the
	// message is kept whole.
	OutcomeQuarantined Outcome = "quarantined"
)

// String returns the outcome's name in answers, logs and tables.
func (o Outcome) String() string {
	if o == OutcomeUnknown {
		return "unknown"
	}
	return string(o)
}

// Final reports whether the outcome is committed, so that the message can be
// acknowledged.
func (o Outcome) Final() bool { return o != OutcomeUnknown }

// Result is the outcome of a delivery with the stored facts about it. It holds
// nothing of the payload but the settlement ID and the payload hash. Encoded as JSON
// it is the answer to the request; logged it gives the line's attributes.
type Result struct {
	// Outcome is never [OutcomeUnknown] beside a nil error.
	Outcome Outcome `json:"outcome"`
	// SettlementID and PayloadHash are those of the delivered payout; empty for
	// a quarantined message.
	SettlementID string      `json:"settlement_id,omitzero"`
	PayloadHash  payout.Hash `json:"payload_hash,omitzero"`
	// AppliedAt is the commit timestamp of the settlement's movement. Zero for a
	// quarantined message.
	AppliedAt time.Time `json:"applied_at,omitzero"`
	// Instruction is the state of the settlement's bank instruction;
	// [transfer.StateNone] for none.
	Instruction transfer.State `json:"instruction,omitzero"`
	// Fields names the members in which a conflicting payout differs from the
	// settled one, in the order of the payout message's table.
	Fields []string `json:"fields,omitempty"`
	// ReceiptExpired reports that the receipt has expired and the movement decided.
	ReceiptExpired bool `json:"receipt_expired,omitzero"`
	// Refusal is the reason for quarantine; nil otherwise. Its detail may quote the
	// message, so it is neither in the answer nor in the log.
	Refusal *payout.Refusal `json:",embed"`
}

// LogValue implements [slog.LogValuer]: the attributes of the delivery's log line.
func (r Result) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 8)
	for _, text := range [...]struct{ key, value string }{
		{"outcome", cmp.Or(string(r.Outcome), "unknown")}, {"settlement_id", r.SettlementID}, {"payload_hash", string(r.PayloadHash)}, {"instruction", string(r.Instruction)},
	} {
		if text.value != "" {
			attrs = append(attrs, slog.String(text.key, text.value))
		}
	}
	if r.ReceiptExpired {
		attrs = append(attrs, slog.Bool("receipt_expired", true))
	}
	if len(r.Fields) > 0 {
		attrs = append(attrs, slog.Any("conflict_fields", r.Fields))
	}
	if r.Refusal != nil {
		attrs = append(attrs, slog.String("reason", string(r.Refusal.Reason)))
		if r.Refusal.Member != "" {
			attrs = append(attrs, slog.String("member", r.Refusal.Member))
		}
	}
	return slog.GroupValue(attrs...)
}
