package settleonce_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/emulator/emulatortest"
	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/bank/banktest"
	"github.com/settleonce/settleonce/internal/faultproxy"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/snapshot"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

const bankPayout = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR","creditor_account":"cp-19","reference":"claim 19-4431"}`

// world is a database, a bank, and the time that has passed for both.
type world struct {
	db     database
	bank   *banktest.Bank
	url    string
	offset atomic.Int64 // how far the bank's clock is ahead, as a time.Duration

	mu sync.Mutex
	// struck is called by a request of the method, when the bank has worked on it
	// and not answered yet.
	struck func()
	method string
}

func newWorld(t *testing.T, plan banktest.Plan) *world {
	t.Helper()
	w := &world{db: newDatabase(t)}
	w.bank = banktest.New(t, func() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) }, banktest.Options{Token: "token"})
	w.bank.Default(plan)
	w.bank.Expect("stl-8472", settle.InstructionKey("stl-8472").String())
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: w, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(w.bank.Listener(listener)) }() // ends with Close
	t.Cleanup(func() {
		w.bank.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	w.url = "http://" + listener.Addr().String()
	return w
}

// ServeHTTP lets the bank work, and then, before the answer is sent, the test.
func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	struck, method := w.struck, w.method
	w.mu.Unlock()
	if struck == nil || r.Method != method {
		w.bank.ServeHTTP(rw, r)
		return
	}
	func() {
		defer func() { _ = recover() }() // a bank that breaks the connection off
		w.bank.ServeHTTP(httptest.NewRecorder(), r)
	}()
	struck()
	panic(http.ErrAbortHandler) // whoever asked is dead
}

func (w *world) strike(method string, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.struck, w.method = f, method
}

// start runs one of the two functions in a process of its own.
func (w *world) start(t *testing.T, target, spannerHost string, env ...string) *function {
	t.Helper()
	ours := append(w.db.env(spannerHost),
		"FUNCTION_TARGET="+target, "BANK_URL="+w.url, "BANK_TOKEN=token", "BANK_VISIBILITY_LAG=1s", "BANK_SEND_TIMEOUT=5s", "BANK_STATUS_TIMEOUT=5s")
	return startChild(t, append(ours, env...)...)
}

// pass lets time pass until the instruction is due.
func (w *world) pass(t *testing.T) {
	t.Helper()
	all := w.snapshot(t).Instructions
	if len(all) == 0 || all[0].NextCheckAt.IsZero() {
		return
	}
	d := time.Until(all[0].NextCheckAt) + time.Second
	if d <= 0 {
		return
	}
	w.db.age(t, d)
	w.offset.Add(int64(d))
}

