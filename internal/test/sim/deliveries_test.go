package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// settleTimeout is the deadline of one delivery, as in the function's handler.
const settleTimeout = 25 * time.Second

var (
	aMessage    = oneOfMany("message", func(m *Message) string { return m.ID })
	aDeadLetter = oneOfMany("dead letter", func(m *Message) string { return m.ID })
	anInstance  = oneOfMany("instance", (*instance).String)
	pushAnswers = weighted("push answer", 8, "arrives", 1, "is lost", 1, "is lost, and Pub/Sub notices at the deadline")
)

// delivery is a push that an instance processes.
type delivery struct {
	push    *Push
	by      *instance
	began   time.Time
	meaning meaning
	cancel  func() // nil for a push that the instance rejected
	faulted bool   // a drawn fault can explain a failure of the delivery
	// disconnected says that Pub/Sub no longer waits for the answer.
	disconnected bool
	settling     bool // the delivery has called Store.Settle
}

// order orders deliveries that act at the same instant; nil is no delivery.
func (d *delivery) order() (messageID string, attempt int) {
	if d == nil {
		return "", 0
	}
	return d.push.Message.ID, d.push.Attempt
}

func compareDeliveries(a, b *delivery) int {
	aID, aAttempt := a.order()
	bID, bAttempt := b.order()
	return cmp.Or(cmp.Compare(aID, bID), cmp.Compare(aAttempt, bAttempt))
}

// sharesWith reports whether the deliveries of one instance share a finding or a failure.
func (d *delivery) sharesWith(o *delivery) bool {
	a, b := d.meaning, o.meaning
	return d.by == o.by && a.settlement != "" && a.settlement == b.settlement && a.content == b.content
}

type deliveryKey struct{}

func (w *world) pickInstance() *instance {
	if len(w.instances) == 0 {
		return w.start()
	}
	return pick(w, anInstance, w.instances)
}

// pickWaiting draws a message that is due for a push, or publishes one.
func (w *world) pickWaiting() *Message {
	waiting := w.pubsub.Waiting(time.Now())
	if len(waiting) == 0 {
		return w.publish()
	}
	return pick(w, aMessage, waiting)
}

// push pushes a message to an instance.
func (w *world) push(m *Message, p *instance) {
	push := w.pubsub.Push(m, time.Now())
	d := &delivery{push: push, by: p, began: time.Now(), meaning: w.producer.meanings[m.ID]}
	w.tell("message %s is pushed to %s, attempt %d", m.ID, p, push.Attempt)
	w.seen["push"]++
	if len(m.Pushes) > 1 {
		w.seen["push of a message with another push"]++
	}
	w.deliveries = append(w.deliveries, d)
	if p.stopping {
		w.seen["push to a stopping instance"]++
		w.failPush(d, "503: the instance is stopping")
		return
	}
	d.faulted = p.service.Banking == nil && d.meaning.content.creditor != "" ||
		slices.ContainsFunc(w.running, func(o *delivery) bool { return o.faulted && o.sharesWith(d) })
	w.running = append(w.running, d)
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), deliveryKey{}, d), settleTimeout)
	d.cancel = cancel
	in := settle.Delivery{Attempt: push.Attempt, Message: settle.Message{
		ID: m.ID, Subscription: "payouts", PublishTime: m.PublishTime, Data: m.Data,
	}}
	if d.meaning.reason == payout.ReasonUnsupportedEvent { // as internal/event passes it
		in.Message.Data, in.Message.Fingerprint = fmt.Appendf(nil, "%s, attempt %d", m.Data, push.Attempt), m.Data
		in.Refusal = &payout.Refusal{Reason: d.meaning.reason}
	}
	w.launch(p, d, func() func() {
		defer cancel()
		r, err := p.service.Deliver(turnContext{ctx, w, d}, in) //nolint:contextcheck // turnContext wraps ctx
		return func() { w.delivered(d, r, err) }
	})
}

