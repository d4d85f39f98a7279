package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

var (
	errCrashed = errors.New("the instance has crashed")
	errLost    = errors.New("the store cannot be reached")
	errAborted = errors.New("the transaction was aborted")
)

var (
	skews = oneOf("clock of an instance", 0, MaxSkew, -MaxSkew, 2*time.Second, -1500*time.Millisecond)
	setUp = weighted("configuration of an instance", 20, asItShouldBe, 1, withoutABank, 1, withAnotherDefault)
)

const (
	asItShouldBe       = "as it should be"
	withoutABank       = "without a bank"
	withAnotherDefault = "with EUR as the default currency"
)

// instance is one life of an instance of the program: it begins anywhere, and ends
// by a crash or by being stopped.
type instance struct {
	w        *world
	n        int          // counts the lives
	ahead    atomic.Int64 // of its clock, as a time.Duration; its goroutines read it at any time
	stopping bool
	dead     atomic.Bool
	active   int // activities that have not ended

	service    *settle.Service
	reconciler *transfer.Reconciler
}

// start starts an instance.
func (w *world) start() *instance {
	w.lives++
	p := &instance{w: w, n: w.lives}
	p.setClock(draw(w, skews))
	setup := draw(w, setUp)
	id := func() string { return strconv.FormatInt(w.ids.Add(1), 10) }
	banking := &transfer.Stepper{Store: p, Bank: p, Policy: w.policy, NewID: id, Now: p.now, Log: slog.New(panicHandler{w: w})}
	margin := banking.Longest()
	if setup == withoutABank {
		banking = nil
	}
	currency := "USD"
	if setup == withAnotherDefault {
		currency = "EUR"
	}
	p.service = &settle.Service{Store: p, Banking: banking, DefaultCurrency: currency, NewID: id, Now: p.now}
	p.reconciler = &transfer.Reconciler{Store: p, Banking: banking, Now: p.now, Limit: 4, Concurrency: 2, Margin: margin}
	w.instances = append(w.instances, p)
	w.tell("%s starts%s, its clock is %s", p, unusual(setup, asItShouldBe), ahead(p.skew()))
	w.seen["instance "+setup]++
	w.seen[fmt.Sprintf("%d instances", len(w.instances))]++
	return p
}

// unusual returns the word, after a space, unless it is the usual one.
func unusual(word, usual string) string {
	if word == usual {
		return ""
	}
	return " " + word
}

func ahead(skew time.Duration) string {
	switch {
	case skew > 0:
		return fmt.Sprintf("%v ahead", skew)
	case skew < 0:
		return fmt.Sprintf("%v behind", -skew)
	}
	return "right"
}

// String returns the instance as a story calls it.
func (p *instance) String() string { return "instance " + strconv.Itoa(p.n) }

func (p *instance) setClock(ahead time.Duration) { p.ahead.Store(int64(ahead)) }

func (p *instance) skew() time.Duration { return time.Duration(p.ahead.Load()) }

func (p *instance) now() time.Time { return time.Now().Add(p.skew()) }

// call is a call of Store or Bank that is parked.
type call struct {
	by       *instance
	what     string
	id       string    // settlement ID
	delivery *delivery // that it belongs to, if to any
	// half tells that the call has had its effect, and waits for the answer.
	half bool
	// record tells that the call is to record what the bank has just said.
	record bool

	ctx   context.Context                 //nolint:containedctx // the parked call's own
	op    func(ctx context.Context) error // of a store
	abort func(ctx context.Context)       // runs what op runs, and changes nothing; nil where it runs nothing of ours
	err   error                           // what op said

	send    transfer.SendRequest // of a bank
	limit   time.Time            // the end of its time
	class   transfer.SendClass
	reading transfer.StatusReading
	wait    time.Duration // the bank's Retry-After

	answer chan struct{}
}

// name names the call by what it is about, whoever makes it.
func (c *call) name() string { return strings.TrimSpace(c.what + " " + c.id) }

// String returns the call as a story tells it.
func (c *call) String() string {
	text := map[string]string{
		"settle": "the transaction that settles ", "change": "the transaction that claims ", "quarantine": "the transaction that quarantines",
		"due": "the list of what is due", "backlog": "the look at the backlog", "send": "the send for ", "status": "the question about ",
	}[c.what]
	if c.record {
		text = "the transaction that records the answer about "
	}
	return fmt.Sprintf("%s: %s%s", c.by, text, c.id)
}

// park parks the call until it is answered. It fails where the instance has
// crashed by then.
func (p *instance) park(ctx context.Context, c *call) error {
	c.by, c.ctx, c.answer = p, ctx, make(chan struct{})
	c.delivery, _ = ctx.Value(deliveryKey{}).(*delivery)
	p.w.mu.Lock()
	if p.dead.Load() {
		p.w.mu.Unlock()
		return errCrashed
	}
	p.w.arrived = append(p.w.arrived, c)
	p.w.mu.Unlock()
	<-c.answer
	if p.dead.Load() {
		return errCrashed
	}
	return nil
}