// age makes everything that bank instructions remember older.
func (d database) age(t *testing.T, by time.Duration) {
	t.Helper()
	const sql = `UPDATE bank_instructions SET
  next_check_at = TIMESTAMP_SUB(next_check_at, INTERVAL @ns NANOSECOND), lease_until = TIMESTAMP_SUB(lease_until, INTERVAL @ns NANOSECOND),
  first_sent_at = TIMESTAMP_SUB(first_sent_at, INTERVAL @ns NANOSECOND), last_sent_at = TIMESTAMP_SUB(last_sent_at, INTERVAL @ns NANOSECOND),
  resend_not_after = TIMESTAMP_SUB(resend_not_after, INTERVAL @ns NANOSECOND), not_found_since = TIMESTAMP_SUB(not_found_since, INTERVAL @ns NANOSECOND),
  accepted_at = TIMESTAMP_SUB(accepted_at, INTERVAL @ns NANOSECOND), final_at = TIMESTAMP_SUB(final_at, INTERVAL @ns NANOSECOND),
  created_at = TIMESTAMP_SUB(created_at, INTERVAL @ns NANOSECOND), uncertain_since = TIMESTAMP_SUB(uncertain_since, INTERVAL @ns NANOSECOND)
WHERE TRUE`
	_, err := d.client.ReadWriteTransaction(t.Context(), func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		_, err := tx.Update(ctx, spanner.Statement{SQL: sql, Params: map[string]any{"ns": by.Nanoseconds()}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) snapshot(t *testing.T) snapshot.Snapshot {
	t.Helper()
	return w.db.snapshot(t)
}

// runToTheEnd delivers the message again and reconciles until the instruction
// is confirmed.
func (w *world) runToTheEnd(t *testing.T) {
	t.Helper()
	host := emulatortest.Spanner(t).GRPC
	settler, reconciler := w.start(t, "SettlePayout", host), w.start(t, "ReconcileBank", host)
	for round := range 30 {
		if a := settler.deliver(t.Context(), "1001", bankPayout); a.Status != 200 || a.Outcome != "applied" && a.Outcome != "duplicate" {
			t.Fatalf("replay: %d %s", a.Status, a.Body)
		}
		if a := reconciler.post(t.Context(), pushHeader, strings.NewReader(`{}`)); a.Status != 200 {
			t.Fatalf("reconcile: %d %s", a.Status, a.Body)
		}
		all := w.snapshot(t)
		if len(all.Instructions) == 1 && all.Instructions[0].State == settle.InstructionConfirmed && round > 1 {
			break
		}
		w.pass(t)
	}
	all := w.snapshot(t)
	if len(all.Movements) != 1 || len(all.Receipts) != 1 || len(all.Instructions) != 1 || len(all.Reversals) != 0 {
		t.Fatalf("stored %+v", all)
	}
	ledger := w.bank.Ledger()
	if in := all.Instructions[0]; in.State != settle.InstructionConfirmed || len(ledger) != 1 || !ledger[0].Moved() {
		t.Errorf("instruction %s, events %+v, bank %+v; want confirmed and one transfer", in.State, all.Events, ledger)
	}
}

// wantNotFound checks that a late execution came after a not found was seen.
func (w *world) wantNotFound(t *testing.T, want bool) {
	t.Helper()
	for _, e := range w.snapshot(t).Events {
		if want && strings.HasPrefix(e.Event.Detail, "not_found") {
			return
		}
	}
	if want {
		t.Errorf("no not found was seen: %+v", w.snapshot(t).Events)
	}
}

// bankCrash is where a process is killed: at a Commit of its own, or at the bank.
type bankCrash struct {
	crash
	bank string // the method of the request that the bank has worked on
}

// kill runs target until it is killed at c, by a delivery of body.
func (w *world) kill(t *testing.T, c bankCrash, target, body string) {
	t.Helper()
	defer w.strike("", nil)
	c.die(t, func(host string) *function { return w.start(t, target, host) },
		func(f *function) answer { return f.post(t.Context(), pushHeader, strings.NewReader(body)) },
		func(strike func()) { w.strike(c.bank, strike) })
}

// lateBank loses its first answers, and executes only after a not found was seen.
var lateBank = banktest.Plan{Attempts: []banktest.Attempt{
	{Execute: banktest.ExecuteLate, LateBy: 5 * time.Minute, Answer: banktest.AnswerReset},
}}

// TestCrashAroundTheSend kills the process that settles at each point between
// its commit and its acknowledgement.
func TestCrashAroundTheSend(t *testing.T) {
	t.Parallel()
	for _, k := range []bankCrash{
		{crash: crash{"after the settling commit, before the send", 1, faultproxy.Answered}},
		{crash: crash{name: "after the bank executed, before its answer was read"}, bank: http.MethodPost},
		{crash: crash{"after the answer, before it was recorded", 2, faultproxy.Requested}},
		{crash: crash{"after recording, before the acknowledgement", 2, faultproxy.Answered}},
	} {
		for name, plan := range map[string]banktest.Plan{"": {}, ", the bank executing late": lateBank} {
			t.Run(k.name+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, plan)
				w.kill(t, k, "SettlePayout", push("1001", bankPayout))
				w.runToTheEnd(t)
				w.wantNotFound(t, name != "")
			})
		}
	}
}

// TestCrashOfTheReconciler kills the process that asks the bank at each point of
// its step.
func TestCrashOfTheReconciler(t *testing.T) {
	t.Parallel()
	for _, k := range []bankCrash{
		{crash: crash{"after the claim, before the question", 1, faultproxy.Answered}},
		{crash: crash{name: "after the bank answered, before it was read"}, bank: http.MethodGet},
		{crash: crash{"after the answer, before it was recorded", 2, faultproxy.Requested}},
		{crash: crash{"after recording, before the acknowledgement", 2, faultproxy.Answered}},
	} {
		for name, plan := range map[string]banktest.Plan{
			"": {Attempts: []banktest.Attempt{{Answer: banktest.AnswerReset}}}, ", the bank executing late": lateBank,
		} {
			t.Run(k.name+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, plan)
				settler := w.start(t, "SettlePayout", emulatortest.Spanner(t).GRPC)
				if a := settler.deliver(t.Context(), "1001", bankPayout); a.Status != 200 {
					t.Fatalf("%d %s", a.Status, a.Body)
				}
				w.pass(t)
				w.kill(t, k, "ReconcileBank", "{}")
				w.runToTheEnd(t)
				w.wantNotFound(t, name != "")
			})
		}
	}
}

