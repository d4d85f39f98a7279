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

// gatedStore lets calls of Settle in one by one, as a test sends errors to it; a nil
// one lets the call through to the store.
type gatedStore struct {
	*memstore.Store

	gate    chan error
	calls   atomic.Int32
	changes atomic.Int32 // calls of Change
	inside  atomic.Int32
	crowded atomic.Bool // two calls were inside at once
}

func newGatedStore() (*gatedStore, *memstore.Store) {
	kept := memstore.New(func() time.Time { return noon })
	return &gatedStore{Store: kept, gate: make(chan error)}, kept
}

func (g *gatedStore) Settle(ctx context.Context, s settle.Settlement) (settle.Result, error) {
	g.calls.Add(1)
	if g.inside.Add(1) > 1 {
		g.crowded.Store(true)
	}
	defer g.inside.Add(-1)
	select {
	case err := <-g.gate:
		if err != nil { // whatever stands beside it means nothing
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

// answers are what deliveries at once were told.
type answers struct {
	mu       sync.Mutex
	outcomes map[settle.Outcome]int
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
}

func TestConcurrentDeliveriesCallTheStoreOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const storm = 1000
		store, kept := newGatedStore()
		service, told := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		for range storm {
			go told.deliver(t.Context(), service, plain)
		}
		synctest.Wait()
		store.gate <- nil
		synctest.Wait()
		if told.outcomes[settle.OutcomeApplied] != 1 || told.outcomes[settle.OutcomeDuplicate] != storm-1 || told.errs != nil {
			t.Errorf("told %v, %v", told.outcomes, told.errs)
		}
		if calls := store.calls.Load(); calls != 1 {
			t.Errorf("%d calls of the store", calls)
		}
		if all := kept.Snapshot(); len(all.Movements) != 1 || len(all.Violations(false)) > 0 {
			t.Errorf("stored %+v", all)
		}
	})
}

// Neither another settlement nor another payload of the same one is waited for.
func TestCoalescingSeparatesPayouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _ := newGatedStore()
		service, told := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		go told.deliver(t.Context(), service, plain)
		go told.deliver(t.Context(), service, strings.Replace(plain, "stl-8472", "stl-8473", 1))
		go told.deliver(t.Context(), service, strings.Replace(plain, "4731", "4732", 1))
		synctest.Wait()
		if calls := store.calls.Load(); calls != 3 {
			t.Errorf("%d of three payouts have called the store", calls)
		}
		for range 3 {
			store.gate <- nil
		}
		synctest.Wait()
		if told.outcomes[settle.OutcomeApplied] != 2 || told.outcomes[settle.OutcomeConflict] != 1 {
			t.Errorf("told %v, %v", told.outcomes, told.errs)
		}
	})
}

// Conflicts are not shared: each delivery is recorded, one after another.
func TestConflictsAreNotCoalesced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const conflicts = 5
		store, kept := newGatedStore()
		service, told := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		go told.deliver(t.Context(), service, plain)
		synctest.Wait()
		store.gate <- nil
		synctest.Wait()
		for range conflicts {
			go told.deliver(t.Context(), service, strings.Replace(plain, "4731", "4732", 1))
		}
		for range conflicts {
			synctest.Wait()
			store.gate <- nil
		}
		synctest.Wait()
		if told.outcomes[settle.OutcomeApplied] != 1 || told.outcomes[settle.OutcomeConflict] != conflicts {
			t.Errorf("told %v, %v", told.outcomes, told.errs)
		}
		if store.crowded.Load() {
			t.Error("two deliveries of one payout called the store at once")
		}
		if all := kept.Snapshot(); len(all.Conflicts) != 1 || all.Conflicts[0].Deliveries != conflicts {
			t.Errorf("conflicts %+v", all.Conflicts)
		}
	})
}

// The next delivery calls the store itself after a failure.
func TestFailuresAreNotShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _ := newGatedStore()
		service, told := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		for range 3 {
			go told.deliver(t.Context(), service, plain)
		}
		synctest.Wait()
		store.gate <- settle.ErrOutcomeUnknown
		synctest.Wait()
		store.gate <- nil
		synctest.Wait()
		if len(told.errs) != 1 || !errors.Is(told.errs[0], settle.ErrOutcomeUnknown) ||
			told.outcomes[settle.OutcomeApplied] != 1 || told.outcomes[settle.OutcomeDuplicate] != 1 {
			t.Errorf("told %v, %v", told.outcomes, told.errs)
		}
	})
}