func (p *instance) commit(ctx context.Context, c *call) error {
	if err := p.park(ctx, c); err != nil {
		return err
	}
	return c.err
}

// Settle implements settle.Store.
func (p *instance) Settle(ctx context.Context, s settle.Settlement) (settle.Result, error) {
	var r settle.Result
	err := p.commit(ctx, &call{what: "settle", id: s.Payout.SettlementID, op: func(ctx context.Context) (err error) {
		r, err = p.w.store.Settle(ctx, s)
		p.w.oracle.settled(s, r, err)
		return err
	}})
	if err != nil {
		return settle.Result{}, err
	}
	return r, nil
}

// Quarantine implements settle.Store.
func (p *instance) Quarantine(ctx context.Context, q settle.Quarantined) error {
	return p.commit(ctx, &call{what: "quarantine", op: func(ctx context.Context) error {
		err := p.w.store.Quarantine(ctx, q)
		p.w.oracle.quarantined(q, err)
		return err
	}})
}

// Change implements settle.Store.
func (p *instance) Change(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (transfer.Change, error) {
	var change transfer.Change
	err := p.commit(ctx, &call{
		what: "change", id: id,
		op: func(ctx context.Context) (err error) {
			change, err = p.w.store.Change(ctx, id, decide)
			if err == nil && change.Write {
				p.w.oracle.changed(id, change)
			}
			return err
		},
		abort: func(ctx context.Context) {
			_, _ = p.w.store.Change(ctx, id, func(in transfer.Instruction) (transfer.Change, error) {
				_, _ = decide(in)
				return transfer.Change{}, errAborted
			})
		},
	})
	if err != nil {
		return transfer.Change{}, err
	}
	return change, nil
}

// Due implements settle.Store.
func (p *instance) Due(ctx context.Context, now time.Time, limit int) (ids []string, err error) {
	err = p.commit(ctx, &call{what: "due", op: func(ctx context.Context) (err error) {
		ids, err = p.w.store.Due(ctx, now, limit)
		return err
	}})
	return ids, err
}

// Backlog implements settle.Store.
func (p *instance) Backlog(ctx context.Context) (b transfer.Backlog, err error) {
	err = p.commit(ctx, &call{what: "backlog", op: func(ctx context.Context) (err error) {
		b, err = p.w.store.Backlog(ctx)
		return err
	}})
	return b, err
}

// Compose implements transfer.Bank.
func (p *instance) Compose(pay payout.Payout, key uuid.UUID) ([]byte, error) {
	return Body(pay, key), nil
}

// Send implements transfer.Bank.
func (p *instance) Send(ctx context.Context, r transfer.SendRequest) transfer.SendResult {
	c := &call{what: "send", id: settlementOf(r.Body), send: r, limit: time.Now().Add(p.w.policy.SendTimeout)}
	if p.park(ctx, c) != nil {
		return transfer.SendResult{}
	}
	return transfer.SendResult{Class: c.class, Answer: transfer.BankAnswer{RetryAfter: c.wait}}
}

// Status implements transfer.Bank.
func (p *instance) Status(ctx context.Context, r transfer.StatusRequest) transfer.StatusResult {
	id := p.w.oracle.settlement(r.Key)
	c := &call{what: "status", id: id, send: transfer.SendRequest{Transfer: r.Transfer}, limit: time.Now().Add(p.w.policy.StatusTimeout)}
	if p.park(ctx, c) != nil {
		return transfer.StatusResult{}
	}
	return transfer.StatusResult{Reading: c.reading, Answer: transfer.BankAnswer{RetryAfter: c.wait}}
}

// settlementOf reads the settlement ID from a body, whatever else is in it.
func settlementOf(body []byte) string {
	for i, c := range body {
		if c == ' ' {
			return string(body[:i])
		}
	}
	return ""
}

// panicHandler passes over the log but for the panics that the reconciler has
// outlived.
type panicHandler struct {
	slog.Handler
	w *world
}

func (panicHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= transfer.LevelCritical
}

func (h panicHandler) Handle(_ context.Context, r slog.Record) error {
	attrs := map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		attrs[a.Key] = a.Value.String()
		return true
	})
	if attrs["panic_type"] != "" {
		h.w.mu.Lock()
		defer h.w.mu.Unlock()
		h.w.panicked = fmt.Sprintf("%s: a %s\n%s", r.Message, attrs["panic_type"], strings.ReplaceAll(attrs["stack"], " /", "\n\t/"))
	}
	return nil
}