// TestCrashOfAResend kills the reconciler around the send that it makes after not
// found was seen twice. The bank never got the first send.
func TestCrashOfAResend(t *testing.T) {
	t.Parallel()
	for _, c := range []bankCrash{
		{crash: crash{"after the resend was claimed, before the send", 2, faultproxy.Answered}},
		{crash: crash{name: "after the bank executed, before its answer was read"}, bank: http.MethodPost},
		{crash: crash{"after the answer, before it was recorded", 3, faultproxy.Requested}},
		{crash: crash{"after recording, before the acknowledgement", 3, faultproxy.Answered}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, banktest.Plan{Attempts: []banktest.Attempt{{Execute: banktest.ExecuteNever, Answer: banktest.AnswerReset}}})
			host := emulatortest.Spanner(t).GRPC
			if a := w.start(t, "SettlePayout", host).deliver(t.Context(), "1001", bankPayout); a.Status != 200 {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			reconciler := w.start(t, "ReconcileBank", host)
			for w.snapshot(t).Instructions[0].NotFoundSince.IsZero() {
				w.pass(t)
				if a := reconciler.post(t.Context(), pushHeader, strings.NewReader(`{}`)); a.Status != 200 {
					t.Fatalf("reconcile: %d %s", a.Status, a.Body)
				}
			}
			w.pass(t)
			w.kill(t, c, "ReconcileBank", "{}")
			w.runToTheEnd(t)
			if n := w.snapshot(t).Instructions[0].Sends; n < 2 || n > 3 {
				t.Errorf("%d sends counted, want the first, the resend, and one more at most", n)
			}
		})
	}
}

// contenders is how many bank payouts instances compete for.
const contenders = 100

func contended(n int) string {
	return fmt.Sprintf(`{"settlement_id":"stl-%d","account_id":"a","amount_cents":%d,"currency":"EUR","creditor_account":"cp-%d"}`, n, n+1, n)
}

// TestDeliveriesAndReconcilersAtTheSameTime lets two instances that deliver and
// two that reconcile compete for 100 payouts: fresh ones, and ones whose
// instruction is due because whoever settled them died before it sent.
func TestDeliveriesAndReconcilersAtTheSameTime(t *testing.T) {
	t.Parallel()
	t.Run("fresh", func(t *testing.T) {
		t.Parallel()
		compete(t, newWorld(t, banktest.Plan{}), map[settle.Outcome]int{settle.OutcomeApplied: contenders, settle.OutcomeDuplicate: contenders})
	})
	t.Run("due", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, banktest.Plan{})
		store := w.store(t)
		for n := range contenders {
			p, err := settle.Decode([]byte(contended(n)), "")
			if err != nil {
				t.Fatal(err)
			}
			body, err := w.client(t).Compose(p, settle.InstructionKey(p.SettlementID))
			if err != nil {
				t.Fatal(err)
			}
			in := settle.NewInstruction(p, body, time.Now().Add(-time.Second))
			if _, err := store.Settle(t.Context(), settle.Settlement{Payout: p, Hash: p.Hash(), DeliveryID: uuid.NewString(), Instruction: in}); err != nil {
				t.Fatal(err)
			}
		}
		compete(t, w, map[settle.Outcome]int{settle.OutcomeDuplicate: 2 * contenders})
	})
}

