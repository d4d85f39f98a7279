package linear_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/linear"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

// twoTransactions is a broken store on Spanner, which shows that the check can fail. It
// reads the settlement in one transaction and inserts it in another.
type twoTransactions struct {
	settle.Store // unused
	client       *spanner.Client
}

func (s twoTransactions) Settle(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	key := sha256.Sum256([]byte(st.Payout.SettlementID))
	row, err := s.client.Single().ReadRow(ctx, "ledger_movements", spanner.Key{key[:]}, []string{"payload_hash", "recorded_at"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return s.insert(ctx, st)
	}
	result := settle.Result{Outcome: settle.OutcomeConflict}
	var hash string
	if err == nil {
		err = row.Columns(&hash, &result.AppliedAt)
	}
	if hash == string(st.Hash) {
		result.Outcome = settle.OutcomeDuplicate
	}
	return result, err
}

func (s twoTransactions) insert(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	appliedAt, err := s.client.Apply(ctx, []*spanner.Mutation{
		spanner.InsertOrUpdateMap("ledger_movements", map[string]any{
			"settlement_id": st.Payout.SettlementID, "account_id": st.Payout.AccountID, "amount_cents": st.Payout.AmountCents,
			"currency": st.Payout.Currency, "payload_hash": string(st.Hash), "recorded_at": spanner.CommitTimestamp,
		}),
		spanner.InsertOrUpdateMap("settlement_receipts", map[string]any{
			"settlement_id": st.Payout.SettlementID, "payload_hash": string(st.Hash), "result_status": "applied",
			"delivery_id": st.DeliveryID, "message_id": st.Message.ID, "applied_at": spanner.CommitTimestamp,
		}),
	}, spanner.ApplyAtLeastOnce())
	return settle.Result{Outcome: settle.OutcomeApplied, AppliedAt: appliedAt}, err
}

// opener opens a store with a client of its own.
type opener func(t *testing.T, e *emulator.Spanner, database string, options ...option.ClientOption) settle.Store

func openBroken(t *testing.T, e *emulator.Spanner, database string, options ...option.ClientOption) settle.Store {
	t.Helper()
	return twoTransactions{client: openClient(t, e, database, options...)}
}

// barrier makes the first Commits of several clients wait for each other. Its count is
// the number of clients.
type barrier struct{ sync.WaitGroup }

// option lets a client wait at the barrier.
func (b *barrier) option() option.ClientOption {
	var first sync.Once
	return option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if path.Base(method) == "Commit" {
				first.Do(func() { b.Done(); b.Wait() })
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
}

// race makes a history in which each instance delivers one of the payloads under the same
// settlement ID. All send their first Commits at the same moment, after the broken store
// has read that the settlement ID is free.
func race(t *testing.T, open opener, payloads ...linear.Payload) *linear.History {
	t.Helper()
	var (
		e        = emulatortest.Spanner(t)
		database = newDatabase(t, e)
		h        = linear.NewHistory(time.Now)
		commits  barrier
		running  sync.WaitGroup
	)
	commits.Add(len(payloads))
	for i, p := range payloads {
		m := linear.Message{ID: fmt.Sprint(i + 1), SettlementID: "stl-1", Payload: p}
		service := newService(open(t, e, database, commits.option()))
		running.Go(func() {
			operation := h.Deliver(m)
			answer := deliver(t.Context(), service, m)
			answer.Server = "store " + m.ID
			operation.End(answer)
		})
	}
	running.Wait()
	reader := openClient(t, e, database)
	if _, err := h.Read("reader", func() (audit.Snapshot, error) { return audit.Read(t.Context(), reader) }); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestCheckRejectsAStoreWithTwoTransactions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		open   opener
		caught int // settlements
	}{
		{"in two transactions", openBroken, 1},
		{"the real store", openStore, 0},
	} {
		for _, other := range []linear.Payload{linear.A, linear.B} {
			t.Run(fmt.Sprintf("%s, %s and %s", test.name, linear.A, other), func(t *testing.T) {
				t.Parallel()
				h := race(t, test.open, linear.A, other)
				found := h.Check()
				for _, v := range found {
					t.Log(v)
				}
				if len(found) != test.caught || h.Count()[linear.Delivered(settle.OutcomeUnknown)] > 0 {
					t.Errorf("%d settlements caught, want %d; %v", len(found), test.caught, h.Count())
				}
			})
		}
	}
}

// faultyStore is a correct store, except for the methods that a fault replaces.
type faultyStore struct {
	*memstore.Store
	fault fault
	extra *rows // that the fault stores beside the correct ones
}

type rows struct {
	sync.Mutex
	audit.Snapshot
}

// fault returns or stores something wrong. A nil function stands for the correct one.
type fault struct {
	settle     func(ctx context.Context, s faultyStore, st settle.Settlement) (settle.Result, error)
	quarantine func(ctx context.Context, s faultyStore, q settle.Quarantined) (known bool, err error)
}

// Settle implements settle.Store.
func (s faultyStore) Settle(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	if s.fault.settle == nil {
		return s.Store.Settle(ctx, st)
	}
	return s.fault.settle(ctx, s, st)
}

// Quarantine implements settle.Store.
func (s faultyStore) Quarantine(ctx context.Context, q settle.Quarantined) (known bool, err error) {
	if s.fault.quarantine == nil {
		return s.Store.Quarantine(ctx, q)
	}
	return s.fault.quarantine(ctx, s, q)
}

// snapshot returns all rows, also those that the fault stores.
func (s faultyStore) snapshot() (audit.Snapshot, error) {
	s.extra.Lock()
	defer s.extra.Unlock()
	all := s.Snapshot()
	all.Conflicts = append(all.Conflicts, s.extra.Conflicts...)
	return all, nil
}

// changed changes the results with one outcome.
func changed(of settle.Outcome, change func(*settle.Result)) fault {
	return fault{settle: func(ctx context.Context, s faultyStore, st settle.Settlement) (settle.Result, error) {
		result, err := s.Store.Settle(ctx, st)
		if result.Outcome == of {
			change(&result)
		}
		return result, err
	}}
}

// quarantining is a fault of Quarantine.
func quarantining(quarantine func(ctx context.Context, s faultyStore, q settle.Quarantined) (known bool, err error)) fault {
	return fault{quarantine: quarantine}
}

// judge returns the correct result, and stores nothing.
func (s faultyStore) judge(st settle.Settlement) (settle.Judgement, error) {
	return settle.Judge(settle.Stored{Movement: s.SnapshotOf(st.Payout.SettlementID).Movement(st.Payout.SettlementID)}, st)
}

// conflictNotRecorded calls every conflict recorded, and stores none.
func conflictNotRecorded(ctx context.Context, s faultyStore, st settle.Settlement) (settle.Result, error) {
	if judged, err := s.judge(st); err == nil && judged.Action == settle.ActionRecordConflict {
		return judged.Result, nil
	}
	return s.Store.Settle(ctx, st)
}

// conflictRecordedAgain stores a known conflict once more.
func conflictRecordedAgain(ctx context.Context, s faultyStore, st settle.Settlement) (settle.Result, error) {
	result, err := s.Store.Settle(ctx, st)
	if err == nil && result.Outcome == settle.OutcomeConflict && result.Known {
		s.extra.Lock()
		defer s.extra.Unlock()
		s.extra.Conflicts = append(s.extra.Conflicts, spannerstore.ConflictRow{
			SettlementID: st.Payout.SettlementID, PayloadHash: st.Hash, Payload: st.Message.Data, SeenAt: time.Now(),
		})
	}
	return result, err
}

var errTimedOut = errors.New("the attempt has timed out")

// redeliveryNotRead loses every first delivery, and takes each redelivery for a duplicate.
func redeliveryNotRead(_ context.Context, _ faultyStore, st settle.Settlement) (settle.Result, error) {
	if !st.Redelivered {
		return settle.Result{}, errTimedOut
	}
	return settle.Result{Outcome: settle.OutcomeDuplicate, SettlementID: st.Payout.SettlementID, AppliedAt: time.Unix(1, 0)}, nil
}

// timeoutIsApplied stores no settlement, and takes each attempt without an answer for a
// commit.
func timeoutIsApplied(ctx context.Context, s faultyStore, st settle.Settlement) (settle.Result, error) {
	if s.SnapshotOf(st.Payout.SettlementID).Movements != nil || rand.IntN(2) == 0 {
		return s.Store.Settle(ctx, st)
	}
	return settle.Result{Outcome: settle.OutcomeApplied, SettlementID: st.Payout.SettlementID, AppliedAt: time.Unix(1, 0)}, nil
}

var faults = map[string]fault{
	"conflict becomes duplicate":                   changed(settle.OutcomeConflict, func(r *settle.Result) { r.Outcome, r.Fields, r.Known = settle.OutcomeDuplicate, nil, false }),
	"duplicate becomes applied":                    changed(settle.OutcomeDuplicate, func(r *settle.Result) { r.Outcome = settle.OutcomeApplied }),
	"applied becomes duplicate":                    changed(settle.OutcomeApplied, func(r *settle.Result) { r.Outcome = settle.OutcomeDuplicate }),
	"conflict in a wrong member":                   changed(settle.OutcomeConflict, func(r *settle.Result) { r.Fields = []string{"currency"} }),
	"duplicate at a wrong time":                    changed(settle.OutcomeDuplicate, func(r *settle.Result) { r.AppliedAt = r.AppliedAt.Add(time.Second) }),
	"new conflict is called known":                 changed(settle.OutcomeConflict, func(r *settle.Result) { r.Known = true }),
	"known conflict is called new":                 changed(settle.OutcomeConflict, func(r *settle.Result) { r.Known = false }),
	"conflict without a record":                    {settle: conflictNotRecorded},
	"known conflict recorded again":                {settle: conflictRecordedAgain},
	"redelivery that finds nothing is a duplicate": {settle: redeliveryNotRead},
	"attempt without an answer is applied":         {settle: timeoutIsApplied},
	"quarantine that stores nothing":               quarantining(func(context.Context, faultyStore, settle.Quarantined) (bool, error) { return false, nil }),
	"known quarantine is called new": quarantining(func(ctx context.Context, s faultyStore, q settle.Quarantined) (bool, error) {
		_, err := s.Store.Quarantine(ctx, q)
		return false, err
	}),
	"new quarantine is called known": quarantining(func(ctx context.Context, s faultyStore, q settle.Quarantined) (bool, error) {
		_, err := s.Store.Quarantine(ctx, q)
		return true, err
	}),
	"quarantined again under another key": quarantining(func(ctx context.Context, s faultyStore, q settle.Quarantined) (bool, error) {
		known, err := s.Store.Quarantine(ctx, q)
		if known {
			q.Message.Subscription += "again"
			_, err = s.Store.Quarantine(ctx, q)
		}
		return known, err
	}),
}

func TestCheckRejectsFaultyStores(t *testing.T) {
	t.Parallel()
	const settlements, malformed = 20, 20
	run := func(t *testing.T, f fault) []linear.Violation {
		t.Helper()
		store := faultyStore{memstore.New(time.Now), f, &rows{}}
		service := newService(store)
		workload := linear.Workload{
			Name: "stl", Settlements: settlements, Messages: 6, Malformed: malformed, Workers: 8, Again: 2, IntN: rand.New(rand.NewPCG(1, 0)).IntN,
		}
		h := linear.NewHistory(time.Now)
		workload.Run(t.Context(), h, func(ctx context.Context, m linear.Message) linear.Answer { return deliver(ctx, service, m) })
		if _, err := h.Read("reader", store.snapshot); err != nil {
			t.Fatal(err)
		}
		return h.Check()
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if found := run(t, f); len(found) < min(settlements, malformed)/4 {
				t.Errorf("%d of %d settlements and messages caught", len(found), settlements+malformed)
			}
		})
	}
	t.Run("no fault", func(t *testing.T) {
		t.Parallel()
		for _, v := range run(t, fault{}) {
			t.Error(v)
		}
	})
}
