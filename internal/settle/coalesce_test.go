package settle_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

// gatedStore blocks each call of Settle until the test sends an error. After a nil
// error the call goes on to the store.
type gatedStore struct {
	*memstore.Store

	gate    chan error
	calls   atomic.Int32
	changes atomic.Int32 // calls of Change
	panics  atomic.Bool
}

func newGatedStore() (*gatedStore, *memstore.Store) {
	kept := memstore.New(func() time.Time { return noon })
	return &gatedStore{Store: kept, gate: make(chan error)}, kept
}

func (g *gatedStore) Settle(ctx context.Context, s settle.Settlement) (settle.Result, error) {
	g.calls.Add(1)
	select {
	case err := <-g.gate:
		if g.panics.Load() {
			panic("broken store")
		}
		if err != nil { // the result beside an error has no meaning
			return settle.Result{Outcome: settle.OutcomeApplied, PayloadHash: s.Hash}, err
		}
	case <-ctx.Done():
		return settle.Result{}, ctx.Err()
	}
	return g.Store.Settle(ctx, s)
}

func (g *gatedStore) Change(ctx context.Context, settlementID string, decide func(transfer.Instruction) (transfer.Change, error)) (transfer.Change, error) {
	g.changes.Add(1)
	return g.Store.Change(ctx, settlementID, decide)
}

// answers collects the results of concurrent deliveries.
type answers struct {
	mu       sync.Mutex
	outcomes map[settle.Outcome]int
	known    int
	errs     []error
}

func (a *answers) deliver(ctx context.Context, service *settle.Service, data string) {
	result, err := service.Deliver(ctx, message(data))
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.errs = append(a.errs, err)
		return
	}
	a.outcomes[result.Outcome]++
	if result.Known {
		a.known++
	}
}

func TestConcurrentDeliveriesCallTheStoreOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const storm = 1000
		store, kept := newGatedStore()
		service, got := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		for range storm {
			go got.deliver(t.Context(), service, plain)
		}
		synctest.Wait()
		store.gate <- nil
		synctest.Wait()
		if got.outcomes[settle.OutcomeApplied] != 1 || got.outcomes[settle.OutcomeDuplicate] != storm-1 || got.errs != nil {
			t.Errorf("got %v, %v", got.outcomes, got.errs)
		}
		if calls := store.calls.Load(); calls != 1 {
			t.Errorf("%d calls of the store", calls)
		}
		if all := kept.Snapshot(); len(all.Movements) != 1 || len(all.Violations(false)) > 0 {
			t.Errorf("stored %+v", all)
		}
	})
}

// A delivery waits neither for another settlement nor for another payload of its own.
func TestCoalescingSeparatesPayouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _ := newGatedStore()
		service, got := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		go got.deliver(t.Context(), service, plain)
		go got.deliver(t.Context(), service, strings.Replace(plain, "stl-8472", "stl-8473", 1))
		go got.deliver(t.Context(), service, strings.Replace(plain, "4731", "4732", 1))
		synctest.Wait()
		if calls := store.calls.Load(); calls != 3 {
			t.Errorf("%d calls of the store for three payouts", calls)
		}
		for range 3 {
			store.gate <- nil
		}
		synctest.Wait()
		if got.outcomes[settle.OutcomeApplied] != 2 || got.outcomes[settle.OutcomeConflict] != 1 {
			t.Errorf("got %v, %v", got.outcomes, got.errs)
		}
	})
}

func TestConflictsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const conflicts = 5
		store, kept := newGatedStore()
		service, got := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		go got.deliver(t.Context(), service, plain)
		synctest.Wait()
		store.gate <- nil
		synctest.Wait()
		for range conflicts {
			go got.deliver(t.Context(), service, strings.Replace(plain, "4731", "4732", 1))
		}
		synctest.Wait()
		store.gate <- nil
		synctest.Wait()
		if got.outcomes[settle.OutcomeConflict] != conflicts || got.known != conflicts-1 || store.calls.Load() != 2 {
			t.Errorf("got %v, %d known, after %d calls of the store", got.outcomes, got.known, store.calls.Load())
		}
		if all := kept.Snapshot(); len(all.Conflicts) != 1 {
			t.Errorf("conflicts %+v", all.Conflicts)
		}
	})
}

func TestFailuresAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _ := newGatedStore()
		service, got := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		for range 3 {
			go got.deliver(t.Context(), service, plain)
		}
		synctest.Wait()
		store.gate <- settle.ErrOutcomeUnknown
		synctest.Wait()
		if len(got.errs) != 3 || store.calls.Load() != 1 {
			t.Errorf("got %v, %v after %d calls of the store", got.outcomes, got.errs, store.calls.Load())
		}
		for _, err := range got.errs {
			if !errors.Is(err, settle.ErrOutcomeUnknown) {
				t.Errorf("error %v, want the shared one", err)
			}
		}
	})
}

