package linear

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Workload publishes messages and delivers them as Pub/Sub does: several at a time,
// roughly in the order of publishing, again until a delivery has an outcome, and now and
// then again after that. A tenth of the first deliveries never arrive. All fields are
// required.
type Workload struct {
	// Name begins the settlement IDs, and distinguishes workloads.
	Name string
	// Settlements is the number of settlement IDs, Messages the number of messages for
	// each. Their payloads are random.
	Settlements, Messages int
	// Malformed is the number of messages that are no payouts.
	Malformed int
	// Workers is the number of concurrent deliveries.
	Workers int
	// Again is the number of acknowledged deliveries of which one, on average, is
	// followed by a redelivery.
	Again int
	// IntN returns a random number from 0 to n-1. One goroutine at a time calls it.
	IntN func(n int) int
}

// Message is a published message.
type Message struct {
	ID           string
	SettlementID string
	Payload      Payload
	// Attempt is the number of the delivery, from 1.
	Attempt int
}

// Data returns the message's data.
func (m Message) Data() string { return m.Payload.Message(m.SettlementID) }

// Run delivers all messages until each is acknowledged, and records the deliveries in h.
// deliver makes one delivery; many goroutines call it.
func (w Workload) Run(ctx context.Context, h *History, deliver func(context.Context, Message) Answer) {
	q := w.publish()
	var workers sync.WaitGroup
	for range w.Workers {
		workers.Go(func() {
			for m, ok := q.pull(); ok && ctx.Err() == nil; m, ok = q.pull() {
				operation := h.Deliver(m)
				answer := deliver(ctx, m)
				operation.End(answer)
				q.end(m, answer.Outcome.Final())
			}
		})
	}
	workers.Wait()
}

// publish returns a subscription with all messages.
func (w Workload) publish() *subscription {
	q := &subscription{again: w.Again, window: 2 * w.Workers, intN: w.IntN}
	for s := range w.Settlements {
		for m := range w.Messages {
			q.backlog = append(q.backlog, Message{
				ID:           fmt.Sprintf("%d-%d", s+1, m+1),
				SettlementID: fmt.Sprintf("%s-%d", w.Name, s+1),
				Payload:      Payloads[w.IntN(len(Payloads))],
				Attempt:      max(0, 1-w.IntN(10)),
			})
		}
	}
	for m := range w.Malformed {
		id := fmt.Sprintf("%s-malformed-%d", w.Name, m+1)
		q.backlog = append(q.backlog, Message{ID: id, SettlementID: id, Payload: Malformed})
	}
	return q
}

type subscription struct {
	again  int
	window int // number of oldest messages from which the next one is drawn
	intN   func(n int) int

	mu      sync.Mutex
	backlog []Message
}

// pull takes a message out; ok is false when the backlog is empty. A worker that returns
// a message pulls again, so every message is delivered.
func (q *subscription) pull() (m Message, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.backlog) == 0 {
		return Message{}, false
	}
	i := q.intN(min(q.window, len(q.backlog)))
	m = q.backlog[i]
	q.backlog = slices.Delete(q.backlog, i, i+1)
	m.Attempt++
	return m, true
}

// end returns a message for redelivery if it was not acknowledged, and sometimes if it was.
func (q *subscription) end(m Message, acknowledged bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !acknowledged || q.intN(q.again) == 0 {
		i := q.intN(min(q.window, 1+len(q.backlog)))
		q.backlog = slices.Insert(q.backlog, i, m)
	}
}
