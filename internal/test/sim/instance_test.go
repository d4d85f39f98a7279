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
	errLost    = errors.New("the store is unreachable")
	errAborted = errors.New("the transaction was aborted")
)

var (
	clockOffsets   = oneOf("clock offset", 0, MaxSkew, -MaxSkew, 2*time.Second, -1500*time.Millisecond)
	configurations = weighted("configuration", 20, correct, 1, withoutBank, 1, defaultEUR)
)

const (
	correct     = "correct"
	withoutBank = "without a bank"
	defaultEUR  = "with the default currency EUR"
)

// instance is one instance of the program, from its start to its crash or stop.
type instance struct {
	w        *world
	n        int          // from 1
	offset   atomic.Int64 // of its clock, a time.Duration; its goroutines read it at any time
	stopping bool
	crashed  atomic.Bool
	active   int // activities that have not ended

	service    *settle.Service
	reconciler *transfer.Reconciler
}

// start starts an instance.
func (w *world) start() *instance {
	w.started++
	p := &instance{w: w, n: w.started}
	p.setClock(draw(w, clockOffsets))
	configuration := draw(w, configurations)
	id := func() string { return strconv.FormatInt(w.ids.Add(1), 10) }
	banking := &transfer.Stepper{Store: p, Bank: p, Policy: w.policy, NewID: id, Now: p.now, Log: slog.New(panicHandler{w: w})}
	margin := banking.Longest()
	if configuration == withoutBank {
		banking = nil
	}
	currency := "USD"
	if configuration == defaultEUR {
		currency = "EUR"
	}
	p.service = &settle.Service{Store: p, Banking: banking, DefaultCurrency: currency, NewID: id, Now: p.now}
	p.reconciler = &transfer.Reconciler{Store: p, Banking: banking, Now: p.now, Limit: 4, Concurrency: 2, Margin: margin}
	w.instances = append(w.instances, p)
	w.tell("%s starts, configuration %s, clock offset %v", p, configuration, p.clockOffset())
	w.seen["instance "+configuration]++
	w.seen[fmt.Sprintf("%d instances", len(w.instances))]++
	return p
}

// String returns the instance's name in stories.
func (p *instance) String() string { return "instance " + strconv.Itoa(p.n) }

func (p *instance) setClock(offset time.Duration) { p.offset.Store(int64(offset)) }

func (p *instance) clockOffset() time.Duration { return time.Duration(p.offset.Load()) }

func (p *instance) now() time.Time { return time.Now().Add(p.clockOffset()) }

// call is a parked call of Store or Bank.
type call struct {
	by       *instance
	kind     string
	id       string    // settlement ID
	delivery *delivery // nil for a call of the reconciler
	// done says that the call has had its effect, and its answer is pending.
	done bool
	// hung says that the call's connection is dead. The call ends at its deadline.
	hung bool
	// recordsAnswer says that the call records the latest answer of the bank.
	recordsAnswer bool

	ctx   context.Context                 //nolint:containedctx // the parked call's own
	op    func(ctx context.Context) error // runs a call of the store; nil for the bank
	abort func(ctx context.Context)       // runs op without an effect; nil where op calls none of our code
	err   error                           // of op

	deadline   time.Time            // zero: none
	send       transfer.SendRequest // to the bank
	class      transfer.SendClass
	reading    transfer.StatusReading
	retryAfter time.Duration

	answered chan struct{}
}

// name names the call in the choices of stories.
func (c *call) name() string { return strings.TrimSpace(c.kind + " " + c.id) }

// String names the call in the events of stories.
func (c *call) String() string {
	text := map[string]string{
		"settle": "the transaction that settles ", "change": "the transaction that claims ", "quarantine": "the transaction that quarantines",
		"look": "the read of ",
		"due":  "the list of due instructions", "backlog": "the read of the backlog", "send": "the send for ", "status": "the status request for ",
	}[c.kind]
	if c.recordsAnswer {
		text = "the transaction that records the answer about "
	}
	return fmt.Sprintf("%s: %s%s", c.by, text, c.id)
}

// reads reports whether the call changes no row.
func (c *call) reads() bool { return c.kind == "look" || c.kind == "due" || c.kind == "backlog" }

// park parks the call until it is answered. It fails if the instance has crashed.
func (p *instance) park(ctx context.Context, c *call) error {
	c.by, c.ctx, c.answered = p, withoutTurns(ctx), make(chan struct{})
	c.delivery, _ = ctx.Value(deliveryKey{}).(*delivery)
	p.w.mu.Lock()
	if p.crashed.Load() {
		p.w.mu.Unlock()
		return errCrashed
	}
	p.w.parked = append(p.w.parked, c)
	p.w.mu.Unlock()
	<-c.answered
	if p.crashed.Load() {
		return errCrashed
	}
	return nil
}

// Compose implements transfer.Bank.
func (p *instance) Compose(pay payout.Payout, key uuid.UUID) ([]byte, error) {
	return Body(pay, key), nil
}

// Send implements transfer.Bank.
func (p *instance) Send(ctx context.Context, r transfer.SendRequest) transfer.SendResult {
	id, _, _ := strings.Cut(string(r.Body), " ")
	c := &call{kind: "send", id: id, send: r, deadline: time.Now().Add(p.w.policy.SendTimeout)}
	if p.park(ctx, c) != nil {
		return transfer.SendResult{}
	}
	return transfer.SendResult{Class: c.class, Answer: transfer.BankAnswer{RetryAfter: c.retryAfter}}
}

// Status implements transfer.Bank.
func (p *instance) Status(ctx context.Context, r transfer.StatusRequest) transfer.StatusResult {
	id := p.w.oracle.keys[r.Key]
	c := &call{kind: "status", id: id, send: transfer.SendRequest{Transfer: r.Transfer}, deadline: time.Now().Add(p.w.policy.StatusTimeout)}
	if p.park(ctx, c) != nil {
		return transfer.StatusResult{}
	}
	return transfer.StatusResult{Reading: c.reading, Answer: transfer.BankAnswer{RetryAfter: c.retryAfter}}
}

// panicHandler handles the log record of a panic that the reconciler recovered from,
// and drops all others.
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
