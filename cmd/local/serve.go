package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

// serveRetries are like a deployment's, with shorter waits for a person who looks on.
var serveRetries = retries{minBackoff: time.Second, maxBackoff: time.Minute, attempts: 10}

// maxMessageBytes is what Pub/Sub takes as one message's data.
const maxMessageBytes = 10_000_000

func newServe(s streams) *cobra.Command {
	var listen string
	var memory bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "local",
		Short: "The whole of Settle Once on one machine",
		Long: `local runs Settle Once on this machine until it is interrupted: the Spanner
emulator with the schema, the Pub/Sub emulator with the topics, both functions
under the functions framework, a fake bank, and a scheduler that has ReconcileBank
run. With --memory it needs no emulator: the ledger is in memory, and messages are
published by HTTP.

Once everything answers it prints one line of JSON on standard output that says
where, and then help on standard error. The function's log goes there too.

The functions read their configuration from the environment (DEFAULT_CURRENCY,
SETTLE_TIMEOUT, LOG_LEVEL, BANK_KEY_LIFETIME, BANK_VISIBILITY_LAG,
BANK_SEND_TIMEOUT, BANK_STATUS_TIMEOUT); DEFAULT_CURRENCY is USD unless set. The
bank is always the fake one.

Exit codes: 0 interrupted, 1 something failed, 2 wrong usage, 130 interrupted
before everything was ready.`,
		Example: `  go run ./cmd/local
  go run ./cmd/local --listen 127.0.0.1:0 | jq .
  go run ./cmd/local --memory
  go run ./cmd/local demo`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every <= 0 {
				return usageError{fmt.Errorf("--reconcile-every is %s; give a time above 0, such as 15s", every)}
			}
			return serve(cmd.Context(), listen, memory, every, s)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "`address` of the functions; port 0 for a free one")
	cmd.Flags().DurationVar(&every, "reconcile-every", 15*time.Second, "`time` between two runs of ReconcileBank")
	cmd.Flags().BoolVar(&memory, "memory", false, "no emulators: ledger and topic in this process")
	return cmd
}

// ready is the line that says where everything is. What is not there is left out.
type ready struct {
	Ready               bool   `json:"ready"`
	Memory              bool   `json:"memory,omitzero"`
	SettleURL           string `json:"settle_url"`
	ReconcileURL        string `json:"reconcile_url"`
	PublishURL          string `json:"publish_url,omitzero"`
	BankURL             string `json:"bank_url"`
	SpannerEmulatorHost string `json:"spanner_emulator_host,omitzero"`
	SpannerRESTURL      string `json:"spanner_rest_url,omitzero"`
	Database            string `json:"database,omitzero"`
	PubSubEmulatorHost  string `json:"pubsub_emulator_host,omitzero"`
	Topic               string `json:"topic,omitzero"`
}

func serve(ctx context.Context, listen string, memory bool, every time.Duration, s streams) (err error) {
	// Before anything that takes time: a port in use is the likeliest fault.
	l, err := listenLocal(ctx, listen)
	if err != nil {
		return err
	}
	_ = l.Close()
	sys := &system{project: projectID()}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	env := environment{
		fixed:    map[string]string{},
		defaults: map[string]string{config.EnvDefaultCurrency: "USD"},
	}
	if err := sys.startBank(ctx); err != nil {
		return err
	}
	start := sys.startOnEmulators
	if memory {
		start = sys.startInMemory
	}
	line, ticks, err := start(ctx, listen, env, s)
	if err != nil {
		return err
	}
	sys.schedule(ctx, every, ticks, event.NewLogger(s.err, sys.cfg.LogLevel))
	line.Ready, line.BankURL = true, sys.bankURL
	if err := announce(line, s); err != nil {
		return err
	}
	return sys.wait(ctx)
}

// projectID is "local", or one that nobody else has where an emulator is shared
// with others.
func projectID() string {
	if os.Getenv(config.EnvEmulatorHost) == "" && os.Getenv(envPubSubHost) == "" {
		return "local"
	}
	return "local-" + strings.ToLower(rand.Text()[:12])
}

// startOnEmulators returns the topic of the scheduler's ticks beside the ready
// line.
func (sys *system) startOnEmulators(ctx context.Context, listen string, env environment, s streams) (ready, topic, error) {
	if err := sys.startSpanner(ctx); err != nil {
		return ready{}, nil, orInMemory(err)
	}
	if err := sys.startPubSub(ctx); err != nil {
		return ready{}, nil, orInMemory(err)
	}
	if err := sys.startFunctions(ctx, listen, env, s); err != nil {
		return ready{}, nil, err
	}
	base := sys.functions.base
	for id, path := range map[string]string{topicPayouts: pathSettle, topicReconcile: pathReconcile} {
		if err := sys.subscribe(ctx, id, base+path, serveRetries); err != nil {
			return ready{}, nil, err
		}
	}
	ticks, err := sys.openTopic(ctx, topicReconcile)
	return ready{
		SettleURL: base + pathSettle, ReconcileURL: base + pathReconcile,
		SpannerEmulatorHost: sys.spanner.GRPC, SpannerRESTURL: sys.spanner.REST, Database: sys.database,
		PubSubEmulatorHost: sys.pubsub.Host, Topic: sys.topicName(topicPayouts),
	}, ticks, err
}

// orInMemory adds to the error of a missing emulator what also works without.
func orInMemory(err error) error {
	if errors.Is(err, emulator.ErrNotFound) {
		return fmt.Errorf("%w; or run without emulators: --memory", err)
	}
	return err
}

// startInMemory is startOnEmulators without them.
func (sys *system) startInMemory(ctx context.Context, listen string, env environment, s streams) (ready, topic, error) {
	sys.memory = memstore.New(sys.clock.Now)
	if err := sys.startFunctions(ctx, listen, env, s); err != nil {
		return ready{}, nil, err
	}
	base := sys.functions.base
	log := event.NewLogger(s.err, sys.cfg.LogLevel)
	t := sys.openMemoryTopic(ctx, topicPayouts, base+pathSettle, serveRetries, log)
	sys.functions.mux.Handle(http.MethodPost+" "+pathPublish, publishHandler(t))
	line := ready{Memory: true, SettleURL: base + pathSettle, ReconcileURL: base + pathReconcile, PublishURL: base + pathPublish}
	return line, sys.openMemoryTopic(ctx, topicReconcile, base+pathReconcile, serveRetries, log), nil
}

// publishHandler publishes the body of a request, as it is.
func publishHandler(t topic) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessageBytes))
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			http.Error(w, fmt.Sprintf("a message has at most %d bytes", maxMessageBytes), http.StatusRequestEntityTooLarge)
			return
		}
		if err != nil {
			http.Error(w, "the body broke off while it was read", http.StatusBadRequest)
			return
		}
		id, err := t.Publish(r.Context(), data)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, struct {
			MessageID string `json:"message_id"`
		}{id}) // a caller that has gone away does not want it
	}
}
