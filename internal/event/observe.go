package event

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Observer is told what is worked on and what came of it, for metrics and traces.
// It does not delay the work, and is called from many goroutines.
type Observer interface {
	// Delivery is called before a delivery is handed over. Its context names the
	// span that the delivery belongs to, and the context that it returns is the one
	// in which the delivery is worked on. ended is called exactly once, also after
	// a panic.
	Delivery(ctx context.Context, d settle.Delivery) (_ context.Context, ended func(settle.Result, error))
	// Run is the same for a run of the reconciler.
	Run(ctx context.Context) (_ context.Context, ended func(transfer.Reconciled, error))
	// Answered is called when the answer to a request has been sent.
	Answered()
}

// unobserved is the observer where there is none.
type unobserved struct{}

func (unobserved) Delivery(ctx context.Context, _ settle.Delivery) (context.Context, func(settle.Result, error)) {
	return ctx, func(settle.Result, error) {}
}

func (unobserved) Run(ctx context.Context) (context.Context, func(transfer.Reconciled, error)) {
	return ctx, func(transfer.Reconciled, error) {}
}

func (unobserved) Answered() {}

func observerOf(o Observer) Observer {
	if o == nil {
		return unobserved{}
	}
	return o
}

// traceparent is the name of a W3C trace context: a header's, and an attribute's
// of CloudEvents that have the distributed tracing extension.
const traceparent = "traceparent"

// publisherTraceparent is the message's attribute in which Pub/Sub's client
// libraries put the trace context of who published it.
const publisherTraceparent = "googclient_traceparent"

// withRequestTrace returns ctx with the span that the platform or the caller has
// for the request, if the header names one.
func withRequestTrace(ctx context.Context, header http.Header) context.Context {
	return withTrace(ctx, header.Get(traceparent))
}

// withEventTrace returns ctx with the span that the event comes from: the one that
// the event names, else the one in which the message was published. Where neither
// is known it stays the request's.
func withEventTrace(ctx context.Context, d settle.Delivery) context.Context {
	return withTrace(withTrace(ctx, d.Message.Attributes[publisherTraceparent]), d.TraceParent)
}

// withTrace returns ctx with the remote span that the text names. One that is not
// valid changes nothing: a trace is no reason to refuse a payout.
func withTrace(ctx context.Context, text string) context.Context {
	if text == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: text})
}