// delivered checks the result of a delivery, and draws the fate of the answer.
func (w *world) delivered(d *delivery, r settle.Result, err error) {
	status := "200"
	if err != nil {
		status = "500"
		w.oracle.checkFailure(d, err)
	} else {
		w.oracle.checkAcknowledgement(d, r)
		if r.SettlementID != "" && !d.settling {
			w.seen[r.Outcome.String()+" found by another delivery"]++
		}
	}
	w.tell("%s answers %s to message %s: %s", d.by, status, d.push.Message.ID, r.Outcome)
	if !d.push.Waits() {
		w.tell("  Pub/Sub no longer waits for that answer")
		w.seen["late answer"]++
		return
	}
	outcome := "arrives"
	if !w.answersArrive {
		outcome = draw(w, pushAnswers)
	}
	switch {
	case outcome == "is lost, and Pub/Sub notices at the deadline":
		w.tell("  that answer is lost")
		w.seen["lost answer "+status]++
	case outcome == "is lost":
		w.seen["lost answer "+status]++
		w.failPush(d, "that answer is lost")
	case err != nil:
		w.failPush(d, "500")
	default:
		w.endPush(d)
		w.pubsub.Ack(d.push)
		w.seen["acknowledged"]++
		w.oracle.acked[d.push.Message] = true
	}
}

// failPush ends a push in Pub/Sub without a 200, and cancels the instance's context.
func (w *world) failPush(d *delivery, reason string) {
	w.endPush(d)
	w.tell("the push of message %s has failed: %s", d.push.Message.ID, reason)
	if d.cancel != nil {
		d.disconnected = true
		d.cancel()
	}
	if dead := w.pubsub.Nack(d.push, time.Now()); dead != nil {
		w.tell("message %s is dead-lettered after %d attempts", d.push.Message.ID, d.push.Message.Attempts)
		w.seen["dead-lettered"]++
		w.producer.remember(dead, d.meaning)
		w.oracle.checkDeadLetter(d)
	}
}

func (w *world) endPush(d *delivery) {
	w.deliveries = slices.DeleteFunc(w.deliveries, func(o *delivery) bool { return o == d })
}

// disconnect breaks the connections of all pushes.
func (w *world) disconnect() {
	for _, d := range slices.Clone(w.deliveries) {
		w.failPush(d, "the connection breaks")
	}
}

// failUntilDead pushes a message, and fails all its commits, until it is
// dead-lettered. An earlier push can still acknowledge it.
func (w *world) failUntilDead() {
	m := w.pickWaiting()
	w.tell("from now on no commit for message %s succeeds", m.ID)
	for !m.Acked && m.Attempts < w.pubsub.MaxAttempts+1 {
		w.advance(max(time.Until(m.NotBefore), 0))
		w.push(m, w.pickInstance())
		for c := w.callFor(m); c != nil; c = w.callFor(m) {
			c.err = errLost
			w.answer(c)
		}
	}
	w.tell("commits succeed again")
}

// callFor returns a parked call of the store for a message; nil for none.
func (w *world) callFor(m *Message) *call {
	i := slices.IndexFunc(w.calls, func(c *call) bool { return c.delivery != nil && c.delivery.push.Message == m && c.op != nil })
	if i < 0 {
		return nil
	}
	return w.calls[i]
}

// redrive publishes a dead letter again.
func (w *world) redrive(dead *Message) {
	m := w.pubsub.Redrive(dead, time.Now())
	w.producer.remember(m, w.producer.meanings[dead.ID])
	w.tell("the dead letter of message %s is published again, as message %s", dead.DeadLetterOf, m.ID)
	w.seen["redriven"]++
}

// seek draws a message, and seeks back to its publish time.
func (w *world) seek() {
	if n := w.pubsub.Seekable(); n > 0 {
		to := pick(w, aMessage, w.pubsub.Messages[:n])
		w.tell("the subscription seeks back: %d messages are delivered again", w.seekTo(to.PublishTime))
		w.seen["seek"]++
	}
}

func (w *world) seekTo(at time.Time) int {
	back := w.pubsub.Seek(at)
	for _, m := range back {
		delete(w.oracle.acked, m)
		w.seen["message sought back"]++
	}
	return len(back)
}
