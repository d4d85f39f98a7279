package event

import (
	"context"

	"go.opentelemetry.io/otel/propagation"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Observer measures deliveries and runs, and traces them. It does not delay the work
// and is safe for concurrent use.
type Observer interface {
	// Delivery is called before a delivery is settled. ctx names the parent span; the
	// returned context carries the delivery's own. ended is called exactly once, after
	// a panic too.
	Delivery(ctx context.Context, d settle.Delivery) (_ context.Context, ended func(settle.Result, error))
	// Run is the same for a run of the reconciler.
	Run(ctx context.Context) (_ context.Context, ended func(transfer.Reconciled, error))
	// Answered is called when the answer to a request has been sent.
	Answered()
}

// traceparent is the name of a W3C trace context: a header's, and an attribute's
// of CloudEvents that have the distributed tracing extension.
const traceparent = "traceparent"

// publisherTraceparent is the message attribute in which Pub/Sub's client libraries
// put the publisher's trace context.
const publisherTraceparent = "googclient_traceparent"

// withTrace returns ctx with the remote span that text names. Invalid text changes
// nothing: a trace is no reason to refuse a payout.
func withTrace(ctx context.Context, text string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: text})
}
