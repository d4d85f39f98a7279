package sim

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/memstore"
)

var (
	errCrashed = errors.New("the instance has crashed")
	errLost    = errors.New("the store cannot be reached")
)

// world is everything that a sequence acts on.
type world struct {
	t         *rapid.T
	store     *memstore.Store
	bank      *Bank
	policy    settle.Policy
	instances []*instance
	payouts   []payout

	calls   []*call              // parked
	late    []func()             // commits whose caller was told that they failed
	network []arrival            // requests on their way to the bank
	leaves  []context.CancelFunc // callers of deliveries that may leave
	habit   string               // what the bank often does to sends
	ending  string               // how the bank is after the faults
	oracle  *oracle
	seen    map[string]int // what has happened, for the test's own check

	ids atomic.Int64

	mu      sync.Mutex
	arrived []*call  // parked since the last look
	ended   []func() // what is to be looked at of activities that ended since then
}

type payout struct {
	settle.Payout
	data []byte
}

// arrival is a request on its way to the bank.
type arrival struct {
	at   time.Time
	id   string
	key  uuid.UUID
	fate Fate
}

// instance is one life of an instance of the program.
type instance struct {
	w          *world
	n          int
	skew       time.Duration
	dead       atomic.Bool
	service    *settle.Service
	reconciler *settle.Reconciler
}

// call is a call of Store or Bank that is parked.
type call struct {
	by   *instance
	what string
	id   string // settlement ID
	// half tells that the call has had its effect, and waits for the answer.
	half bool
	// record tells that the call is to record what the bank has just said.
	record bool

	ctx context.Context                 //nolint:containedctx // the parked call's own
	op  func(ctx context.Context) error // of a store
	err error                           // what op said

	send    settle.SendRequest // of a bank
	limit   time.Time          // the end of its time
	class   settle.SendClass
	reading settle.StatusReading
	wait    time.Duration // the bank's Retry-After

	answer chan struct{}
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, store: memstore.New(time.Now), seen: map[string]int{}}
	w.oracle = newOracle(w)
	lifetime := lifetimes.Draw(t, "key lifetime")
	w.bank = NewBank(lifetime)
	w.policy = settle.Policy{
		KeyLifetime: lifetime, VisibilityLag: lags.Draw(t, "visibility lag"),
		SendTimeout: 20 * time.Second, StatusTimeout: 10 * time.Second,
	}
	w.habit = habits.Draw(t, "habit of the bank")
	w.ending = endings.Draw(t, "bank at the end")
	for n := range 2 {
		w.instances = append(w.instances, w.start(n))
	}
	return w
}

// start returns a new life of instance n.
func (w *world) start(n int) *instance {
	p := &instance{w: w, n: n, skew: skews.Draw(w.t, "clock of instance "+strconv.Itoa(n))}
	id := func() string { return strconv.FormatInt(w.ids.Add(1), 10) }
	banking := &settle.Stepper{Store: p, Bank: p, Policy: w.policy, NewID: id, Now: p.now, Log: slog.New(slog.DiscardHandler)}
	p.service = &settle.Service{Store: p, Banking: banking, DefaultCurrency: "USD", NewID: id, Now: p.now}
	p.reconciler = &settle.Reconciler{Store: p, Banking: banking, Now: p.now, Limit: 4, Concurrency: 2, Margin: banking.Longest()}
	return p
}

func (p *instance) now() time.Time { return time.Now().Add(p.skew) }

