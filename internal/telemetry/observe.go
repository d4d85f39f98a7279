package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// instruments are the metrics that the package comment lists.
type instruments struct {
	settlements, conflicts, quarantined metric.Int64Counter
	attempts, instructions              metric.Int64Counter
	duration, publishLag, replayAge     metric.Float64Histogram
	oldestUncertain                     metric.Float64Gauge
	manual                              metric.Int64Gauge
}

// Bounds of the histograms, in seconds.
var (
	durations = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 60}
	lags      = []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600, 31 * 24 * 3600}
	ages      = []float64{1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600, 31 * 24 * 3600, 62 * 24 * 3600, 80 * 24 * 3600, 100 * 24 * 3600}
)

func newInstruments(m metric.Meter) (i instruments, err error) {
	var errs []error
	counter := func(name, unit, about string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
		errs = append(errs, err)
		return c
	}
	histogram := func(name, about string, bounds []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	i = instruments{
		settlements:  counter("settleonce.settlements", "{delivery}", "Deliveries by outcome."),
		conflicts:    counter("settleonce.conflicts", "{member}", "New conflicts, once for each differing member."),
		quarantined:  counter("settleonce.quarantined", "{message}", "Newly quarantined messages by reason."),
		attempts:     counter("settleonce.bank.attempts", "{exchange}", "Exchanges with the bank by class."),
		instructions: counter("settleonce.bank.instructions", "{instruction}", "Bank instructions that entered a state."),
		duration:     histogram("settleonce.duration", "Duration of a delivery with its exchange with the bank.", durations),
		publishLag:   histogram("settleonce.publish_lag", "From the publishing of a message to the end of its delivery.", lags),
		replayAge:    histogram("settleonce.replay_age", "Time since the settlement of a duplicate's or conflict's payout.", ages),
	}
	i.oldestUncertain, err = m.Float64Gauge("settleonce.bank.oldest_uncertain_age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest uncertain bank instruction, as of the last run of the reconciler."))
	errs = append(errs, err)
	i.manual, err = m.Int64Gauge("settleonce.bank.manual", metric.WithUnit("{instruction}"),
		metric.WithDescription("Bank instructions that wait for a decision, up to 1000, as of the last run of the reconciler."))
	return i, errors.Join(append(errs, err)...)
}

func with(attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(attrs...)
}

// Delivery implements event.Observer.
func (t *Telemetry) Delivery(ctx context.Context, d settle.Delivery) (context.Context, func(settle.Result, error)) {
	began := t.now()
	ctx, span := t.tracer.Start(ctx, "settle payout", trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("messaging.system", "gcp_pubsub"),
		attribute.String("messaging.message.id", d.Message.ID),
		attribute.String("messaging.destination.subscription.name", d.Message.Subscription),
		attribute.Int("settleonce.delivery_attempt", d.Attempt),
	))
	return ctx, func(r settle.Result, err error) {
		now := t.now()
		t.measure(ctx, d, r, now, now.Sub(began))
		span.SetAttributes(
			attribute.String("settleonce.outcome", r.Outcome.String()),
			attribute.String("settleonce.settlement_id", r.SettlementID),
			attribute.String("settleonce.instruction", string(r.Instruction)),
		)
		end(span, err)
	}
}

// end ends a span. The log has the error's text under the same trace.
func end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, "see the log")
	}
	span.End()
}

func (t *Telemetry) measure(ctx context.Context, d settle.Delivery, r settle.Result, now time.Time, took time.Duration) {
	i, outcome := &t.instruments, attribute.String("outcome", r.Outcome.String())
	i.settlements.Add(ctx, 1, with(outcome))
	i.duration.Record(ctx, took.Seconds(), with(outcome))
	if !d.Message.PublishTime.IsZero() {
		i.publishLag.Record(ctx, max(now.Sub(d.Message.PublishTime), 0).Seconds())
	}
	switch r.Outcome {
	case settle.OutcomeConflict:
		if !r.Known {
			for _, member := range r.Fields {
				i.conflicts.Add(ctx, 1, with(attribute.String("member", member)))
			}
		}
		i.replayAge.Record(ctx, max(now.Sub(r.AppliedAt), 0).Seconds(), with(outcome))
	case settle.OutcomeDuplicate:
		i.replayAge.Record(ctx, max(now.Sub(r.AppliedAt), 0).Seconds(), with(outcome))
	case settle.OutcomeQuarantined:
		if r.Known {
			break
		}
		var reason payout.Reason
		if r.Refusal != nil {
			reason = r.Refusal.Reason
		}
		i.quarantined.Add(ctx, 1, with(attribute.String("reason", string(reason))))
	case settle.OutcomeApplied, settle.OutcomeUnknown:
	}
}

// Run implements event.Observer.
func (t *Telemetry) Run(ctx context.Context) (context.Context, func(transfer.Reconciled, error)) {
	ctx, span := t.tracer.Start(ctx, "reconcile bank instructions", trace.WithSpanKind(trace.SpanKindConsumer))
	return ctx, func(run transfer.Reconciled, err error) {
		if err == nil {
			t.instruments.oldestUncertain.Record(ctx, float64(run.OldestUncertainSeconds))
			t.instruments.manual.Record(ctx, int64(run.Manual))
		}
		span.SetAttributes(attribute.Int("settleonce.due", run.Due), attribute.Int("settleonce.skipped", run.Skipped),
			attribute.Int("settleonce.failed", run.Failed), attribute.Int("settleonce.left", run.Left))
		end(span, err)
	}
}
