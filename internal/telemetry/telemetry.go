// Package telemetry makes OpenTelemetry metrics and traces of what the function
// does, and exports them by OTLP over HTTP to a collector that the environment
// names. Without one nothing of the package is used and nothing is measured.
//
// The package exists so that no other one knows what is measured: it observes
// deliveries and runs ([event.Observer]), and stands in front of the store and of
// the bank.
//
// # What is exported
//
//	settleonce.settlements               counter    outcome         deliveries by what became of them
//	settleonce.conflicts                 counter    member          conflicts, once for each member that differs
//	settleonce.quarantined               counter    reason          quarantined deliveries
//	settleonce.duration                  histogram  s, outcome      of a delivery, its exchange with the bank included
//	settleonce.publish_lag               histogram  s               from publishing to the end of a delivery
//	settleonce.replay_age                histogram  s, outcome      of duplicates and conflicts: since the payout was settled
//	settleonce.bank.attempts             counter    exchange, class exchanges with the bank by what they proved
//	settleonce.bank.instructions         counter    state           bank instructions that entered a state
//	settleonce.bank.oldest_uncertain_age gauge      s               of the latest run of the reconciler
//	settleonce.bank.manual               gauge                      instructions that wait for a person, up to 1000, as of that run
//
// A trace has one span for the delivery or the run, and in it one for each call of
// the store and for each exchange with the bank. It continues the trace that the
// event came with. The library samples as its own environment variables say, by
// default what the caller samples. Attributes hold IDs, outcomes and states: no
// payload, creditor account, reference, metadata, message attribute or error text.
//
// # When it is exported
//
// An instance has no CPU between requests, so that the library's timers do not go
// on there and what was measured last would wait for the next request. Each answer
// therefore sets off an export, in the background and after the answer has been
// sent: one at a time, and none within [pause] of the one before. The instance may
// fall asleep in the middle of it and go on with its next request, and exports what
// is left when it is told to stop. An instance that is killed loses that much. What
// must not be lost is in the log, and in Spanner.
//
// A collector that is slow or gone delays no answer: spans wait in a queue of
// fixed length and are dropped when it is full, metrics are sums already.
//
// OTLP over HTTP and not over gRPC: it adds as many packages to the program, and
// has no connection that would have to be kept alive while the instance sleeps.
//
// [event.Observer]: https://pkg.go.dev/github.com/settleonce/settleonce/internal/event#Observer
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	nometrics "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	notraces "go.opentelemetry.io/otel/trace/noop"
)

// scope is the name under which everything is exported.
const scope = "github.com/settleonce/settleonce"

const (
	// pause is the least time between the end of an export and the beginning of the
	// next.
	pause = 5 * time.Second
	// exportLimit bounds one export in the background.
	exportLimit = 10 * time.Second
)

// Config says what is exported and by whom. Where to, and everything else, the
// library reads from its own variables, OTEL_EXPORTER_OTLP_ENDPOINT and so on.
type Config struct {
	// Traces and Metrics tell which of the two are exported.
	Traces, Metrics bool
	// Service and Revision name the program. OTEL_SERVICE_NAME and
	// OTEL_RESOURCE_ATTRIBUTES stand above them.
	Service, Revision string
	// InstanceID tells the instances of one service apart. Required.
	InstanceID string
	// Now tells the time. Required.
	Now func() time.Time
	// Log gets a line for what could not be exported. Required.
	Log *slog.Logger
}

// Telemetry measures and exports. A nil *Telemetry does neither. It is safe for
// concurrent use.
type Telemetry struct {
	now         func() time.Time
	tracer      trace.Tracer
	instruments instruments
	// Of the providers: nothing where neither traces nor metrics are exported.
	flush, shutdown []func(context.Context) error

	answered chan struct{}
	stop     chan struct{}      // closed: no further export begins
	abort    context.CancelFunc // ends the one that is under way; what it holds is lost
	stopped  chan struct{}      // closed when none is under way any more
}