// compete runs two deliveries of each payout and two reconcilers, and looks at
// what the bank has seen.
func compete(t *testing.T, w *world, want map[settle.Outcome]int) {
	t.Helper()
	var (
		deliveries, reconcilers sync.WaitGroup
		mu                      sync.Mutex
		outcomes                = map[settle.Outcome]int{}
		delivered               = make(chan struct{})
	)
	for n := range contenders {
		id := fmt.Sprintf("stl-%d", n)
		w.bank.Expect(id, settle.InstructionKey(id).String())
	}
	for range 2 {
		banking := w.stepper(t)
		service := &settle.Service{Store: banking.Store, Banking: banking, NewID: uuid.NewString, Now: time.Now}
		deliveries.Go(func() {
			for n := range contenders {
				r, err := service.Deliver(t.Context(), settle.Delivery{Message: settle.Message{ID: fmt.Sprint(n), Data: []byte(contended(n))}})
				if err != nil {
					t.Errorf("delivery of %d: %v", n, err)
				}
				mu.Lock()
				outcomes[r.Outcome]++
				mu.Unlock()
			}
		})
		reconciling := w.stepper(t)
		reconciler := &settle.Reconciler{Store: reconciling.Store, Banking: reconciling, Now: time.Now, Limit: contenders, Concurrency: 4}
		reconcilers.Go(func() {
			for {
				if run, err := reconciler.Reconcile(t.Context()); err != nil || run.Failed > 0 {
					t.Errorf("reconcile: %+v, %v", run, err)
				}
				select {
				case <-delivered:
					return
				default:
				}
			}
		})
	}
	deliveries.Wait()
	close(delivered)
	reconcilers.Wait()
	if diff := cmp.Diff(want, outcomes); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	w.wantOneSendEach(t)
}

func (w *world) wantOneSendEach(t *testing.T) {
	t.Helper()
	for key, r := range w.bank.Requests() {
		if r.Posts != 1 || r.MaxInFlight != 1 {
			t.Errorf("key %s: %d sends, %d in flight", key, r.Posts, r.MaxInFlight)
		}
	}
	if got := len(w.bank.Ledger()); got != contenders {
		t.Errorf("%d transfers, want %d", got, contenders)
	}
	for _, in := range w.snapshot(t).Instructions {
		if in.Sends != 1 || in.State != settle.InstructionAccepted && in.State != settle.InstructionConfirmed {
			t.Errorf("settlement %s: %s after %d sends", in.SettlementID, in.State, in.Sends)
		}
	}
}

// store returns a store with a client of its own, as another instance has.
func (w *world) store(t *testing.T) *spannerstore.Store {
	t.Helper()
	store, err := spannerstore.Open(t.Context(), spannerstore.Config{
		Database: w.db.name, Emulator: true, Options: emulatortest.Spanner(t).ClientOptions(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func (w *world) client(t *testing.T) *bank.Client {
	t.Helper()
	client, err := bank.New(bank.Config{BaseURL: w.url, Token: "token", Profile: bank.GenericProfile(), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// stepper makes steps as an instance of its own.
func (w *world) stepper(t *testing.T) *settle.Stepper {
	t.Helper()
	return &settle.Stepper{
		Store: w.store(t), Bank: w.client(t), NewID: uuid.NewString, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Policy: settle.Policy{
			KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second,
			SendTimeout: bank.DefaultSendTimeout, StatusTimeout: bank.DefaultStatusTimeout,
		},
	}
}
