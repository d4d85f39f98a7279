// Package telemetry records OpenTelemetry metrics and traces, and exports them by OTLP
// over HTTP to the collector that the environment names. Without a collector the
// package is not used.
//
// No other package knows the metrics: this one observes deliveries and runs
// ([event.Observer]), and wraps the store and the bank.
//
// # Metrics
//
//	settleonce.settlements               counter    outcome         deliveries
//	settleonce.conflicts                 counter    member          new conflicts, once for each differing member
//	settleonce.quarantined               counter    reason          newly quarantined messages
//	settleonce.duration                  histogram  s, outcome      of a delivery with its exchange with the bank
//	settleonce.publish_lag               histogram  s               from publishing to the end of a delivery
//	settleonce.replay_age                histogram  s, outcome      of duplicates and conflicts: time since the settlement
//	settleonce.bank.attempts             counter    exchange, class exchanges with the bank
//	settleonce.bank.instructions         counter    state           bank instructions that entered a state
//	settleonce.bank.oldest_uncertain_age gauge      s               as of the last run of the reconciler
//	settleonce.bank.manual               gauge                      instructions that wait for a decision, up to 1000, as of that run
//
// # Traces
//
// A trace has a span for the delivery or the run, and in it a span for each call of
// the store and each exchange with the bank. It continues the trace of the event. The
// library's environment variables configure the sampling, by default the caller's.
// Attributes hold IDs, outcomes and states: no payload, creditor account, reference,
// metadata, message attribute or error text.
//
// # Export
//
// An instance has no CPU between requests, so the library's timers stop there, and the
// last measurements would wait for the next request. Therefore each answer triggers an
// export in the background, after the answer was sent: one at a time, and at most one
// every [pause]. The instance may sleep during an export and continue it with its next
// request. It exports the rest when the platform stops it. A killed instance loses the
// rest; the log and Spanner have everything that must not be lost.
//
// A slow or missing collector delays no answer: spans wait in a queue of fixed length,
// and a full queue drops them. Metrics are sums.
//
// OTLP over gRPC would add as many packages to the program, and a connection to keep
// alive while the instance sleeps.
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

// scope is the name of the tracer and the meter.
const scope = "github.com/settleonce/settleonce"

const (
	// pause is the least time between two exports.
	pause = 5 * time.Second
	// exportLimit bounds one export in the background.
	exportLimit = 10 * time.Second
)

// Config configures a [Telemetry]. The library reads the collector's address and its
// other settings from its own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
type Config struct {
	// Traces and Metrics enable the export of each.
	Traces, Metrics bool
	// Service and Revision name the program. OTEL_SERVICE_NAME and
	// OTEL_RESOURCE_ATTRIBUTES override them.
	Service, Revision string
	// InstanceID distinguishes the instances of a service. Required.
	InstanceID string
	// Now is the clock. Required.
	Now func() time.Time
	// Log receives a line for each failed export. Required.
	Log *slog.Logger
}

// Telemetry records and exports. A nil *Telemetry does neither. It is safe for
// concurrent use.
type Telemetry struct {
	now         func() time.Time
	tracer      trace.Tracer
	instruments instruments
	// The functions of the providers of traces and metrics.
	flush, shutdown []func(context.Context) error

	answered chan struct{}
	stop     chan struct{}      // closed: no further export begins
	abort    context.CancelFunc // ends the running export, which loses its data
	stopped  chan struct{}      // closed after the last export
}

// New returns a running Telemetry; nil if cfg enables neither traces nor metrics. It
// logs failures instead of returning them, because payouts do not need telemetry.
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

func warn(ctx context.Context, log *slog.Logger, err error) {
	log.LogAttrs(ctx, slog.LevelWarn, "telemetry export failed", slog.String("error", err.Error()))
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
		warn(ctx, cfg.Log, err) // res is usable, without the failed parts
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
		warn(ctx, cfg.Log, err) // a failed instrument does nothing
	}
}

// Answered implements event.Observer.
func (t *Telemetry) Answered() {
	select {
	case t.answered <- struct{}{}:
	default: // the next export includes this answer
	}
}

// exportAfterAnswers exports after answers until t.stop is closed.
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

// Shutdown exports the rest and stops exporting. Call it once. An error, which may be
// ctx's, means that data is lost.
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
		return fmt.Errorf("export remaining telemetry: %w", err)
	}
	return nil
}
