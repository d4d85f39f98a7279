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

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// reconcileLimit bounds the bank instructions of one run of ReconcileBank.
const reconcileLimit = 1000

// drainLimit is how long an instance that is told to stop waits for the
// deliveries it has begun. The platform kills it after 10 seconds.
const drainLimit = 8 * time.Second

func init() {
	var i instance
	//nolint:contextcheck // the instance, which the first request wires, outlives the request
	functions.HTTP("SettlePayout", func(w http.ResponseWriter, r *http.Request) { i.wired().settle.ServeHTTP(w, r) })
	//nolint:contextcheck // likewise
	functions.HTTP("ReconcileBank", func(w http.ResponseWriter, r *http.Request) { i.wired().reconcile.ServeHTTP(w, r) })
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
		if err != nil {
			i.handlers = misconfigured(err)
			return
		}
		i.handlers = wire(cfg)
	})
	return i.handlers
}

func wire(cfg config.Config) handlers {
	log := event.NewLogger(os.Stderr, cfg.LogLevel)
	store := spannerstore.NewLazy(spannerstore.Config{Database: cfg.Database, Emulator: cfg.EmulatorHost != ""})
	gate := &event.Gate{}
	go drainOnTermination(gate, log)

	service := &settle.Service{Store: store, DefaultCurrency: cfg.DefaultCurrency, NewID: uuid.NewString, Now: time.Now}
	reconciler := &settle.Reconciler{Store: store, Now: time.Now, Limit: reconcileLimit}
	// The store may read again after the deadline, and the whole has to stay
	// within the budget of one delivery.
	budget := cfg.SettleTimeout - spannerstore.RereadTimeout
	return handlers{
		settle:    &event.Handler{Deliverer: service, Log: log, Now: time.Now, Timeout: budget, Gate: gate},
		reconcile: &event.ReconcileHandler{Reconciler: reconciler, Log: log, Now: time.Now, Timeout: budget, Gate: gate},
	}
}

// misconfigured answers every request with 500, so that messages stay in the
// subscription until the configuration is right, and logs each time what is
// wrong with it.
func misconfigured(err error) handlers {
	log := event.NewLogger(os.Stderr, slog.LevelInfo)
	refuse := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.LogAttrs(r.Context(), slog.LevelError, "configuration error", slog.String("error", err.Error()))
		http.Error(w, `{"outcome":"unknown","error":"not settled: the configuration is wrong; see the log"}`, http.StatusInternalServerError)
	})
	return handlers{settle: refuse, reconcile: refuse}
}

// drainOnTermination waits for SIGTERM, lets the deliveries that have begun end
// while new ones are turned away, and then ends the process by the same signal.
func drainOnTermination(gate *event.Gate, log *slog.Logger) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	if err := gate.Drain(ctx); err != nil {
		log.LogAttrs(ctx, slog.LevelWarn, "stopping before all deliveries ended", slog.String("error", err.Error()))
	}
	stop() // the signal has its ordinary effect again
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}
