package memstore_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/memstore"
	"github.com/settleonce/settleonce/internal/test/storetest"
)

type backend struct{ store *memstore.Store }

func (b backend) Open(*testing.T) storetest.Store       { return b.store }
func (b backend) Snapshot(*testing.T) audit.Snapshot    { return b.store.Snapshot() }
func (b backend) DeleteReceipt(_ *testing.T, id string) { b.store.DeleteReceipt(id) }
func newBackend(*testing.T) storetest.Backend           { return backend{memstore.New(time.Now)} }
func TestConformance(t *testing.T)                      { storetest.Run(t, newBackend) }

func TestSnapshotsOfAllIDsAreTheWholeSnapshot(t *testing.T) {
	t.Parallel()
	store := memstore.New(time.Now)
	deliver := func(id, delivery string, amount int64) {
		p := payout.Payout{SettlementID: id, AccountID: "reserve", AmountCents: amount, Currency: "USD", CreditorAccount: "cp-19"}
		in := transfer.NewInstruction(p, []byte("body"), time.Now())
		if _, err := store.Settle(t.Context(), settle.Settlement{Payout: p, Hash: p.Hash(), DeliveryID: delivery, Instruction: in}); err != nil {
			t.Fatal(err)
		}
	}
	for n, id := range []string{"a", "b", "c"} {
		deliver(id, id, 1)
		for other := range n {
			deliver(id, id, int64(2+other)) // a conflict
		}
	}
	if _, err := store.Change(t.Context(), "b", func(in transfer.Instruction) (transfer.Change, error) {
		in.State, in.Version = transfer.StateRejected, in.Version+1
		event := &transfer.Event{From: transfer.StateUncertain, To: in.State, Cause: transfer.CauseAnswer}
		return transfer.Change{Write: true, Next: in, Event: event, Reverse: true, Settled: true}, nil
	}); err != nil {
		t.Fatal(err)
	}
	var all audit.Snapshot
	for _, id := range []string{"a", "b", "c"} {
		of := store.SnapshotOf(id)
		all.Movements = append(all.Movements, of.Movements...)
		all.Receipts = append(all.Receipts, of.Receipts...)
		all.Reversals = append(all.Reversals, of.Reversals...)
		all.Instructions = append(all.Instructions, of.Instructions...)
		all.Events = append(all.Events, of.Events...)
		all.Conflicts = append(all.Conflicts, of.Conflicts...)
	}
	if diff := cmp.Diff(store.Snapshot(), all); diff != "" || len(all.Conflicts) != 3 || len(all.Reversals) != 1 || len(all.Events) != 4 {
		t.Errorf("snapshot (-whole +parts):\n%s\n%+v", diff, all)
	}
	if none := store.SnapshotOf("d"); !cmp.Equal(none, audit.Snapshot{}) {
		t.Errorf("rows of an unknown ID: %+v", none)
	}
}
