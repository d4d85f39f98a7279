package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// tickData is the message that asks for a run of the reconciler. What it says
// does not matter; Pub/Sub takes no empty one.
var tickData = []byte(`{"run":"ReconcileBank"}`)

// schedule publishes a tick every so often, as Cloud Scheduler does, until the
// system is closed.
func (sys *system) schedule(ctx context.Context, every time.Duration, t topic, log *slog.Logger) {
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
			if _, err := t.Publish(ctx, tickData); err != nil && ctx.Err() == nil {
				log.LogAttrs(ctx, slog.LevelError, "no tick for the reconciler", slog.String("error", err.Error()))
			}
		}
	}()
	sys.onClose(func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
}

// passages are the times that the demo lets pass, each before a run of the
// reconciler. The first question is 15 s after a send, the next about 30 s and
// the next about 2 minutes later. A not found counts from the send's own deadline
// on, so that it is seen twice at the third of them; the send that follows is
// asked about 15 s later. What is confirmed is asked about daily.
var passages = []time.Duration{20 * time.Second, 40 * time.Second, 150 * time.Second, 20 * time.Second, 72 * time.Hour}

// reconciliation is a run of the reconciler in the demo.
type reconciliation struct {
	after time.Duration // what was let pass before it

	Due    int                    `json:"due"`
	States map[transfer.State]int `json:"states"`
	Failed int                    `json:"failed"`
	Left   int                    `json:"left"`
}

// reconcileAll lets the time pass that the bank instructions need, and has the
// reconciler run after each passage.
func (sys *system) reconcileAll(ctx context.Context, t topic, r *relay, p *progressBar) ([]reconciliation, error) {
	p.phase("bank: time is made to pass", len(passages))
	var runs []reconciliation
	for i, d := range passages {
		if err := sys.letTimePass(ctx, d); err != nil {
			return nil, err
		}
		if err := publishOne(ctx, tickData, t, r, plan{row: i}); err != nil {
			return nil, fmt.Errorf("reconcile: %w", err)
		}
		run := reconciliation{after: d}
		if err := json.Unmarshal(answerToTick(r.deliveries(), i), &run); err != nil {
			return nil, fmt.Errorf("reconcile: read the answer: %w", err)
		}
		runs = append(runs, run)
		p.step()
	}
	return runs, nil
}

// answerToTick is the first answer that acknowledged tick i: a topic can deliver
// it more often, and then there is nothing left to do.
func answerToTick(deliveries []delivery, i int) []byte {
	for _, d := range deliveries {
		if d.row == i && d.status == http.StatusOK {
			return d.text
		}
	}
	return nil
}
