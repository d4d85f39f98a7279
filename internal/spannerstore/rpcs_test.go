package spannerstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/test/storetest"
)

// trips holds the RPCs of a delivery until as many as it expects are under way at once.
// A store that makes them one after another waits for ever.
type trips struct {
	mu    sync.Mutex
	sizes []int // RPCs of each round trip
	begun int   // in the current one
	full  chan struct{}
}

func (r *trips) join(ctx context.Context) {
	r.mu.Lock()
	if len(r.sizes) == 0 {
		r.mu.Unlock()
		return
	}
	if r.full == nil {
		r.full = make(chan struct{})
	}
	full := r.full
	if r.begun++; r.begun == r.sizes[0] {
		close(full)
		r.sizes, r.begun, r.full = r.sizes[1:], 0, nil
	}
	r.mu.Unlock()
	select {
	case <-full:
	case <-ctx.Done():
	}
}

// delivery is one call of the store, and the RPCs that it may make: a list for each
// round trip.
type delivery struct {
	name        string
	message     string
	redelivered bool
	want        settle.Outcome
	known       bool
	trips       [][]string
}

var (
	commit    = []string{"Commit"}
	read      = []string{"StreamingRead"}
	bothReads = []string{"StreamingRead", "StreamingRead"} // movement and conflict
)

// deliveriesOf are the deliveries of design section 6 in an order that makes each case,
// for a payout and another payload with its ID. The receipt expires between both lists.
func deliveriesOf(settled, changed string) (before, expired []delivery) {
	before = []delivery{
		{"redelivered and not settled", settled, true, settle.OutcomeApplied, false, [][]string{read, commit}},
		{"duplicate", settled, false, settle.OutcomeDuplicate, false, [][]string{commit, read}},
		{"duplicate, redelivered", settled, true, settle.OutcomeDuplicate, false, [][]string{read}},
		{"conflict", changed, false, settle.OutcomeConflict, false, [][]string{commit, read, bothReads, commit}},
		{"known conflict", changed, false, settle.OutcomeConflict, true, [][]string{commit, read, bothReads}},
		{"known conflict, redelivered", changed, true, settle.OutcomeConflict, true, [][]string{read, bothReads}},
	}
	expired = []delivery{
		{"receipt expired", settled, false, settle.OutcomeDuplicate, false, [][]string{commit, read, bothReads}},
		{"receipt expired, redelivered", settled, true, settle.OutcomeDuplicate, false, [][]string{read, commit, bothReads}},
		{"receipt expired, known conflict", changed, false, settle.OutcomeConflict, true, [][]string{commit, read, bothReads}},
	}
	return before, expired
}

// The RPCs and round trips of each outcome are those of the design: commits and reads by
// key, and never a query.
func TestRPCsOfADelivery(t *testing.T) {
	t.Parallel()
	for name, creditor := range map[string]string{"without a bank": "", "with a bank instruction": `,"creditor_account":"c"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, w := newBackend(t), &wire{}
			store := b.open(t, w.options()...)
			settled := `{"settlement_id":"stl-8472","account_id":"a","amount_cents":1` + creditor + `}`
			fresh := delivery{"fresh", strings.Replace(settled, "8472", "2", 1), false, settle.OutcomeApplied, false, [][]string{commit}}
			if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, other)); err != nil { // creates the client's session
				t.Fatal(err)
			}
			w.deliver(t, store, fresh.message, fresh)
			before, expired := deliveriesOf(settled, strings.Replace(settled, ":1", ":2", 1))
			for _, d := range before {
				w.deliver(t, store, d.message, d)
			}
			b.DeleteReceipt(t, "stl-8472")
			for _, d := range expired {
				w.deliver(t, store, d.message, d)
			}
		})
	}
}

// deliver makes one delivery and compares its outcome and RPCs.
func (w *wire) deliver(t *testing.T, store settle.Store, message string, d delivery) {
	t.Helper()
	st := storetest.NewSettlement(t, message)
	st.Redelivered = d.redelivered
	w.watch(nil)
	ctx, cancel := w.expect(t, d.trips)
	defer cancel()
	result, err := store.Settle(ctx, st)
	if err != nil || result.Outcome != d.want || result.Known != d.known {
		t.Errorf("%s: %+v, %v", d.name, result, err)
	}
	w.wantRPCs(t, d.name, d.trips)
}

// expect makes the RPCs of each round trip wait for each other.
func (w *wire) expect(t *testing.T, expected [][]string) (context.Context, context.CancelFunc) {
	t.Helper()
	r := &trips{}
	for _, rpcs := range expected {
		r.sizes = append(r.sizes, len(rpcs))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trips = r
	return context.WithTimeout(t.Context(), 20*time.Second)
}

func (w *wire) wantRPCs(t *testing.T, name string, expected [][]string) {
	t.Helper()
	if diff := cmp.Diff(slices.Concat(expected...), w.seen()); diff != "" {
		t.Errorf("%s: RPCs (-want +got):\n%s", name, diff)
	}
}

func TestRPCsOfAQuarantinedMessage(t *testing.T) {
	t.Parallel()
	b, w := newBackend(t), &wire{}
	store := b.open(t, w.options()...)
	if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, other)); err != nil { // creates the client's session
		t.Fatal(err)
	}
	for _, known := range []bool{false, true} {
		w.watch(nil)
		ctx, cancel := w.expect(t, [][]string{commit})
		got, err := store.Quarantine(ctx, settle.Quarantined{Refusal: payout.Refusal{Reason: payout.ReasonEmptyData}})
		cancel()
		if err != nil || got != known {
			t.Errorf("known %t, %v; want %t", got, err, known)
		}
		w.wantRPCs(t, fmt.Sprintf("known %t", known), [][]string{commit})
	}
	w.watch(nil)
	ctx, cancel := w.expect(t, [][]string{read})
	defer cancel()
	if movement, err := store.Movement(ctx, "stl-1"); err != nil || movement == nil || movement.SettlementID != "stl-1" {
		t.Errorf("movement %+v, %v", movement, err)
	}
	w.wantRPCs(t, "movement", [][]string{read})
}

// A payout that no bank serves is compared with the stored one, in the reads of a
// redelivery.
func TestRPCsOfAPayoutWithoutARoute(t *testing.T) {
	t.Parallel()
	b, w := newBackend(t), &wire{}
	store := b.open(t, w.options()...)
	if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, wantsBank)); err != nil {
		t.Fatal(err)
	}
	st := storetest.NewSettlement(t, wantsBank)
	st.Instruction = nil
	w.watch(nil)
	ctx, cancel := w.expect(t, [][]string{read})
	defer cancel()
	result, err := store.Settle(ctx, st)
	if err != nil || result.Outcome != settle.OutcomeDuplicate {
		t.Errorf("%+v, %v", result, err)
	}
	w.wantRPCs(t, "duplicate", [][]string{read})
}
