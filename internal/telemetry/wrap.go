package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Store is a store whose calls are measured.
type Store interface {
	settle.Store
	transfer.Store
}

// Store returns store with a span for each change, and with a count of the bank
// instructions that enter a state.
func (t *Telemetry) Store(store Store) Store {
	if t == nil {
		return store
	}
	return observedStore{store, t}
}

type observedStore struct {
	Store
	t *Telemetry
}

// Settle implements [settle.Store].
func (s observedStore) Settle(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	ctx, span := s.t.tracer.Start(ctx, "store settle", trace.WithSpanKind(trace.SpanKindClient))
	result, err := s.Store.Settle(ctx, st)
	end(span, err)
	if err == nil && result.Outcome == settle.OutcomeApplied && result.Instruction != transfer.StateNone {
		s.t.entered(ctx, result.Instruction)
	}
	return result, err
}

// Quarantine implements [settle.Store].
func (s observedStore) Quarantine(ctx context.Context, q settle.Quarantined) (known bool, err error) {
	ctx, span := s.t.tracer.Start(ctx, "store quarantine", trace.WithSpanKind(trace.SpanKindClient))
	known, err = s.Store.Quarantine(ctx, q)
	end(span, err)
	return known, err
}

// Change implements [transfer.Store].
func (s observedStore) Change(
	ctx context.Context, settlementID string, decide func(transfer.Instruction) (transfer.Change, error),
) (transfer.Change, error) {
	ctx, span := s.t.tracer.Start(ctx, "store change instruction", trace.WithSpanKind(trace.SpanKindClient))
	change, err := s.Store.Change(ctx, settlementID, decide)
	if errors.Is(err, transfer.ErrNotDue) {
		end(span, nil) // an answer, not a fault
		return change, err
	}
	end(span, err)
	if err == nil && change.Write && change.Event != nil && change.Event.From != change.Event.To {
		s.t.entered(ctx, change.Event.To)
	}
	return change, err
}

func (t *Telemetry) entered(ctx context.Context, state transfer.State) {
	t.instruments.instructions.Add(ctx, 1, with(attribute.String("state", string(state))))
}

// Bank wraps bank to record a span and a count for each exchange.
func (t *Telemetry) Bank(bank transfer.Bank) transfer.Bank {
	if t == nil {
		return bank
	}
	return observedBank{bank, t}
}

type observedBank struct {
	transfer.Bank
	t *Telemetry
}

// Send implements [transfer.Bank].
func (b observedBank) Send(ctx context.Context, r transfer.SendRequest) transfer.SendResult {
	ctx, span := b.t.tracer.Start(ctx, "bank send", trace.WithSpanKind(trace.SpanKindClient))
	result := b.Bank.Send(ctx, r)
	b.t.exchanged(ctx, span, "send", result.Class.String(), result.Answer.HTTPStatus)
	return result
}

// Status implements [transfer.Bank].
func (b observedBank) Status(ctx context.Context, r transfer.StatusRequest) transfer.StatusResult {
	ctx, span := b.t.tracer.Start(ctx, "bank status", trace.WithSpanKind(trace.SpanKindClient))
	result := b.Bank.Status(ctx, r)
	b.t.exchanged(ctx, span, "status", result.Reading.String(), result.Answer.HTTPStatus)
	return result
}

func (t *Telemetry) exchanged(ctx context.Context, span trace.Span, exchange, class string, httpStatus int) {
	t.instruments.attempts.Add(ctx, 1, with(attribute.String("exchange", exchange), attribute.String("class", class)))
	span.SetAttributes(attribute.String("settleonce.class", class))
	if httpStatus != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", httpStatus))
	}
	span.End()
}
