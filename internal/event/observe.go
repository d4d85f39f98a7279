package event

import (
	"context"

	"go.opentelemetry.io/otel/propagation"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Observer measures and traces deliveries and runs. It does not delay the work and is
// safe for concurrent use.
type Observer interface {
	// Delivery is called before a delivery is settled. ctx carries the parent span, the
	// returned context the delivery's span. ended is called exactly once, also after a
	// panic.
	Delivery(ctx context.Context, d settle.Delivery) (_ context.Context, ended func(settle.Result, error))
	// Run does the same for a run of the reconciler.
	Run(ctx context.Context) (_ context.Context, ended func(transfer.Reconciled, error))
	// Answered is called after the answer to a request is sent.
	Answered()
}

// traceparent is the name of a W3C trace context: of a header, and of a CloudEvent's
// attribute in the distributed tracing extension.
const traceparent = "traceparent"

// publisherTraceparent is the message attribute in which Pub/Sub's client libraries
// put the publisher's trace context.
const publisherTraceparent = "googclient_traceparent"

// withTrace returns ctx with the remote span of a traceparent, or ctx itself for an
// invalid one.
func withTrace(ctx context.Context, text string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: text})
}
