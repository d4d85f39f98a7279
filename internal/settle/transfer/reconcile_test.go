package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

// settledAtNoon returns a stepper on a store with n instructions that are due at noon.
func settledAtNoon(t *testing.T, n int, bank transfer.Bank, now func() time.Time) *transfer.Stepper {
	t.Helper()
	store := memstore.New(func() time.Time { return noon })
	for i := range n {
		p := payout.Payout{SettlementID: fmt.Sprintf("stl-%d", i), AccountID: "a", AmountCents: 1, Currency: "USD", CreditorAccount: "c"}
		st := settle.Settlement{Payout: p, Hash: p.Hash(), DeliveryID: uuid.NewString(), Instruction: transfer.NewInstruction(p, nil, noon)}
		if _, err := store.Settle(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}
	return &transfer.Stepper{
		Store: store, Bank: bank, NewID: uuid.NewString, Now: now, Log: slog.New(slog.DiscardHandler),
		Policy: transfer.Policy{KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second, SendTimeout: 20 * time.Second, StatusTimeout: 10 * time.Second},
	}
}

func atNoon() time.Time { return noon }

// bankFunc is a bank whose sends are a function.
type bankFunc struct {
	transfer.Bank

	send func(transfer.SendRequest) transfer.SendResult
}

func (b bankFunc) Send(_ context.Context, r transfer.SendRequest) transfer.SendResult {
	return b.send(r)
}

func TestReconcileWorksOffTheBacklog(t *testing.T) {
	t.Parallel()
	const atOnce = 3
	slots := make(chan struct{}, atOnce)
	bank := bankFunc{send: func(transfer.SendRequest) transfer.SendResult {
		select {
		case slots <- struct{}{}:
		default:
			t.Errorf("more than %d at a time", atOnce)
			return transfer.SendResult{Class: transfer.SendAccepted}
		}
		runtime.Gosched() // to the other workers
		<-slots
		return transfer.SendResult{Class: transfer.SendAccepted}
	}}
	banking := settledAtNoon(t, 25, bank, atNoon)
	r := &transfer.Reconciler{Store: banking.Store, Banking: banking, Now: atNoon, Limit: 10, Concurrency: atOnce}
	run, err := r.Reconcile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := transfer.Reconciled{
		Due: 25, States: map[transfer.State]int{transfer.StateAccepted: 25}, NextDue: noon.Add(15 * time.Second),
	}
	if diff := cmp.Diff(want, run); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
}

func TestReconcileStopsBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	var now atomic.Int64 // nanoseconds after noon
	clock := func() time.Time { return noon.Add(time.Duration(now.Load())) }
	bank := bankFunc{send: func(transfer.SendRequest) transfer.SendResult {
		now.Add(int64(10 * time.Second))
		return transfer.SendResult{Class: transfer.SendAccepted}
	}}
	banking := settledAtNoon(t, 10, bank, clock)
	ctx := deadlineOnly{t.Context(), noon.Add(100 * time.Second)}
	r := &transfer.Reconciler{Store: banking.Store, Banking: banking, Now: clock, Limit: 100, Concurrency: 1, Margin: 50 * time.Second}
	run, err := r.Reconcile(ctx)
	if err != nil || run.States[transfer.StateAccepted] != 5 || run.Left != 5 {
		t.Errorf("%+v, %v; want 5 done in the 50 seconds before the margin, and 5 left", run, err)
	}
}

// deadlineOnly is a context with a deadline of the test's clock.
type deadlineOnly struct {
	context.Context

	at time.Time
}

func (d deadlineOnly) Deadline() (time.Time, bool) { return d.at, true }

