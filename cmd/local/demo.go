package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/crash"
)

// messageLimit bounds the wait for the acknowledgement of one message.
const messageLimit = 20 * time.Second

// demoRetries has delays of at most a second, because a person waits for the demo.
var demoRetries = retries{minBackoff: 50 * time.Millisecond, maxBackoff: time.Second, attempts: 10}

// advances are the steps of the demo's clock, each followed by a run of
// ReconcileBank. The first status check is due 15 s after a send, the next about
// 30 s and the next about 2 minutes later. A not-found counts only after the send's
// deadline, so the third run has the second one that counts, and sends again. The
// fourth run asks about that send. A confirmed transfer is asked about daily.
var advances = []time.Duration{20 * time.Second, 40 * time.Second, 150 * time.Second, 20 * time.Second, 72 * time.Hour}

var errDisagree = errors.New("the demo found differences; its output lists them")

func newDemo(s term.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Settle a sample of messages and show the ledger",
		Long: `Publish a sample of messages through the Pub/Sub emulator to the function under
the Functions Framework, on free ports: fresh payouts, redelivered, republished,
changed and malformed ones, and payouts for the bank. The fake bank loses answers,
requests and transfers on purpose. The demo advances the clock and runs the
reconciler until every bank instruction has reached its last state.

It prints every answer, the ledger in Spanner and the bank's transfers. It checks
that answers, ledger and sample agree, verifies every row as 'settlectl verify
--bank' does, and compares the ledger with the bank transfer by transfer. The log
goes to standard error: one line, about the instruction that needs a decision.

Exit codes: 0 all agree, 1 a difference or a failure, 2 usage error, 130
interrupted.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return demo(cmd.Context(), s) },
	}
}

// demo settles the sample and prints the report.
func demo(ctx context.Context, s term.Streams) (err error) {
	messages, err := parseSample(sampleFile)
	if err != nil {
		return err
	}
	release, err := holdStderr(s.Err)
	if err != nil {
		return err
	}
	defer release()
	progress := term.StartProgress(s, "local", 44)
	defer func() { progress.Stop(err == nil) }() // without effect after the first call
	sys := newSystem()
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	// The sample and the clock's advances rely on these values.
	variables := map[string]string{
		config.EnvDefaultCurrency: "USD",
		config.EnvBankKeyLifetime: "", config.EnvBankVisibilityLag: "", config.EnvBankSendTimeout: "", config.EnvBankStatusTimeout: "",
	}
	if err := sys.start(ctx, anyPort, variables, progress); err != nil {
		return err
	}
	seen, err := sys.settleSample(ctx, messages, progress)
	if err != nil {
		return err
	}
	progress.Stop(true)
	return report(s.Out, sys, messages, seen)
}

// minor matches the lines of the functions below ERROR.
var minor = regexp.MustCompile(`"severity":"(DEBUG|INFO|WARNING)"`)

// holdStderr holds everything written to os.Stderr, where the functions log, until
// release: log lines between the progress bars would garble both. Unless LOG_LEVEL is set,
// release drops the lines below ERROR.
func holdStderr(to io.Writer) (release func(), err error) {
	held, err := os.CreateTemp("", "settleonce-log-")
	if err == nil {
		err = os.Remove(held.Name()) // the open file stays usable, and nothing is left behind
	}
	if err != nil {
		return nil, fmt.Errorf("hold the log: %w", err)
	}
	stderr := os.Stderr
	os.Stderr = held
	return func() {
		os.Stderr = stderr
		_, _ = held.Seek(0, io.SeekStart) // the next call repeats an error
		log, _ := io.ReadAll(held)
		for line := range bytes.Lines(log) {
			if os.Getenv(config.EnvLogLevel) != "" || !minor.Match(line) {
				_, _ = to.Write(line)
			}
		}
	}, nil
}

// result is everything that the demo observes.
type result struct {
	deliveries []delivery
	runs       []reconciliation
	books      crash.State // the ledger and the bank's transfers
	violations []string    // of the bank's own rules
	verified   audit.Summary
	findings   []audit.Finding
}

// reconciliation is a run of ReconcileBank.
type reconciliation struct {
	transfer.Reconciled

	after time.Duration // the clock's advance before the run
}

// settleSample publishes the sample, runs the reconciler, and reads the results.
func (sys *system) settleSample(ctx context.Context, messages []sampleMessage, progress *term.Progress) (seen result, err error) {
	sys.expectTransfers(messages)
	r := newRelay(sys.functionsURL+pathSettle, messages)
	server, url, err := serveLocal(ctx, r)
	if err != nil {
		return seen, err
	}
	defer func() { _ = server.Close() }() // closed below, unless an error comes first
	if err := sys.subscribe(ctx, topicPayouts, url, demoRetries); err != nil {
		return seen, err
	}
	payouts, err := sys.openTopic(ctx, topicPayouts)
	if err != nil {
		return seen, err
	}
	if err := publishSample(ctx, messages, payouts, r, progress); err != nil {
		return seen, err
	}
	client, err := sys.openDatabase(ctx)
	if err != nil {
		return seen, err
	}
	defer client.Close()
	if seen.runs, err = sys.reconcileAll(ctx, client, progress); err != nil {
		return seen, err
	}
	// Pub/Sub may still deliver an acknowledged message again, and change the counts.
	if err := server.Shutdown(ctx); err != nil {
		return seen, fmt.Errorf("close the relay: %w", err)
	}
	seen.deliveries = r.inOrder()
	seen.books.Ledger, seen.books.Requests, seen.violations = sys.bank.Ledger(), sys.bank.Requests(), sys.bank.Violations()
	if seen.books.Snapshot, err = audit.Read(ctx, client); err != nil {
		return seen, err
	}
	seen.verified, seen.findings, err = sys.verify(ctx, client)
	return seen, err
}

// reconcileAll advances the clock step by step, and runs the reconciler after each
// step.
func (sys *system) reconcileAll(ctx context.Context, client *spanner.Client, progress *term.Progress) (runs []reconciliation, err error) {
	progress.Begin("reconciling", int64(len(advances)))
	for _, d := range advances {
		if err := sys.advanceClock(ctx, client, d); err != nil {
			return nil, err
		}
		run, err := reconcile(ctx, sys.functionsURL+pathReconcile)
		if err != nil {
			return nil, err
		}
		runs = append(runs, reconciliation{run, d})
		progress.Step()
	}
	return runs, nil
}

// expectTransfers tells the bank which settlement each key belongs to, so that it
// records a violation if a settlement is paid under two keys.
func (sys *system) expectTransfers(messages []sampleMessage) {
	for _, m := range messages {
		if len(m.States) > 0 {
			sys.bank.Expect(m.settlementID(), transfer.InstructionKey(m.settlementID()).String())
		}
	}
}

// publishSample publishes the messages. Those of one settlement are published one
// after another, each after the acknowledgement of the one before: the order decides
// which one is the duplicate. Settlements do not wait for each other.
func publishSample(ctx context.Context, messages []sampleMessage, payouts topic, r *relay, progress *term.Progress) error {
	progress.Begin("settling", int64(publications(messages)))
	group, ctx := errgroup.WithContext(ctx)
	for _, indexes := range bySettlement(messages) {
		group.Go(func() error {
			for _, i := range indexes {
				for number := range messages[i].Publish {
					if err := publishOne(ctx, messages[i], publication{i, number}, payouts, r); err != nil {
						return fmt.Errorf("settle %q: %w", messages[i].Name, err)
					}
					progress.Step()
					progress.Message("settling: " + messages[i].Name)
				}
			}
			return nil
		})
	}
	defer progress.Message("settling")
	return group.Wait()
}

// publishOne publishes a message and returns when it is acknowledged.
func publishOne(ctx context.Context, m sampleMessage, p publication, payouts topic, r *relay) error {
	ctx, cancel := context.WithTimeoutCause(ctx, messageLimit, fmt.Errorf("gave up after %s", messageLimit))
	defer cancel()
	data, err := m.payload()
	if err != nil {
		return err
	}
	if err := payouts.publish(ctx, data, p.attributes()); err != nil {
		return err
	}
	return r.awaitAcknowledged(ctx, p)
}

// reconcile requests one run of ReconcileBank.
func reconcile(ctx context.Context, url string) (run transfer.Reconciled, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(event.Tick))
	if err != nil {
		return run, err
	}
	resp, err := loopback.Do(req)
	if err != nil {
		return run, fmt.Errorf("reconcile: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return run, fmt.Errorf("reconcile: ReconcileBank answered %s", resp.Status)
	}
	if err := json.UnmarshalRead(resp.Body, &run); err != nil {
		return run, fmt.Errorf("reconcile: read the answer: %w", err)
	}
	return run, nil
}
