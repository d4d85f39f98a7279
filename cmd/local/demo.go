package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/fakebank"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

const (
	anyPort = "127.0.0.1:0"

	// messageLimit bounds the wait for the acknowledgement of one message.
	messageLimit = 20 * time.Second
)

// demoRetries redeliver what was lost while a person looks on.
var demoRetries = retries{minBackoff: 50 * time.Millisecond, maxBackoff: time.Second, attempts: 10}

func newDemo(s streams) *cobra.Command {
	var memory bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Settle a sample of messages and show the ledger",
		Long: `demo publishes a sample of messages through the Pub/Sub emulator to the function
under the functions framework, on free ports: fresh payouts, payouts delivered
again because the answer got lost, published again, changed, and malformed ones,
and payouts that a bank has to pay. The bank is a fake one in this process that
loses answers, requests and transfers on purpose. Time is made to pass, and the
reconciler runs, until every bank instruction has come to its end.

It prints what became of every delivery and what the ledger in Spanner holds, and
checks that these and the fake bank's own ledger agree with each other, transfer by
transfer, and with what the sample expects. The log goes to standard error: one
line, of the bank instruction that somebody has to look at.

Where no Spanner emulator is to be had the ledger is in memory and the topic in
this process, as with --memory; where only the Pub/Sub emulator is missing, the
topic is in this process. The first and the last line of the output say so.

Exit codes: 0 all agree, 1 something does not or failed, 2 wrong usage, 130
interrupted.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return demo(cmd.Context(), sampleFile, memory, s) },
	}
	cmd.Flags().BoolVar(&memory, "memory", false, "no emulators: ledger and topic in this process")
	return cmd
}

// demo settles the sample and prints the report. What does not agree is
// printed, and makes it return errWrong.
func demo(ctx context.Context, sample []byte, memory bool, s streams) (err error) {
	rows, err := parseSample(sample)
	if err != nil {
		return err
	}
	p, log := newProgress(s), &heldLog{}
	defer func() { // does nothing after the first time
		p.stop()
		log.release(s.err)
	}()
	sys := &system{project: projectID()}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	instead, err := sys.startParts(ctx, memory, p)
	if err != nil {
		return err
	}
	if sys.memory == nil {
		if err := log.takeStderr(); err != nil {
			return err
		}
	}
	happened, err := sys.settleSample(ctx, rows, p, log)
	p.stop()
	log.release(s.err)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	out := printer{out: s.out}
	out.intro(sys, instead)
	if err != nil {
		out.line("wrong: %v", err)
		out.outro(instead)
		return errors.Join(out.err, errWrong)
	}
	faults := verify(rows, happened)
	out.deliveries(rows, happened.deliveries)
	out.ledger(happened.stored)
	out.reconciliations(happened.runs)
	out.instructions(happened)
	out.verdict(rows, happened, faults)
	out.outro(instead)
	if len(faults) > 0 {
		return errors.Join(out.err, errWrong)
	}
	return out.err
}

// startParts starts the emulators, or what takes their place; instead says what
// that is, and is zero where nothing is missing.
func (sys *system) startParts(ctx context.Context, memory bool, p *progressBar) (instead replacement, err error) {
	if memory {
		sys.memory = memstore.New(sys.clock.Now)
		return replacement{}, nil
	}
	p.phase("Spanner emulator", 0)
	switch err := sys.startSpanner(ctx); {
	case errors.Is(err, emulator.ErrNotFound):
		p.missing()
		sys.memory = memstore.New(sys.clock.Now)
		return replacement{insteadOfSpanner, err}, nil
	case err != nil:
		return replacement{}, err
	}
	p.phase("Pub/Sub emulator", 0)
	switch err := sys.startPubSub(ctx); {
	case errors.Is(err, emulator.ErrNotFound):
		p.missing()
		return replacement{insteadOfPubSub, err}, nil
	case err != nil:
		return replacement{}, err
	}
	return replacement{}, nil
}

// saw is what the demo saw happen.
type saw struct {
	deliveries []delivery
	runs       []reconciliation
	// stored is what the ledger holds in the end, atBank and violations what the
	// fake bank says of itself.
	stored     audit.Snapshot
	atBank     []fakebank.Transfer
	violations []string
}

// demoEnvironment is the functions' environment in the demo. What the sample and
// the passages of time count on is as it is by default, whatever the process's
// environment says.
func demoEnvironment() environment {
	return environment{
		fixed: map[string]string{
			config.EnvDefaultCurrency: "USD",
			config.EnvBankKeyLifetime: "", config.EnvBankVisibilityLag: "", config.EnvBankSendTimeout: "", config.EnvBankStatusTimeout: "",
		},
		defaults: map[string]string{config.EnvLogLevel: "ERROR"}, // the tables tell the rest
	}
}

// settleSample publishes the sample, lets time pass and returns what became of
// it. The log of functions in memory goes to log.
func (sys *system) settleSample(ctx context.Context, rows []row, p *progressBar, log io.Writer) (all saw, err error) {
	if err := sys.startBank(ctx); err != nil {
		return saw{}, err
	}
	expectAtBank(sys.bank, rows)
	s := streams{err: log}
	if err := sys.startFunctions(ctx, anyPort, demoEnvironment(), s); err != nil {
		return saw{}, err
	}
	payouts, ticks := newRelay(sys.functions.base+pathSettle), newRelay(sys.functions.base+pathReconcile)
	mux := http.NewServeMux()
	mux.Handle(pathSettle, payouts)
	mux.Handle(pathReconcile, ticks)
	l, err := listenLocal(ctx, anyPort)
	if err != nil {
		return saw{}, err
	}
	server := serveLocal(l, mux)
	defer func() { _ = server.abort() }() // closed below already, unless something failed
	payoutTopic, err := sys.openDemoTopic(ctx, topicPayouts, server.base+pathSettle, s)
	if err != nil {
		return saw{}, err
	}
	tickTopic, err := sys.openDemoTopic(ctx, topicReconcile, server.base+pathReconcile, s)
	if err != nil {
		return saw{}, err
	}
	if err := publishSample(ctx, rows, payoutTopic, payouts, p); err != nil {
		return saw{}, err
	}
	if all.runs, err = sys.reconcileAll(ctx, tickTopic, ticks, p); err != nil {
		return saw{}, err
	}
	// From here on nothing is delivered any more, not even once too often.
	if err := server.close(ctx); err != nil {
		return saw{}, fmt.Errorf("close the relay: %w", err)
	}
	all.deliveries = payouts.deliveries()
	all.atBank, all.violations = sys.bank.Ledger(), sys.bank.Violations()
	all.stored, err = sys.read(ctx)
	return all, err
}

// expectAtBank tells the bank which settlement each key is of, so that it
// notices when one is paid under two keys.
func expectAtBank(bank *fakebank.Bank, rows []row) {
	for _, r := range rows {
		if len(r.Way) > 0 {
			bank.Expect(r.settlementID(), transfer.InstructionKey(r.settlementID()).String())
		}
	}
}

// openDemoTopic opens the topic id, which delivers to endpoint, a relay.
func (sys *system) openDemoTopic(ctx context.Context, id, endpoint string, s streams) (topic, error) {
	if sys.pubsub == nil {
		return sys.openMemoryTopic(ctx, id, endpoint, demoRetries, event.NewLogger(s.err, sys.cfg.LogLevel)), nil
	}
	if err := sys.subscribe(ctx, id, endpoint, demoRetries); err != nil {
		return nil, err
	}
	return sys.openTopic(ctx, id)
}

// publishSample publishes the rows. Those of one settlement follow one another,
// each when what was before it is acknowledged: which of two messages is the
// first decides which of them is the duplicate. Settlements do not wait for each
// other.
func publishSample(ctx context.Context, rows []row, t topic, r *relay, p *progressBar) error {
	p.phase("settling", publications(rows))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var publishing sync.WaitGroup
	for _, chain := range chains(rows) {
		publishing.Go(func() {
			for _, i := range chain {
				if err := publishRow(ctx, i, rows[i], t, r, p); err != nil {
					cancel(err) // the first error counts; the others come from it
					return
				}
			}
		})
	}
	publishing.Wait()
	p.say("settling")
	return context.Cause(ctx)
}

func publishRow(ctx context.Context, index int, row row, t topic, r *relay, p *progressBar) error {
	data, err := row.message()
	if err != nil {
		return err
	}
	for publication := range row.Publish {
		if err := publishOne(ctx, data, t, r, plan{index, publication, row.LoseAnswers}); err != nil {
			return fmt.Errorf("settle %q: %w", row.Name, err)
		}
		p.step()
		p.say("settling: " + row.Name)
	}
	return nil
}

// publishOne publishes a message and returns when it is acknowledged.
func publishOne(ctx context.Context, data []byte, t topic, r *relay, what plan) error {
	ctx, cancel := context.WithTimeoutCause(ctx, messageLimit, fmt.Errorf("gave up after %s", messageLimit))
	defer cancel()
	id, err := t.Publish(ctx, data)
	if err != nil {
		return err
	}
	r.expect(id, what)
	return r.awaitAcknowledged(ctx, id)
}
