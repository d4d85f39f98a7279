// Package settleonce registers the two functions of Settle Once with the
// Functions Framework and wires the packages of internal/.
//
//   - SettlePayout, triggered by the payouts topic, settles each payout message
//     exactly once in Spanner.
//   - ReconcileBank, triggered by the reconcile topic, makes the next step of due
//     bank instructions.
//
// Both are HTTP functions that read the event themselves; the comment of package
// internal/event gives the reason. Package internal/config reads the configuration
// from the environment.
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
	// drainLimit bounds the wait for requests in progress after SIGTERM, exportLimit
	// the export of measurements after that. The platform kills the instance 10
	// seconds after SIGTERM.
	drainLimit  = 7 * time.Second
	exportLimit = 2 * time.Second
)

func init() {
	// A deployed instance with a wrong configuration exits: the deployment fails and the
	// previous revision continues to serve.
	if config.Deployed(os.LookupEnv) {
		if _, err := configuration(); err != nil {
			event.NewLogger(os.Stderr, slog.LevelInfo).Error("instance start rejected", slog.String("error", err.Error()))
			os.Exit(1)
		}
	}
	functions.HTTP(config.SettlePayout, func(w http.ResponseWriter, r *http.Request) { instance().settle.ServeHTTP(w, r) })
	functions.HTTP(config.ReconcileBank, func(w http.ResponseWriter, r *http.Request) { instance().reconcile.ServeHTTP(w, r) })
}

// configuration reads the environment once: at the start of a deployed instance, and
// otherwise at the first request, because tests and the local run set the environment
// after init.
var configuration = sync.OnceValues(func() (config.Config, error) { return config.FromEnv(os.LookupEnv) })

// instance returns the handlers, wired once. It opens no connection: the store opens
// the database in its first call.
var instance = sync.OnceValue(func() handlers {
	cfg, err := configuration()
	if err == nil {
		var wired handlers
		if wired, err = wire(cfg); err == nil {
			return wired
		}
	}
	failing := &event.Handler{Work: event.Misconfigured(err), Log: event.NewLogger(os.Stderr, slog.LevelInfo), Now: time.Now}
	return handlers{settle: failing, reconcile: failing}
})

// handlers serve the two functions.
type handlers struct{ settle, reconcile *event.Handler }

func wire(cfg config.Config) (handlers, error) {
	log := event.NewLoggerIn(cfg.Project, os.Stderr, cfg.LogLevel)
	if cfg.EmulatorHost != "" {
		log.LogAttrs(context.Background(), slog.LevelWarn, "Spanner emulator selected", slog.String("host", cfg.EmulatorHost))
	}
	measured := newTelemetry(cfg.Telemetry, log)
	store := measured.Store(spannerstore.New(spannerstore.Config{
		Database: cfg.Database, DatabaseRole: cfg.DatabaseRole, Emulator: cfg.EmulatorHost != "",
		AttemptTimeout: cfg.SettleTimeout / 3, MaxCommitDelay: cfg.MaxCommitDelay,
	}))
	banking, err := newBanking(cfg.Bank, store, measured, log)
	if err != nil {
		return handlers{}, err
	}
	drainer := &event.Drainer{}
	go drainOnTermination(drainer, measured, log)

	service := &settle.Service{Store: store, Banking: banking, DefaultCurrency: cfg.DefaultCurrency, NewID: uuid.NewString, Now: time.Now}
	reconciler := &transfer.Reconciler{
		Store: store, Banking: banking, Now: time.Now, Limit: reconcileBatch, Concurrency: cfg.BankConcurrency, Margin: banking.Longest(),
	}
	core := event.Handler{Log: log, Now: time.Now, Drainer: drainer}
	if measured != nil {
		core.Observer = measured
	}
	settles, reconciles := core, core
	settles.Work = event.Settle(service)
	// The store may read for RereadTimeout after the deadline; both together have to
	// stay within the budget of one delivery.
	settles.Timeout = cfg.SettleTimeout - spannerstore.RereadTimeout
	reconciles.Work = event.Reconcile(reconciler)
	reconciles.Timeout = cfg.ReconcileTimeout()
	return handlers{settle: &settles, reconcile: &reconciles}, nil
}

// newTelemetry starts the exports; nil if none is configured.
func newTelemetry(cfg config.Telemetry, log *slog.Logger) *telemetry.Telemetry {
	return telemetry.New(context.Background(), telemetry.Config{
		Traces: cfg.Traces, Metrics: cfg.Metrics, Service: cfg.Service, Revision: cfg.Revision,
		InstanceID: uuid.NewString(), Now: time.Now, Log: log,
	})
}

// newBanking returns the stepper of bank instructions; nil if no bank is configured.
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

// drainOnTermination waits for SIGTERM, rejects new requests while the others finish,
// exports the measurements, and then ends the process by the same signal.
func drainOnTermination(drainer *event.Drainer, measured *telemetry.Telemetry, log *slog.Logger) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	if err := drainer.Drain(ctx); err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "instance drain timed out", slog.String("error", err.Error()))
	}
	ctx, cancelExport := context.WithTimeout(context.Background(), exportLimit)
	defer cancelExport()
	if err := measured.Shutdown(ctx); err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "telemetry export failed", slog.String("error", err.Error()))
	}
	stop() // SIGTERM ends the process again
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}
