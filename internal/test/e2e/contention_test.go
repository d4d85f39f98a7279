package e2e_test

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/crash"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

const bankPayout = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR","creditor_account":"cp-19","reference":"claim 19-4431"}`

// world is a database and a bank with a common clock.
type world struct {
	db     database
	bank   *fakebank.Bank
	gate   *crash.Gate
	offset atomic.Int64 // of the bank's clock from the machine's, a time.Duration
}

func newWorld(t *testing.T, plan fakebank.Plan) *world {
	t.Helper()
	w := &world{db: newDatabase(t)}
	w.bank = fakebank.New(t, func() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) }, fakebank.Options{Token: "token"})
	w.bank.Default(plan)
	w.gate = crash.NewGate(t, w.bank)
	return w
}

// start starts one of the two functions. With these limits a send has ended, and the bank
// shows it, before the first status request 15 s later.
func (w *world) start(t *testing.T, target, spannerHost string, env ...string) *function {
	t.Helper()
	base := append(w.db.env(spannerHost),
		"FUNCTION_TARGET="+target, "BANK_URL="+w.gate.URL, "BANK_TOKEN=token", "BANK_VISIBILITY_LAG=1s", "BANK_SEND_TIMEOUT=13s")
	return startFunction(t, append(base, env...)...)
}

// advanceUntilDue advances the clock until the settlement's instruction is due.
func (w *world) advanceUntilDue(t *testing.T, settlementID string) {
	t.Helper()
	w.offset.Add(int64(crash.AdvanceClockUntilDue(t, w.db.client, settlementID, time.Now())))
}

// settlementKey is the primary key of a settlement's rows.
func settlementKey(settlementID string) spanner.Key {
	key := sha256.Sum256([]byte(settlementID))
	return spanner.Key{key[:]}
}

func (w *world) snapshot(t *testing.T) audit.Snapshot {
	t.Helper()
	return w.db.snapshot(t)
}

// contendedPayouts is the number of bank payouts that instances compete for.
const contendedPayouts = 100

func contendedPayout(n int) string {
	return fmt.Sprintf(`{"settlement_id":"stl-%d","account_id":"a","amount_cents":%d,"currency":"EUR","creditor_account":"cp-%d"}`, n, n+1, n)
}

// Two instances that deliver and two that reconcile compete for fresh payouts, and for
// payouts whose instruction is due because an instance died after settling.
func TestConcurrentDeliveriesAndReconcilersSendOnce(t *testing.T) {
	t.Parallel()
	t.Run("fresh", func(t *testing.T) {
		t.Parallel()
		compete(t, newWorld(t, fakebank.Plan{}), map[settle.Outcome]int{settle.OutcomeApplied: contendedPayouts, settle.OutcomeDuplicate: contendedPayouts})
	})
	t.Run("due", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, fakebank.Plan{})
		store := w.store(t)
		for n := range contendedPayouts {
			p, err := payout.Decode([]byte(contendedPayout(n)), "")
			if err != nil {
				t.Fatal(err)
			}
			body, err := w.client(t).Compose(p, transfer.InstructionKey(p.SettlementID))
			if err != nil {
				t.Fatal(err)
			}
			in := transfer.NewInstruction(p, body, time.Now().Add(-time.Second))
			if _, err := store.Settle(t.Context(), settle.Settlement{Payout: p, Hash: p.Hash(), DeliveryID: uuid.NewString(), Instruction: in}); err != nil {
				t.Fatal(err)
			}
		}
		compete(t, w, map[settle.Outcome]int{settle.OutcomeDuplicate: 2 * contendedPayouts})
	})
}

// compete runs two deliveries of each payout and two reconcilers, and counts the outcomes
// and the sends.
func compete(t *testing.T, w *world, want map[settle.Outcome]int) {
	t.Helper()
	var (
		deliveries, reconcilers sync.WaitGroup
		mu                      sync.Mutex
		outcomes                = map[settle.Outcome]int{}
		delivered               = make(chan struct{})
	)
	for n := range contendedPayouts {
		id := fmt.Sprintf("stl-%d", n)
		w.bank.Expect(id, transfer.InstructionKey(id).String())
	}
	for range 2 {
		store := w.store(t)
		banking := w.stepper(t, store)
		service := &settle.Service{Store: store, Banking: banking, NewID: uuid.NewString, Now: time.Now}
		deliveries.Go(func() {
			for n := range contendedPayouts {
				r, err := service.Deliver(t.Context(), settle.Delivery{Message: settle.Message{ID: fmt.Sprint(n), Data: []byte(contendedPayout(n))}})
				if err != nil {
					t.Errorf("delivery of %d: %v", n, err)
				}
				mu.Lock()
				outcomes[r.Outcome]++
				mu.Unlock()
			}
		})
		reconciling := w.stepper(t, w.store(t))
		reconciler := &transfer.Reconciler{Store: reconciling.Store, Banking: reconciling, Now: time.Now, Limit: contendedPayouts, Concurrency: 4}
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
	if got := len(w.bank.Ledger()); got != contendedPayouts {
		t.Errorf("%d transfers, want %d", got, contendedPayouts)
	}
	for _, in := range w.snapshot(t).Instructions {
		if in.Sends != 1 || in.State != transfer.StateAccepted && in.State != transfer.StateConfirmed {
			t.Errorf("settlement %s: %s after %d sends", in.SettlementID, in.State, in.Sends)
		}
	}
}

// store returns a store with a client of its own, as an instance has.
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
	client, err := bank.New(bank.Config{BaseURL: w.gate.URL, Token: "token", Profile: bank.GenericProfile(), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// stepper returns an instance's stepper.
func (w *world) stepper(t *testing.T, store transfer.Store) *transfer.Stepper {
	t.Helper()
	return &transfer.Stepper{
		Store: store, Bank: w.client(t), NewID: uuid.NewString, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Policy: transfer.Policy{
			KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second,
			SendTimeout: bank.DefaultSendTimeout, StatusTimeout: bank.DefaultStatusTimeout,
		},
	}
}