// A waiting delivery whose context ends fails alone.
func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _ := newGatedStore()
		service, told := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		hasty, cancel := context.WithCancel(t.Context())
		go told.deliver(t.Context(), service, plain)
		synctest.Wait()
		go told.deliver(hasty, service, plain)
		synctest.Wait()
		go told.deliver(t.Context(), service, plain)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(told.errs) != 1 || !errors.Is(told.errs[0], context.Canceled) || !strings.Contains(told.errs[0].Error(), `"stl-8472"`) {
			t.Fatalf("told %v, %v", told.outcomes, told.errs)
		}
		store.gate <- nil
		synctest.Wait()
		if told.outcomes[settle.OutcomeApplied] != 1 || told.outcomes[settle.OutcomeDuplicate] != 1 {
			t.Errorf("told %v, %v", told.outcomes, told.errs)
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

// A delivery after the last one of its payout calls the store again.
func TestResultsAreNotCached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, _ := newGatedStore()
		service, told := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		for range 2 {
			go told.deliver(t.Context(), service, plain)
			synctest.Wait()
			store.gate <- nil
			synctest.Wait()
		}
		if calls := store.calls.Load(); calls != 2 {
			t.Errorf("%d calls of the store, want one for each", calls)
		}
	})
}

// Deliveries call the store themselves once they have waited coalesceLimit.
func TestStuckDeliveryDelaysOthersByTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const others = 5
		store, _ := newGatedStore()
		service, told := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		stuck, cancel := context.WithCancel(t.Context())
		defer cancel()
		go told.deliver(stuck, service, plain)
		synctest.Wait()
		ctx, cancelOthers := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancelOthers()
		for range others {
			go told.deliver(ctx, service, plain)
		}
		time.Sleep(3 * time.Second) // of the bubble's time
		synctest.Wait()
		if calls := store.calls.Load(); calls != 1+others {
			t.Fatalf("%d calls of the store, want those of the others beside the stuck one", calls)
		}
		cancel() // or the gate would let it in with the others
		synctest.Wait()
		for range others {
			store.gate <- nil
		}
		synctest.Wait()
		if told.outcomes[settle.OutcomeApplied] != 1 || told.outcomes[settle.OutcomeDuplicate] != others-1 || len(told.errs) != 1 {
			t.Errorf("told %v, %v", told.outcomes, told.errs)
		}
	})
}

// Lease and key lifetime of an instruction count from the call of the store, not from
// before the wait.
func TestInstructionTimesCountFromTheStoreCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, kept := newGatedStore()
		bank := &countingBank{}
		service, told := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		service.Banking = stepper(store, bank)
		service.Banking.Now = time.Now
		go told.deliver(t.Context(), service, wantsBank)
		synctest.Wait()
		go told.deliver(t.Context(), service, wantsBank)
		synctest.Wait()
		time.Sleep(time.Second)
		store.gate <- settle.ErrOutcomeUnknown // the first leaves nothing
		synctest.Wait()
		began := time.Now()
		store.gate <- nil
		synctest.Wait()
		in := kept.Snapshot().Instructions
		if len(in) != 1 || !in[0].FirstSentAt.Equal(began) || bank.sends.Load() != 1 {
			t.Errorf("%d sends, instructions %+v, want the first sent at %v", bank.sends.Load(), in, began)
		}
	})
}

// Only the delivery that settles a bank payout makes a step at the bank.
func TestConcurrentDeliveriesOfABankPayoutSendOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const storm = 50
		store, kept := newGatedStore()
		bank := &countingBank{}
		service, told := newService(store), answers{outcomes: map[settle.Outcome]int{}}
		service.Banking = stepper(store, bank)
		for range storm {
			go told.deliver(t.Context(), service, wantsBank)
		}
		synctest.Wait()
		store.gate <- nil
		synctest.Wait()
		if told.outcomes[settle.OutcomeApplied] != 1 || told.outcomes[settle.OutcomeDuplicate] != storm-1 {
			t.Errorf("told %v, %v", told.outcomes, told.errs)
		}
		if sends, changes := bank.sends.Load(), store.changes.Load(); sends != 1 || changes != 1 {
			t.Errorf("%d sends, %d changes of the instruction; want the send and its record", sends, changes)
		}
		if in := kept.Snapshot().Instructions; len(in) != 1 || in[0].Sends != 1 {
			t.Errorf("instructions %+v", in)
		}
	})
}

// countingBank is a composer that counts what is sent.
type countingBank struct {
	composer

	sends atomic.Int32
}

func (b *countingBank) Send(ctx context.Context, r transfer.SendRequest) transfer.SendResult {
	b.sends.Add(1)
	return b.composer.Send(ctx, r)
}
