package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle/memstore"
	"github.com/settleonce/settleonce/internal/snapshot"
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
again because the answer got lost, published again, changed, and malformed ones.
It prints what became of every delivery and what the ledger in Spanner holds, and
checks that both agree with each other and with what the sample expects.

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
	p := newProgress(s)
	defer p.stop() // does nothing after the first time
	sys := &system{project: projectID()}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	instead, err := sys.startParts(ctx, memory, p)
	if err != nil {
		return err
	}
	deliveries, stored, err := sys.settleSample(ctx, rows, p, s)
	p.stop()
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
	faults := verify(rows, deliveries, stored)
	out.deliveries(rows, deliveries)
	out.ledger(stored)
	out.verdict(rows, deliveries, stored, faults)
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
		sys.memory = memstore.New(time.Now)
		return replacement{}, nil
	}
	p.phase("Spanner emulator", 0)
	switch err := sys.startSpanner(ctx); {
	case errors.Is(err, emulator.ErrNotFound):
		p.missing()
		sys.memory = memstore.New(time.Now)
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

// settleSample publishes the sample and returns what became of it.
func (sys *system) settleSample(ctx context.Context, rows []row, p *progressBar, s streams) ([]delivery, snapshot.Snapshot, error) {
	env := environment{
		fixed:    map[string]string{config.EnvDefaultCurrency: "USD"}, // the sample counts on it
		defaults: map[string]string{config.EnvLogLevel: "ERROR"},      // the table tells the rest
	}
	if err := sys.startFunctions(ctx, anyPort, env, s); err != nil {
		return nil, snapshot.Snapshot{}, err
	}
	r := newRelay(sys.functions.base + pathSettle)
	l, err := listenLocal(ctx, anyPort)
	if err != nil {
		return nil, snapshot.Snapshot{}, err
	}
	server := serveLocal(l, r)
	defer func() { _ = server.abort() }() // closed below already, unless something failed
	t, err := sys.openDemoTopic(ctx, l.Addr(), s)
	if err != nil {
		return nil, snapshot.Snapshot{}, err
	}
	if err := publishSample(ctx, rows, t, r, p); err != nil {
		return nil, snapshot.Snapshot{}, err
	}
	// From here on nothing is delivered any more, not even once too often.
	if err := server.close(ctx); err != nil {
		return nil, snapshot.Snapshot{}, fmt.Errorf("close the relay: %w", err)
	}
	stored, err := sys.read(ctx)
	return r.deliveries(), stored, err
}

// openDemoTopic opens the topic that delivers to the relay.
func (sys *system) openDemoTopic(ctx context.Context, relay net.Addr, s streams) (topic, error) {
	endpoint := "http://" + relay.String() + pathSettle
	if sys.pubsub == nil {
		return sys.openMemoryTopic(ctx, topicPayouts, endpoint, demoRetries, event.NewLogger(s.err, sys.cfg.LogLevel)), nil
	}
	if err := sys.subscribe(ctx, topicPayouts, endpoint, demoRetries); err != nil {
		return nil, err
	}
	return sys.openTopic(ctx, topicPayouts)
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
