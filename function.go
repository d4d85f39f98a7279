// Package settleonce registers the two functions of Settle Once with the
// Functions Framework and wires them up; what they do stands in internal/.
//
//   - SettlePayout, triggered by the payouts topic, settles each payout message
//     exactly once in Spanner.
//   - ReconcileBank, triggered by the reconcile topic, looks after bank
//     instructions that are due.
//
// Both are HTTP functions that read the event themselves; package
// internal/event says why functions.CloudEvent is not used. The configuration
// comes from the environment, see internal/config.
package settleonce

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/GoogleCloudPlatform/functions-framework-go/functions"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/telemetry"
)

const (
	// reconcileBatch bounds the bank instructions that a run of ReconcileBank lists
	// at once.
	reconcileBatch = 1000
	// reconcileTimeout is the least time of a run. One that is still going when the
	// next begins is harmless.
	reconcileTimeout = 2 * time.Minute
	// drainLimit is how long an instance that is told to stop waits for the
	// deliveries it has begun, exportLimit how long it then exports what it has
	// measured. The platform kills it after 10 seconds.
	drainLimit  = 7 * time.Second
	exportLimit = 2 * time.Second
)

func init() {
	refuseToStartMisconfigured()
	var i instance
	//nolint:contextcheck // the instance, which the first request wires, outlives the request
	functions.HTTP("SettlePayout", func(w http.ResponseWriter, r *http.Request) { i.wired().settle.ServeHTTP(w, r) })
	//nolint:contextcheck // likewise
	functions.HTTP("ReconcileBank", func(w http.ResponseWriter, r *http.Request) { i.wired().reconcile.ServeHTTP(w, r) })
}

// refuseToStartMisconfigured ends a deployed instance whose configuration is
// wrong. The deployment then fails, and the revision before it goes on serving.
// K_SERVICE is how the platform tells a program that it is deployed.
func refuseToStartMisconfigured() {
	if _, deployed := os.LookupEnv("K_SERVICE"); !deployed {
		return
	}
	if _, err := config.FromEnv(os.LookupEnv); err != nil {
		event.NewLogger(os.Stderr, slog.LevelInfo).Error("configuration error", slog.String("error", err.Error()))
		os.Exit(1)
	}
}

// instance is what one instance of the function keeps between requests. It is
// wired by its first request, because the environment of a test or of the local
// run is complete only then.
type instance struct {
	once     sync.Once
	handlers handlers
}

// handlers serve the two functions.
type handlers struct{ settle, reconcile http.Handler }

// wired returns the handlers. Nothing is connected here: the store opens the
// database in its first call, and again after a failure.
func (i *instance) wired() handlers {
	i.once.Do(func() {
		cfg, err := config.FromEnv(os.LookupEnv)
		if err == nil {
			i.handlers, err = wire(cfg)
		}
		if err != nil {
			i.handlers = misconfigured{err}.handlers()
		}
	})
	return i.handlers
}

func wire(cfg config.Config) (handlers, error) {
	log := event.NewLoggerIn(cfg.Project, os.Stderr, cfg.LogLevel)
	measured := newTelemetry(cfg.Telemetry, log)
	store := measured.Store(spannerstore.NewLazy(spannerstore.Config{
		Database: cfg.Database, DatabaseRole: cfg.DatabaseRole, Emulator: cfg.EmulatorHost != "",
	}))
	banking, err := newBanking(cfg.Bank, store, measured, log)
	if err != nil {
		return handlers{}, err
	}
	var observer event.Observer
	if measured != nil {
		observer = measured
	}
	gate := &event.Drainer{}
	go drainOnTermination(gate, measured, log)

	service := &settle.Service{Store: store, Banking: banking, DefaultCurrency: cfg.DefaultCurrency, NewID: uuid.NewString, Now: time.Now}
	reconciler := &transfer.Reconciler{
		Store: store, Banking: banking, Now: time.Now, Limit: reconcileBatch, Concurrency: cfg.BankConcurrency, Margin: banking.Longest(),
	}
	// The store may read again after the deadline, and the whole has to stay
	// within the budget of one delivery.
	budget := cfg.SettleTimeout - spannerstore.RereadTimeout
	return handlers{
		settle: &event.Handler{Deliverer: service, Log: log, Now: time.Now, Timeout: budget, Gate: gate, Observer: observer},
		reconcile: &event.ReconcileHandler{
			Reconciler: reconciler, Log: log, Now: time.Now, Timeout: max(reconcileTimeout, 2*banking.Longest()), Gate: gate, Observer: observer,
		},
	}, nil
}

// newTelemetry returns what measures; nil where nothing is exported.
func newTelemetry(cfg config.Telemetry, log *slog.Logger) *telemetry.Telemetry {
	return telemetry.New(context.Background(), telemetry.Config{
		Traces: cfg.Traces, Metrics: cfg.Metrics, Service: cfg.Service, Revision: cfg.Revision,
		InstanceID: uuid.NewString(), Now: time.Now, Log: log,
	})
}

// newBanking returns what looks after bank instructions; nil where no bank is
// configured.
func newBanking(cfg *bank.Config, store telemetry.Store, measured *telemetry.Telemetry, log *slog.Logger) (*transfer.Stepper, error) {
	if cfg == nil {
		return nil, nil //nolint:nilnil // no bank is a configuration, not a fault
	}
	clocked := *cfg
	clocked.Now = time.Now
	client, err := bank.New(clocked)
	if err != nil {
		return nil, err
	}
	return &transfer.Stepper{Store: store, Bank: measured.Bank(client), Policy: cfg.Policy(), NewID: uuid.NewString, Now: time.Now, Log: log}, nil
}

// misconfigured is a function whose configuration is wrong. It fails every
// delivery, so that messages stay in the subscription until the configuration is
// right.
type misconfigured struct{ err error }

func (m misconfigured) Deliver(context.Context, settle.Delivery) (settle.Result, error) {
	return settle.Result{}, m.err
}

func (m misconfigured) Reconcile(context.Context) (transfer.Reconciled, error) {
	return transfer.Reconciled{}, m.err
}

func (m misconfigured) handlers() handlers {
	log := event.NewLogger(os.Stderr, slog.LevelInfo)
	return handlers{
		settle:    &event.Handler{Deliverer: m, Log: log, Now: time.Now},
		reconcile: &event.ReconcileHandler{Reconciler: m, Log: log, Now: time.Now},
	}
}

// drainOnTermination waits for SIGTERM, lets the deliveries that have begun end
// while new ones are turned away, exports what was measured, and then ends the
// process by the same signal.
func drainOnTermination(gate *event.Drainer, measured *telemetry.Telemetry, log *slog.Logger) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	if err := gate.Drain(ctx); err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "stopping before all deliveries ended", slog.String("error", err.Error()))
	}
	ctx, cancelExport := context.WithTimeout(context.Background(), exportLimit)
	defer cancelExport()
	if err := measured.Shutdown(ctx); err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "telemetry not exported", slog.String("error", err.Error()))
	}
	stop() // the signal has its ordinary effect again
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}