func TestReconcileContinuesAfterFailuresAndPanics(t *testing.T) {
	t.Parallel()
	const secret = "S3CRET"
	bank := bankFunc{send: func(r transfer.SendRequest) transfer.SendResult {
		if r.Key == transfer.InstructionKey("stl-1") {
			panic(secret)
		}
		return transfer.SendResult{Class: transfer.SendAccepted}
	}}
	banking := settledAtNoon(t, 4, bank, atNoon)
	var log bytes.Buffer
	banking.Log = slog.New(slog.NewJSONHandler(&log, nil))
	banking.Store = brokenFor{banking.Store, "stl-2"}
	r := &transfer.Reconciler{Store: banking.Store, Banking: banking, Now: atNoon, Limit: 4, Concurrency: 2}
	run, err := r.Reconcile(t.Context())
	if err != nil || run.Due != 4 || run.Failed != 2 || run.States[transfer.StateAccepted] != 2 {
		t.Errorf("%+v, %v; want 2 done and 2 failed", run, err)
	}
	for _, want := range []string{`"settlement_id":"stl-1"`, `"settlement_id":"stl-2"`, `"panic_type":"string"`, "broken row"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("not logged: %s in %s", want, &log)
		}
	}
	if strings.Contains(log.String(), secret) {
		t.Errorf("the panic's value is logged: %s", &log)
	}
}

// brokenFor fails for one settlement.
type brokenFor struct {
	transfer.Store

	id string
}

func (b brokenFor) Change(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (transfer.Change, error) {
	if id == b.id {
		return transfer.Change{}, errors.New("broken row")
	}
	return b.Store.Change(ctx, id, decide)
}

func TestReconcileWithoutABank(t *testing.T) {
	t.Parallel()
	banking := settledAtNoon(t, 2, nil, atNoon)
	r := &transfer.Reconciler{Store: banking.Store, Now: atNoon, Limit: 10, Concurrency: 1}
	if run, err := r.Reconcile(t.Context()); !errors.Is(err, transfer.ErrNoBank) || run.Due != 2 {
		t.Errorf("%+v, %v; want ErrNoBank", run, err)
	}
}

// The commit before the exchange is slow.
func TestStepDoesNotStartALateExchange(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]time.Duration{"little of the lease left": 45 * time.Second, "key possibly forgotten": 0} {
		var now atomic.Int64
		clock := func() time.Time { return noon.Add(time.Duration(now.Load())) }
		sends := 0
		bank := bankFunc{send: func(transfer.SendRequest) transfer.SendResult { sends++; return transfer.SendResult{} }}
		banking := settledAtNoon(t, 1, bank, clock)
		if slow == 0 {
			banking.Policy.KeyLifetime = 10 * time.Second // forgotten after 8
			slow = 9 * time.Second
		}
		banking.Store = slowStore{banking.Store, func() { now.Add(int64(slow)) }}
		if _, err := banking.Step(t.Context(), "stl-0"); !errors.Is(err, transfer.ErrOutOfTime) || sends != 0 {
			t.Errorf("%s: %v, %d sends; want ErrOutOfTime", name, err, sends)
		}
	}
}

// The answer to a send arrives after the end of the lease. Meanwhile a second step has
// recorded a change under the version that the first step would use.
func TestStepWithoutItsLeaseRecordsNothing(t *testing.T) {
	t.Parallel()
	var now atomic.Int64 // nanoseconds after noon
	clock := func() time.Time { return noon.Add(time.Duration(now.Load())) }
	second := settledAtNoon(t, 1, &scriptedBank{readings: []transfer.StatusReading{transfer.StatusConfirmed}}, clock)
	first := *second
	first.Bank = bankFunc{send: func(transfer.SendRequest) transfer.SendResult {
		now.Add(int64(time.Minute))
		if state, err := second.Step(t.Context(), "stl-0"); err != nil || state != transfer.StateConfirmed {
			t.Errorf("the second step: %s, %v", state, err)
		}
		return transfer.SendResult{Class: transfer.SendAccepted}
	}}
	if state, err := first.Step(t.Context(), "stl-0"); !errors.Is(err, transfer.ErrLeaseLost) {
		t.Errorf("the first step: %q, %v; want ErrLeaseLost", state, err)
	}
	if all := second.Store.(*memstore.Store).Snapshot(); all.Instructions[0].State != transfer.StateConfirmed || len(all.Events) != 3 {
		t.Errorf("stored %+v, events %+v; want confirmed after three events", all.Instructions[0], all.Events)
	}
}

// slowStore advances the clock in each commit.
type slowStore struct {
	transfer.Store

	pass func()
}

func (s slowStore) Change(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (transfer.Change, error) {
	defer s.pass()
	return s.Store.Change(ctx, id, decide)
}
