package linear

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Workload is a set of messages and how they are delivered, which is as Pub/Sub
// does it: several at a time, roughly in the order of publishing, again after a
// delivery without an outcome until there is one, and now and then again after
// that. All fields are required.
type Workload struct {
	// Name begins the settlement IDs, and tells them apart from those of other
	// workloads.
	Name string
	// Settlements is the number of settlement IDs, Messages that of the messages
	// under each, whose payloads are drawn.
	Settlements, Messages int
	// Workers is how many deliveries there are at a time.
	Workers int
	// Again is of how many acknowledged deliveries one is followed by another of
	// the same message.
	Again int
	// IntN draws a number from 0 to n-1. It is called by one goroutine at a time.
	IntN func(n int) int
}

// Message is a message to be delivered.
type Message struct {
	ID           string
	SettlementID string
	Payload      Payload
}

// Data returns what the message says.
func (m Message) Data() string { return m.Payload.Message(m.SettlementID) }

// Run delivers all messages until each is acknowledged, and records that in h.
// deliver makes one delivery; it is called from many goroutines.
func (w Workload) Run(ctx context.Context, h *History, deliver func(context.Context, Message) Answer) {
	q := w.publish()
	var workers sync.WaitGroup
	for range w.Workers {
		workers.Go(func() {
			for m, more := q.take(); more && ctx.Err() == nil; m, more = q.take() {
				operation := h.Deliver(m)
				answer := deliver(ctx, m)
				operation.End(answer)
				q.settled(m, answer.Outcome.Final())
			}
		})
	}
	workers.Wait()
}

// publish returns the subscription with all messages in it.
func (w Workload) publish() *subscription {
	q := &subscription{again: w.Again, window: 2 * w.Workers, intN: w.IntN}
	for s := range w.Settlements {
		for m := range w.Messages {
			q.waiting = append(q.waiting, Message{
				ID:           fmt.Sprintf("%d-%d", s+1, m+1),
				SettlementID: fmt.Sprintf("%s-%d", w.Name, s+1),
				Payload:      Payloads[w.IntN(len(Payloads))],
			})
		}
	}
	return q
}

// subscription holds the messages that are to be delivered.
type subscription struct {
	again  int
	window int // of so many that wait longest any is delivered next
	intN   func(n int) int

	mu      sync.Mutex
	waiting []Message
}

// take takes a message out; more is false when none is waiting. A worker that
// gives one back takes again, so that none is left behind.
func (q *subscription) take() (m Message, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		return Message{}, false
	}
	i := q.intN(min(q.window, len(q.waiting)))
	m = q.waiting[i]
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return m, true
}

// settled puts a message back that is to be delivered again.
func (q *subscription) settled(m Message, acknowledged bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !acknowledged || q.intN(q.again) == 0 {
		i := q.intN(min(q.window, 1+len(q.waiting)))
		q.waiting = slices.Insert(q.waiting, i, m)
	}
}
