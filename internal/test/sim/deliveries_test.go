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

// settleTimeout is the budget of one delivery, as the function's handler sets it.
const settleTimeout = 25 * time.Second

// What Pub/Sub does.
var (
	aMessage    = oneOfMany("message", func(m *Message) string { return m.ID })
	aDeadLetter = oneOfMany("dead letter", func(m *Message) string { return m.ID })
	anInstance  = oneOfMany("instance", (*instance).String)

	answersToPubSub = weighted("the answer to Pub/Sub", 8, "arrives", 1, "is lost", 1, "is lost, and Pub/Sub notices at the deadline")
)

// delivery is a push that an instance works on.
type delivery struct {
	push  *Push
	by    *instance
	means meaning
	leave func()
	// harmed tells that a fault was drawn that can keep the delivery from its end.
	harmed bool
	// left tells that nobody waits for the answer, and asked that the store was asked
	// to settle.
	left, asked bool
}

// order orders deliveries that do something at the same time; nil, which is no
// delivery, comes first.
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

type deliveryKey struct{}

func (w *world) anInstance() *instance {
	if len(w.instances) == 0 {
		return w.start()
	}
	return pick(w, anInstance, w.instances)
}

// waiting draws a message that is to be pushed; something is published if there
// is none.
func (w *world) waiting() *Message {
	waiting := w.pubsub.Waiting(time.Now())
	if len(waiting) == 0 {
		return w.publish()
	}
	return pick(w, aMessage, waiting)
}

// push pushes a message to an instance.
func (w *world) push(m *Message, p *instance) {
	push := w.pubsub.Push(m, time.Now())
	d := &delivery{push: push, by: p, means: w.producer.meanings[m.ID]}
	w.tell("message %s is pushed to %s, attempt %d", m.ID, p, push.Attempt)
	w.seen["push"]++
	if len(m.Pushes) > 1 {
		w.seen["push of a message that is under way"]++
	}
	w.deliveries = append(w.deliveries, d)
	if p.stopping {
		w.seen["push to an instance that stops"]++
		w.unanswered(d, "503: the instance is stopping")
		return
	}
	d.harmed = p.service.Banking == nil && d.means.content.creditor != ""
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), deliveryKey{}, d), settleTimeout)
	d.leave = cancel
	in := settle.Delivery{Attempt: push.Attempt, Message: settle.Message{
		ID: m.ID, Subscription: "payouts", PublishTime: m.PublishTime, Data: m.Data,
	}}
	if d.means.reason == payout.ReasonUnsupportedEvent { // as the event's reader hands it over
		in.Message.Data, in.Message.Fingerprint = fmt.Appendf(nil, "%s, attempt %d", m.Data, push.Attempt), m.Data
		in.Refusal = &payout.Refusal{Reason: d.means.reason}
	}
	w.launch(p, d, func() func() {
		defer cancel()
		r, err := p.service.Deliver(ctx, in)
		return func() { w.delivered(d, r, err) }
	})
}

// delivered takes in what a delivery came to, and draws what Pub/Sub hears of it.
func (w *world) delivered(d *delivery, r settle.Result, err error) {
	status := "200"
	if err != nil {
		status = "500"
		w.oracle.refused(d, err)
	} else {
		w.oracle.acknowledged(d, r)
		if r.Outcome == settle.OutcomeDuplicate && !d.asked {
			w.seen["duplicate that another delivery found out"]++
		}
	}
	w.tell("%s answers %s to message %s: %s", d.by, status, d.push.Message.ID, r.Outcome)
	if !d.push.Waits() {
		w.tell("  Pub/Sub does not wait for that answer any more")
		w.seen["answer that comes too late"]++
		return
	}
	how := "arrives"
	if !w.calm {
		how = draw(w, answersToPubSub)
	}
	switch {
	case how == "is lost, and Pub/Sub notices at the deadline":
		w.tell("  that answer is lost")
		w.seen["lost answer "+status]++
	case how == "is lost":
		w.seen["lost answer "+status]++
		w.unanswered(d, "that answer is lost")
	case err != nil:
		w.unanswered(d, "500")
	default:
		w.over(d)
		w.pubsub.Ack(d.push)
		w.seen["acknowledged"]++
		w.oracle.acked(d)
	}
}

// unanswered tells Pub/Sub that a push has failed, and the instance that nobody
// waits for it.
func (w *world) unanswered(d *delivery, why string) {
	w.over(d)
	w.tell("the push of message %s has failed: %s", d.push.Message.ID, why)
	if d.leave != nil {
		d.left = true
		d.leave()
	}
	if dead := w.pubsub.Nack(d.push, time.Now()); dead != nil {
		w.tell("message %s is dead-lettered after %d attempts", d.push.Message.ID, d.push.Message.Attempts)
		w.seen["dead-lettered"]++
		w.means(dead, d.means)
		w.oracle.deadLettered(d)
	}
}

func (w *world) over(d *delivery) {
	w.deliveries = slices.DeleteFunc(w.deliveries, func(o *delivery) bool { return o == d })
}

// leaveAll breaks the connections of all pushes that are under way.
func (w *world) leaveAll() {
	for _, d := range slices.Clone(w.deliveries) {
		w.unanswered(d, "the connection breaks")
	}
}

// failUntilDead pushes a message, with no answer from the store, until it is
// dead-lettered or acknowledged after all: an earlier push can be under way.
func (w *world) failUntilDead() {
	m := w.waiting()
	w.tell("from now on no commit for message %s succeeds", m.ID)
	for !m.Acked && m.Attempts < w.pubsub.MaxAttempts+1 {
		w.pass(max(time.Until(m.NotBefore), 0))
		w.push(m, w.anInstance())
		for _, c := range slices.Clone(w.calls) {
			if c.delivery != nil && c.delivery.push.Message == m && c.op != nil {
				c.err = errLost
				w.answer(c)
			}
		}
	}
	w.tell("commits succeed again")
}

// redrive publishes a dead letter on the topic again.
func (w *world) redrive(dead *Message) {
	m := w.pubsub.Redrive(dead, time.Now())
	w.means(m, w.producer.meanings[dead.ID])
	w.tell("the dead letter of message %s is published again, as message %s", dead.DeadLetterOf, m.ID)
	w.seen["redriven"]++
}

// seek brings back all messages from a time on that is drawn.
func (w *world) seek() {
	n := w.pubsub.Seekable()
	if n == 0 {
		return
	}
	to := pick(w, aMessage, w.pubsub.Messages[:n])
	back := w.pubsub.Seek(to.PublishTime)
	w.tell("the subscription is sought back: %d messages come again", len(back))
	w.seen["seek"]++
	for _, m := range back {
		w.oracle.sought(m)
	}
}