// A caller that leaves ends its own delivery only: the next one calls the store.
func TestLeavingCallerDoesNotFailTheWaitingDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _ := newGatedStore()
		service, got := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		hasty, leave := context.WithCancel(t.Context())
		go got.deliver(hasty, service, plain)
		synctest.Wait()
		for range 3 {
			go got.deliver(t.Context(), service, plain)
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		store.gate <- nil
		synctest.Wait()
		if len(got.errs) != 1 || got.outcomes[settle.OutcomeApplied] != 1 || got.outcomes[settle.OutcomeDuplicate] != 2 || store.calls.Load() != 2 {
			t.Errorf("got %v, %v after %d calls of the store", got.outcomes, got.errs, store.calls.Load())
		}
	})
}

// After a panic the waiting deliveries fail, and Pub/Sub redelivers them.
func TestWaitingDeliveriesFailAfterAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _ := newGatedStore()
		service, got := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		go func() {
			defer func() { _ = recover() }()
			_, _ = service.Deliver(t.Context(), message(plain))
		}()
		synctest.Wait()
		go got.deliver(t.Context(), service, plain)
		synctest.Wait()
		store.panics.Store(true)
		store.gate <- nil
		synctest.Wait()
		if len(got.errs) != 1 || len(got.outcomes) != 0 {
			t.Errorf("got %v, %v", got.outcomes, got.errs)
		}
	})
}

// A waiting delivery whose context ends fails alone.
func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _ := newGatedStore()
		service, got := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		hasty, cancel := context.WithCancel(t.Context())
		go got.deliver(t.Context(), service, plain)
		synctest.Wait()
		go got.deliver(hasty, service, plain)
		synctest.Wait()
		go got.deliver(t.Context(), service, plain)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(got.errs) != 1 || !errors.Is(got.errs[0], context.Canceled) || !strings.Contains(got.errs[0].Error(), `"stl-8472"`) {
			t.Fatalf("got %v, %v", got.outcomes, got.errs)
		}
		store.gate <- nil
		synctest.Wait()
		if got.outcomes[settle.OutcomeApplied] != 1 || got.outcomes[settle.OutcomeDuplicate] != 1 {
			t.Errorf("got %v, %v", got.outcomes, got.errs)
		}
	})
}

func TestCancelledDeliveryDoesNotCallTheStore(t *testing.T) {
	t.Parallel()
	store, _ := newGatedStore()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	result, err := newService(store).Deliver(ctx, message(plain))
	if !errors.Is(err, context.Canceled) || result.Outcome.Final() || store.calls.Load() != 0 {
		t.Errorf("%+v, %v after %d calls of the store", result, err, store.calls.Load())
	}
}

func TestResultsAreNotCached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _ := newGatedStore()
		service, got := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		for range 2 {
			go got.deliver(t.Context(), service, plain)
			synctest.Wait()
			store.gate <- nil
			synctest.Wait()
		}
		if calls := store.calls.Load(); calls != 2 {
			t.Errorf("%d calls of the store, want one for each delivery", calls)
		}
	})
}

func TestConcurrentDeliveriesOfABankPayoutSendOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const storm = 50
		store, kept := newGatedStore()
		bank := &countingBank{}
		service, got := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		service.Banking = stepper(store, bank)
		for range storm {
			go got.deliver(t.Context(), service, wantsBank)
		}
		synctest.Wait()
		store.gate <- nil
		synctest.Wait()
		if got.outcomes[settle.OutcomeApplied] != 1 || got.outcomes[settle.OutcomeDuplicate] != storm-1 {
			t.Errorf("got %v, %v", got.outcomes, got.errs)
		}
		if sends, changes := bank.sends.Load(), store.changes.Load(); sends != 1 || changes != 1 {
			t.Errorf("%d sends, %d changes of the instruction; want one each", sends, changes)
		}
		if in := kept.Snapshot().Instructions; len(in) != 1 || in[0].Sends != 1 {
			t.Errorf("instructions %+v", in)
		}
	})
}

// countingBank is an acceptingBank that counts sends.
type countingBank struct {
	acceptingBank

	sends atomic.Int32
}

func (b *countingBank) Send(ctx context.Context, r transfer.SendRequest) transfer.SendResult {
	b.sends.Add(1)
	return b.acceptingBank.Send(ctx, r)
}
