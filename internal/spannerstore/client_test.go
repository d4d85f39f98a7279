package spannerstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/storetest"
	"github.com/settleonce/settleonce/schema"
)

// newStore returns a store whose clients share one wire.
func newStore(t *testing.T, b backend, w *wire) *spannerstore.Store {
	t.Helper()
	store := spannerstore.New(spannerstore.Config{
		Database: b.database, Emulator: true, Options: append(emulatortest.Spanner(t).ClientOptions(), w.options()...),
	})
	t.Cleanup(store.Close)
	return store
}

// clients counts the clients opened since the latest call of watch.
func (w *wire) clients() int {
	return len(slices.DeleteFunc(w.seen(), func(rpc string) bool { return rpc != "CreateSession" }))
}

func TestWorkingClientIsKept(t *testing.T) {
	t.Parallel()
	b, w := newBackend(t), &wire{}
	store := newStore(t, b, w)
	if rpcs := w.seen(); len(rpcs) != 0 {
		t.Errorf("RPCs before the first call: %q", rpcs)
	}
	must := func(_ settle.Result, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(store.Settle(t.Context(), storetest.NewSettlement(t, wantsBank)))

	ctx, cancel := context.WithCancel(t.Context())
	w.fault = func(int) fault {
		return fault{err: status.Error(codes.DeadlineExceeded, "late"), lose: true, then: cancel}
	}
	if _, err := store.Settle(ctx, storetest.NewSettlement(t, other)); err == nil {
		t.Error("settled for a cancelled caller")
	}
	w.fault = nil
	notDue := func(transfer.Instruction) (transfer.Change, error) { return transfer.Change{}, transfer.ErrNotDue }
	if _, err := store.Change(t.Context(), "stl-8472", notDue); !errors.Is(err, transfer.ErrNotDue) {
		t.Errorf("error %v, want ErrNotDue", err)
	}
	must(store.Settle(t.Context(), storetest.NewSettlement(t, third)))
	if n := w.clients(); n != 1 {
		t.Errorf("%d clients, want 1", n)
	}
}

// Spanner has deleted the session while a call is in progress. The next call succeeds
// with a new client, and the call in progress keeps the old one.
func TestDeletedSessionIsReplaced(t *testing.T) {
	t.Parallel()
	deleted, err := status.New(codes.NotFound, "any text").WithDetails(
		&errdetails.ResourceInfo{ResourceType: "type.googleapis.com/google.spanner.v1.Session"})
	if err != nil {
		t.Fatal(err)
	}
	b, w := newBackend(t), &wire{}
	store := newStore(t, b, w)
	if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, other)); err != nil {
		t.Fatal(err)
	}
	underWay, goOn := make(chan struct{}), make(chan struct{})
	w.watch(func(commit int) fault {
		switch commit {
		case 1:
			return fault{first: func() { close(underWay); <-goOn }}
		case 2:
			return fault{err: deleted.Err(), lose: true}
		default:
			return fault{}
		}
	})
	slow := make(chan error, 1)
	go func() {
		result, err := store.Settle(t.Context(), storetest.NewSettlement(t, plain))
		if err == nil && result.Outcome != settle.OutcomeApplied {
			t.Errorf("the call in progress: outcome %v", result.Outcome)
		}
		slow <- err
	}()
	<-underWay
	result, err := store.Settle(t.Context(), storetest.NewSettlement(t, third))
	if err != nil || result.Outcome != settle.OutcomeApplied {
		t.Errorf("outcome %v, %v", result.Outcome, err)
	}
	if n := w.clients(); n != 1 {
		t.Errorf("%d new clients, want 1", n)
	}
	close(goOn)
	if err := <-slow; err != nil {
		t.Errorf("the call in progress: %v", err)
	}
}

// A restore creates the database anew under its name: the client's session is gone. The
// first delivery after it succeeds.
func TestRecreatedDatabaseGetsANewSession(t *testing.T) {
	t.Parallel()
	b, w := newBackend(t), &wire{}
	store := newStore(t, b, w)
	if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, plain)); err != nil {
		t.Fatal(err)
	}
	emulator := emulatortest.Spanner(t)
	if err := emulator.DropDatabase(t.Context(), b.database); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, third)); err == nil {
		t.Error("settled without a database")
	}
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := emulator.CreateDatabase(t.Context(), b.database, statements); err != nil {
		t.Fatal(err)
	}
	result, err := store.Settle(t.Context(), storetest.NewSettlement(t, third))
	if err != nil || result.Outcome != settle.OutcomeApplied {
		t.Errorf("outcome %v, %v", result.Outcome, err)
	}
}

// An unavailable Spanner is no reason for a new client: gRPC connects again by itself.
func TestUnavailabilityKeepsTheClient(t *testing.T) {
	t.Parallel()
	b, w := newBackend(t), &wire{}
	store := newStore(t, b, w)
	if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, other)); err != nil {
		t.Fatal(err)
	}
	w.watch(func(int) fault { return fault{err: status.Error(codes.Unavailable, "down"), lose: true} })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := store.Settle(ctx, storetest.NewSettlement(t, third)); err == nil {
		t.Fatal("settled while Spanner is down")
	}
	w.mu.Lock()
	w.fault = nil
	w.mu.Unlock()
	if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, third)); err != nil || w.clients() != 0 {
		t.Errorf("%v with %d new clients", err, w.clients())
	}
}

const third = `{"settlement_id":"stl-3","account_id":"a","amount_cents":3}`

func TestCallsFailAfterClose(t *testing.T) {
	t.Parallel()
	b, w := newBackend(t), &wire{}
	store := newStore(t, b, w)
	store.Close()
	if _, err := store.Quarantine(t.Context(), settle.Quarantined{}); err == nil || len(w.seen()) != 0 {
		t.Errorf("error %v, RPCs %q", err, w.seen())
	}
}
