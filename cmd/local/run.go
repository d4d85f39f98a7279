package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/term"
)

// runRetries has shorter delays and fewer attempts than a deployment (10 s to 600 s, 100
// attempts), so that a failing message is a dead letter after about four minutes.
var runRetries = retries{minBackoff: time.Second, maxBackoff: time.Minute, attempts: 10}

func newRun(s term.Streams) *cobra.Command {
	var (
		listen string
		every  time.Duration
		topics []string
	)
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Run the whole of Settle Once on this machine",
		Long: `Run Settle Once on this machine until interrupted: the Spanner emulator with the
schema, the Pub/Sub emulator with the topics, both functions under the Functions
Framework, a fake bank, and a scheduler that triggers ReconcileBank.

When all of them answer, local prints their addresses as one line of JSON on
standard output, and then help on standard error. The functions log there too.

The functions read DEFAULT_CURRENCY (USD unless set), SETTLE_TIMEOUT, LOG_LEVEL,
BANK_KEY_LIFETIME, BANK_VISIBILITY_LAG, BANK_SEND_TIMEOUT and BANK_STATUS_TIMEOUT
from the environment. The bank is always the fake one. SPANNER_EMULATOR_HOST and
PUBSUB_EMULATOR_HOST name emulators that run already.

Exit codes: 0 interrupted, 1 failed, 2 usage error, 130 interrupted before the
system was ready.`,
		Example: `  make run
  make run ARGS="--listen 127.0.0.1:0" | jq .
  make run ARGS="--topic claims"
  make demo`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every <= 0 {
				return usageError(fmt.Errorf("--reconcile-every is %s; use a time above 0, such as 15s", every))
			}
			if err := checkTopics(topics); err != nil {
				return usageError(err)
			}
			return runSystem(cmd.Context(), listen, every, topics, s)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "`address` of the functions; port 0 for a free one")
	cmd.Flags().DurationVar(&every, "reconcile-every", 15*time.Second, "`time` between two runs of ReconcileBank")
	cmd.Flags().StringArrayVar(&topics, "topic", nil, "`name` of another topic whose messages SettlePayout settles; can be repeated")
	return cmd
}

func checkTopics(names []string) error {
	seen := map[string]bool{topicPayouts: true, topicReconcile: true}
	for _, name := range names {
		if !topicForm.MatchString(name) || seen[name] {
			return fmt.Errorf("--topic is %q; use a name of 3 to 200 letters, digits, dots and dashes that is not in use", name)
		}
		seen[name] = true
	}
	return nil
}

func runSystem(ctx context.Context, listen string, every time.Duration, topics []string, s term.Streams) (err error) {
	sys := newSystem()
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	progress := term.StartProgress(s, "local", 0)
	defer func() { progress.Stop(err == nil) }() // without effect after the first call
	if err := sys.start(ctx, listen, map[string]string{config.EnvDefaultCurrency: cmp.Or(os.Getenv(config.EnvDefaultCurrency), "USD")}, progress); err != nil {
		return err
	}
	paths := map[string]string{topicPayouts: pathSettle, topicReconcile: pathReconcile}
	for _, id := range topics {
		paths[id] = pathSettle
	}
	for id, path := range paths {
		if err := sys.subscribe(ctx, id, sys.functionsURL+path, runRetries); err != nil {
			return err
		}
	}
	if err := sys.schedule(ctx, every, event.NewLogger(s.Err, sys.cfg.LogLevel)); err != nil {
		return err
	}
	progress.Stop(true)
	if err := announce(sys.ready(topics), s); err != nil {
		return err
	}
	return sys.wait(ctx)
}

// schedule publishes a tick to the reconcile topic in the given interval until the
// system is closed, as Cloud Scheduler does.
func (sys *system) schedule(ctx context.Context, every time.Duration, log *slog.Logger) error {
	topic, err := sys.openTopic(ctx, topicReconcile)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := topic.publish(ctx, []byte(event.Tick), nil); err != nil && ctx.Err() == nil {
				log.LogAttrs(ctx, slog.LevelError, "reconcile tick not published", slog.String("error", err.Error()))
			}
		}
	}()
	sys.onClose(func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
	return nil
}
