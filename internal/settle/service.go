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

// Service settles deliveries. Its fields are set once, before the first call;
// it is safe for concurrent use.
type Service struct {
	// Store keeps settlements and quarantined messages. Required.
	Store Store
	// Banking makes the steps of bank instructions. Nil means that no bank is
	// configured: new payouts with a creditor account fail with [transfer.ErrNoBank].
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
	done   chan struct{} // closed when the other fields are set
	result Result
	err    error
	left   bool // the caller disconnected first; waiting deliveries then settle again
}

// errNoResult is the error that deliveries share after a panic.
var errNoResult = errors.New("another delivery of the payout ended without a result")

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
		return s.refuse(ctx, d, p, refusal)
	}
	st := Settlement{Payout: p, Hash: p.Hash(), DeliveryID: s.NewID(), Message: d.Message, Redelivered: d.Attempt > 1}
	result, err := s.coalesce(ctx, &st)
	if err != nil {
		return Result{SettlementID: p.SettlementID, PayloadHash: st.Hash}, fmt.Errorf("settle %q: %w", p.SettlementID, err)
	}
	if result.Outcome == OutcomeApplied && st.Instruction != nil {
		s.sendCreated(ctx, st, &result)
	}
	return result, nil
}

// coalesce settles st. Concurrent deliveries of one payout in this instance share one
// call of the store, its failure too: Pub/Sub redelivers each of them. Deliveries of
// other payouts never wait.
//
// A settlement never changes, so the shared result stays true. Coalescing saves calls
// and decides nothing, since each instance coalesces alone.
func (s *Service) coalesce(ctx context.Context, st *Settlement) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	key := inflightKey{st.Payout.SettlementID, st.Hash}
	s.mu.Lock()
	if other, found := s.inflight[key]; found {
		s.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return Result{}, fmt.Errorf("wait for another delivery of the payout: %w", context.Cause(ctx))
		}
		if other.left {
			return s.coalesce(ctx, st)
		}
		return other.result.shared(), other.err
	}
	own := &inflightSettle{done: make(chan struct{}), err: errNoResult}
	if s.inflight == nil {
		s.inflight = make(map[inflightKey]*inflightSettle)
	}
	s.inflight[key] = own
	s.mu.Unlock()
	defer func() {
		own.left = own.err != nil && errors.Is(ctx.Err(), context.Canceled)
		s.mu.Lock()
		delete(s.inflight, key)
		s.mu.Unlock()
		close(own.done)
	}()
	if st.Payout.CreditorAccount != "" && s.Banking != nil {
		created, err := s.Banking.Create(st.Payout, st.DeliveryID)
		if err != nil {
			own.err = err
			return Result{}, err
		}
		st.Instruction = created
	}
	own.result, own.err = s.Store.Settle(ctx, *st)
	return own.result, own.err
}

// shared is the result for a delivery that waited for the one that committed it.
func (r Result) shared() Result {
	switch r.Outcome {
	case OutcomeApplied:
		r.Outcome, r.Instruction = OutcomeDuplicate, transfer.StateNone
	case OutcomeConflict:
		r.Known = true
	case OutcomeDuplicate, OutcomeQuarantined, OutcomeUnknown:
	}
	return r
}

// sendCreated makes the first step of the instruction that the delivery created. The
// settlement is already committed, so only the reported state depends on the step, and
// the reconciler repeats a failed one.
func (s *Service) sendCreated(ctx context.Context, st Settlement, result *Result) {
	created := *st.Instruction
	created.CreatedAt = result.AppliedAt
	state, err := s.Banking.SendCreated(ctx, created)
	if err != nil {
		s.Banking.Log.LogAttrs(ctx, slog.LevelError, "bank step deferred",
			slog.String("settlement_id", result.SettlementID), slog.String("error", err.Error()))
		return
	}
	result.Instruction = state
}

// refuse quarantines a message that is not a valid payout. A payout whose only fault is
// the absent currency can be settled: its hash does not depend on the default currency,
// which may have been removed between the commit and this delivery.
func (s *Service) refuse(ctx context.Context, d Delivery, p payout.Payout, refusal *payout.Refusal) (Result, error) {
	if p.SettlementID == "" {
		return s.quarantine(ctx, d, refusal)
	}
	settled, err := s.Store.Movement(ctx, p.SettlementID)
	if err != nil {
		return Result{SettlementID: p.SettlementID, PayloadHash: p.Hash()}, fmt.Errorf("settle %q: %w", p.SettlementID, err)
	}
	if settled != nil && settled.PayloadHash == p.Hash() {
		return Result{Outcome: OutcomeDuplicate, SettlementID: p.SettlementID, PayloadHash: p.Hash(), AppliedAt: settled.RecordedAt}, nil
	}
	return s.quarantine(ctx, d, refusal)
}

func (s *Service) quarantine(ctx context.Context, d Delivery, refusal *payout.Refusal) (Result, error) {
	result := Result{Refusal: refusal}
	q := Quarantined{Message: d.Message, Refusal: *refusal}
	if len(d.Message.Data) > MaxQuarantineBytes {
		return result, fmt.Errorf("quarantine message %q of %d bytes: %w", d.Message.ID, len(d.Message.Data), ErrTooLargeToKeep)
	}
	known, err := s.Store.Quarantine(ctx, q)
	if err != nil {
		return result, fmt.Errorf("quarantine message %q: %w", d.Message.ID, err)
	}
	result.Outcome, result.Known = OutcomeQuarantined, known
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
	// Instruction is the state of the bank instruction that this delivery created;
	// [transfer.StateNone] for none.
	Instruction transfer.State `json:"instruction,omitzero"`
	// Known reports that the conflict or the quarantined message was recorded before.
	Known bool `json:"known,omitzero"`
	// Fields names the members in which a conflicting payout differs from the
	// settled one, in the order of the payout message's table.
	Fields []string `json:"fields,omitempty"`
	// ReceiptExpired reports that the receipt has expired and the movement decided.
	ReceiptExpired bool `json:"receipt_expired,omitzero"`
	// Disagreement names the contradiction between stored rows that the delivery found;
	// empty for none. The movement decided, and a person has to look.
	Disagreement string `json:"disagreement,omitzero"`
	// Refusal is the reason for quarantine; nil otherwise. Its detail may quote the
	// message, so it is neither in the answer nor in the log.
	Refusal *payout.Refusal `json:",embed"`
}

// LogValue implements [slog.LogValuer]: the attributes of the delivery's log line.
func (r Result) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 8)
	for _, text := range [...]struct{ key, value string }{
		{"outcome", cmp.Or(string(r.Outcome), "unknown")},
		{"settlement_id", r.SettlementID},
		{"payload_hash", string(r.PayloadHash)},
		{"instruction", string(r.Instruction)},
		{"disagreement", r.Disagreement},
	} {
		if text.value != "" {
			attrs = append(attrs, slog.String(text.key, text.value))
		}
	}
	if r.Known {
		attrs = append(attrs, slog.Bool("known", true))
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