// park parks the call until it is answered. It fails where the instance has
// crashed by then.
func (p *instance) park(c *call) error {
	c.by, c.answer = p, make(chan struct{})
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

func (p *instance) commit(ctx context.Context, what, id string, op func(ctx context.Context) error) error {
	c := &call{what: what, id: id, ctx: ctx, op: op}
	if err := p.park(c); err != nil {
		return err
	}
	return c.err
}

// Settle implements settle.Store.
func (p *instance) Settle(ctx context.Context, s settle.Settlement) (settle.Result, error) {
	var r settle.Result
	err := p.commit(ctx, "settle", s.Payout.SettlementID, func(ctx context.Context) (err error) {
		r, err = p.w.store.Settle(ctx, s)
		p.w.oracle.settled(s, err)
		return err
	})
	if err != nil {
		return settle.Result{}, err
	}
	return r, nil
}

// Quarantine implements settle.Store.
func (p *instance) Quarantine(ctx context.Context, q settle.Quarantined) error {
	return p.commit(ctx, "quarantine", "", func(ctx context.Context) error { return p.w.store.Quarantine(ctx, q) })
}

// ChangeInstruction implements settle.Store.
func (p *instance) ChangeInstruction(ctx context.Context, id string, decide func(settle.Instruction) (settle.Change, error)) (settle.Change, error) {
	var change settle.Change
	err := p.commit(ctx, "change", id, func(ctx context.Context) (err error) {
		change, err = p.w.store.ChangeInstruction(ctx, id, decide)
		if err == nil && change.Write {
			p.w.oracle.changed(id, change)
		}
		return err
	})
	if err != nil {
		return settle.Change{}, err
	}
	return change, nil
}

// Due implements settle.Store.
func (p *instance) Due(ctx context.Context, now time.Time, limit int) (ids []string, err error) {
	err = p.commit(ctx, "due", "", func(ctx context.Context) (err error) {
		ids, err = p.w.store.Due(ctx, now, limit)
		return err
	})
	return ids, err
}

// Backlog implements settle.Store.
func (p *instance) Backlog(ctx context.Context) (b settle.Backlog, err error) {
	err = p.commit(ctx, "backlog", "", func(ctx context.Context) (err error) {
		b, err = p.w.store.Backlog(ctx)
		return err
	})
	return b, err
}

// Compose implements settle.Bank.
func (p *instance) Compose(pay settle.Payout, key uuid.UUID) ([]byte, error) {
	return Body(pay, key), nil
}

// Send implements settle.Bank.
func (p *instance) Send(_ context.Context, r settle.SendRequest) settle.SendResult {
	id := settlementOf(r.Body)
	c := &call{what: "send", id: id, send: r, limit: time.Now().Add(p.w.policy.SendTimeout)}
	if p.park(c) != nil {
		return settle.SendResult{}
	}
	return settle.SendResult{Class: c.class, Answer: settle.BankAnswer{RetryAfter: c.wait}}
}

// Status implements settle.Bank.
func (p *instance) Status(_ context.Context, r settle.StatusRequest) settle.StatusResult {
	id := p.w.oracle.settlement(r.Key)
	c := &call{what: "status", id: id, send: settle.SendRequest{Transfer: r.Transfer}, limit: time.Now().Add(p.w.policy.StatusTimeout)}
	if p.park(c) != nil {
		return settle.StatusResult{}
	}
	return settle.StatusResult{Reading: c.reading, Answer: settle.BankAnswer{RetryAfter: c.wait}}
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

// settle waits until every activity is parked or over, and takes in what they
// have come to.
func (w *world) settle() {
	synctest.Wait()
	w.mu.Lock()
	arrived, ended := w.arrived, w.ended
	w.arrived, w.ended = nil, nil
	w.mu.Unlock()
	slices.SortStableFunc(arrived, func(a, b *call) int { return cmp.Or(cmp.Compare(a.by.n, b.by.n), cmp.Compare(a.id, b.id)) })
	w.calls = append(w.calls, arrived...)
	for _, c := range arrived {
		switch c.what {
		case "send":
			w.oracle.sendBegins(c)
		case "change":
			h := w.oracle.of(c.id)
			c.record = h.answered == c.by
			h.answered = nil
		}
	}
	for _, look := range ended {
		look()
	}
}

// launch begins an activity of the instance and lets it run to where it parks.
// activity returns what is to be looked at when it is over; not where the
// instance has crashed.
func (w *world) launch(p *instance, activity func() (look func())) {
	go func() {
		look := activity()
		w.mu.Lock()
		defer w.mu.Unlock()
		if !p.dead.Load() {
			w.ended = append(w.ended, look)
		}
	}()
	w.settle()
}

// answer lets a parked call go on.
func (w *world) answer(c *call) {
	if c.record && errors.Is(c.err, context.Canceled) {
		w.oracle.fail(c.id, "what the bank said is not recorded, because the caller has left")
	}
	w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
	switch c.what {
	case "send":
		w.oracle.sendEnds(c)
	case "status":
		w.oracle.asked(c)
	}
	close(c.answer)
	w.settle()
}

// crash ends the life of an instance and begins its next one.
func (w *world) crash(n int) {
	w.t.Logf("instance %d crashes", n)
	for _, c := range w.calls {
		if c.by.n == n {
			w.seen["crash at "+c.what+map[bool]string{true: ", done"}[c.half]]++
		}
	}
	w.kill(w.instances[n])
	w.instances[n] = w.start(n)
}

// kill ends the life of an instance: what it has begun goes no further.
func (w *world) kill(p *instance) {
	w.mu.Lock()
	p.dead.Store(true)
	w.mu.Unlock()
	for _, c := range slices.Clone(w.calls) {
		if c.by != p {
			continue
		}
		w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
		if c.what == "send" {
			w.oracle.sendDies(c)
		}
		close(c.answer)
	}
	w.settle()
}

// pass lets time pass. Sends and questions end when their time is up, and
// requests arrive that are on their way.
func (w *world) pass(d time.Duration) {
	end := time.Now().Add(d)
	for {
		next := end
		var over *call
		for _, c := range w.calls {
			if !c.limit.IsZero() && c.limit.Before(next) {
				next, over = c.limit, c
			}
		}
		arrives := -1
		for i, a := range w.network {
			if a.at.Before(next) {
				next, arrives = a.at, i
			}
		}
		time.Sleep(time.Until(next))
		switch {
		case arrives >= 0:
			a := w.network[arrives]
			w.network = slices.Delete(w.network, arrives, arrives+1)
			w.t.Logf("%s: the request arrives", a.id)
			w.take(a)
		case over != nil:
			w.timeOut(over)
		default:
			synctest.Wait() // contexts that have ended
			return
		}
		w.oracle.check()
	}
}

// take enters an arrival into the bank's ledger.
func (w *world) take(a arrival) *Entry { return w.bank.Take(a.id, a.key, a.fate, time.Now()) }

// timeOut ends a call to the bank whose time is up. A request of which nothing
// was written is known not to have been sent.
func (w *world) timeOut(c *call) {
	w.t.Logf("%s: the time of the %s is up", c.id, c.what)
	c.class, c.reading, c.wait = settle.SendUncertain, settle.StatusUnknown, 0
	if !c.half {
		c.class = settle.SendNotSent
	}
	w.answer(c)
}