// New begins to measure; the result is nil where cfg asks for nothing. What cannot
// be exported is logged and no error: payouts are settled without it.
func New(ctx context.Context, cfg Config) *Telemetry {
	if !cfg.Traces && !cfg.Metrics {
		return nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { warn(ctx, cfg.Log, err) }))
	background, abort := context.WithCancel(context.WithoutCancel(ctx))
	t := &Telemetry{
		now: cfg.Now, abort: abort,
		answered: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
		tracer: notraces.NewTracerProvider().Tracer(scope),
	}
	res := describe(ctx, cfg)
	if cfg.Traces {
		t.exportTraces(ctx, res, cfg.Log)
	}
	t.exportMetrics(ctx, res, cfg)
	go t.exportAfterAnswers(background)
	return t
}

// warn logs what the library could not do. Its errors are about the collector.
func warn(ctx context.Context, log *slog.Logger, err error) {
	log.LogAttrs(ctx, slog.LevelWarn, "telemetry not exported", slog.String("error", err.Error()))
}

func describe(ctx context.Context, cfg Config) *resource.Resource {
	attrs := []attribute.KeyValue{
		attribute.String("service.name", cfg.Service), attribute.String("service.instance.id", cfg.InstanceID),
	}
	if cfg.Revision != "" {
		attrs = append(attrs, attribute.String("service.version", cfg.Revision))
	}
	res, err := resource.New(ctx, resource.WithAttributes(attrs...), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		warn(ctx, cfg.Log, err) // the resource holds what could be read
	}
	return res
}

func (t *Telemetry) exportTraces(ctx context.Context, res *resource.Resource, log *slog.Logger) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		warn(ctx, log, fmt.Errorf("traces: %w", err))
		return
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(exporter))
	t.tracer = provider.Tracer(scope)
	t.flush, t.shutdown = append(t.flush, provider.ForceFlush), append(t.shutdown, provider.Shutdown)
}

func (t *Telemetry) exportMetrics(ctx context.Context, res *resource.Resource, cfg Config) {
	var meter metric.Meter = nometrics.Meter{}
	if cfg.Metrics {
		exporter, err := otlpmetrichttp.New(ctx)
		if err != nil {
			warn(ctx, cfg.Log, fmt.Errorf("metrics: %w", err))
		} else {
			provider := sdkmetric.NewMeterProvider(sdkmetric.WithResource(res), sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
			meter = provider.Meter(scope)
			t.flush, t.shutdown = append(t.flush, provider.ForceFlush), append(t.shutdown, provider.Shutdown)
		}
	}
	var err error
	if t.instruments, err = newInstruments(meter); err != nil {
		warn(ctx, cfg.Log, err) // an instrument that could not be made does nothing
	}
}

// Answered implements event.Observer.
func (t *Telemetry) Answered() {
	select {
	case t.answered <- struct{}{}:
	default: // an export that takes this answer's along is due already
	}
}

// exportAfterAnswers exports after answers until it is stopped.
func (t *Telemetry) exportAfterAnswers(ctx context.Context) {
	defer close(t.stopped)
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-t.stop:
			return
		case <-rest.C:
		}
		select {
		case <-t.stop:
			return
		case <-t.answered:
		}
		t.export(ctx)
		rest.Reset(pause)
	}
}

func (t *Telemetry) export(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, exportLimit)
	defer cancel()
	for _, flush := range t.flush {
		if err := flush(ctx); err != nil && !errors.Is(err, context.Canceled) {
			otel.Handle(err)
		}
	}
}

// Shutdown exports what is left and ends the exporting; it is called once. With an
// error, which may be ctx's, some of it is lost.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	close(t.stop)
	defer t.abort()
	defer context.AfterFunc(ctx, t.abort)()
	<-t.stopped
	var errs []error
	for _, shutdown := range t.shutdown {
		errs = append(errs, shutdown(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("export what is left: %w", err)
	}
	return nil
}
