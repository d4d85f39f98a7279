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
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/linear"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

// twoTransactions is a broken store on Spanner, kept to show that the check can
// fail: it looks for the settlement in one transaction and inserts it in another.
type twoTransactions struct {
	settle.Store // nothing else is called
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

// meeting makes the first Commits of several clients wait for one another. It is
// to be added to with the number of clients.
type meeting struct{ sync.WaitGroup }

// option makes a client take part.
func (m *meeting) option() option.ClientOption {
	var first sync.Once
	return option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if path.Base(method) == "Commit" {
				first.Do(func() { m.Done(); m.Wait() })
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
}

// meet makes a history in which instances deliver a payload each under one
// settlement ID, and send their first Commits at the same moment: the broken ones
// have found nothing settled by then.
func meet(t *testing.T, open opener, payloads ...linear.Payload) *linear.History {
	t.Helper()
	var (
		e        = emulatortest.Spanner(t)
		database = newDatabase(t, e)
		h        = linear.NewHistory(time.Now)
		commits  meeting
		running  sync.WaitGroup
	)
	commits.Add(len(payloads))
	for i, p := range payloads {
		m := linear.Message{ID: fmt.Sprint(i + 1), SettlementID: "stl-1", Payload: p}
		service := newService(open(t, e, database, commits.option()))
		running.Go(func() {
			operation := h.Deliver(m)
			answer := deliver(t.Context(), service, m)
			answer.By = "store " + m.ID
			operation.End(answer)
		})
	}
	running.Wait()
	looker := openClient(t, e, database)
	if _, err := h.Look("looker", func() (audit.Snapshot, error) { return audit.Read(t.Context(), looker) }); err != nil {
		t.Fatal(err)
	}
	return h
}

// The real store goes through the same, and passes the same check.
func TestAStoreInTwoTransactionsIsCaught(t *testing.T) {
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
				h := meet(t, test.open, linear.A, other)
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

// lie is a way to settle that answers something else, or does something else,
// than the honest store.
type lie func(ctx context.Context, honest settle.Store, st settle.Settlement) (settle.Result, error)

// liar is a store that lies.
type liar struct {
	settle.Store
	lie lie
}

func (l liar) Settle(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	return l.lie(ctx, l.Store, st)
}

// instead is the lie that changes the answers of one outcome.
func instead(of settle.Outcome, change func(*settle.Result)) lie {
	return func(ctx context.Context, honest settle.Store, st settle.Settlement) (settle.Result, error) {
		result, err := honest.Settle(ctx, st)
		if result.Outcome == of {
			change(&result)
		}
		return result, err
	}
}

var lies = map[string]lie{
	"a conflict is called a duplicate": instead(settle.OutcomeConflict, func(r *settle.Result) { r.Outcome, r.Fields = settle.OutcomeDuplicate, nil }),
	"a duplicate is called applied":    instead(settle.OutcomeDuplicate, func(r *settle.Result) { r.Outcome = settle.OutcomeApplied }),
	"applied is called a duplicate":    instead(settle.OutcomeApplied, func(r *settle.Result) { r.Outcome = settle.OutcomeDuplicate }),
	"another member is named":          instead(settle.OutcomeConflict, func(r *settle.Result) { r.Fields = []string{"currency"} }),
	"another time is told":             instead(settle.OutcomeDuplicate, func(r *settle.Result) { r.AppliedAt = r.AppliedAt.Add(time.Second) }),
	"nothing is stored": func(_ context.Context, _ settle.Store, st settle.Settlement) (settle.Result, error) {
		return settle.Result{Outcome: settle.OutcomeApplied, SettlementID: st.Payout.SettlementID, AppliedAt: time.Unix(1, 0)}, nil
	},
}

// TestLiarsAreCaught runs the workload on stores in memory that lie, and on one
// that does not.
func TestLiarsAreCaught(t *testing.T) {
	t.Parallel()
	const settlements = 20
	run := func(t *testing.T, how lie) []linear.Violation {
		t.Helper()
		honest := memstore.New(time.Now)
		service := newService(liar{honest, how})
		workload := linear.Workload{
			Name: "stl", Settlements: settlements, Messages: 4, Workers: 8, Again: 3, IntN: rand.New(rand.NewPCG(1, 0)).IntN,
		}
		h := linear.NewHistory(time.Now)
		workload.Run(t.Context(), h, func(ctx context.Context, m linear.Message) linear.Answer { return deliver(ctx, service, m) })
		if _, err := h.Look("looker", func() (audit.Snapshot, error) { return honest.Snapshot(), nil }); err != nil {
			t.Fatal(err)
		}
		return h.Check()
	}
	for name, how := range lies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if found := run(t, how); len(found) < settlements/2 {
				t.Errorf("%d of %d settlements caught", len(found), settlements)
			}
		})
	}
	t.Run("no lie", func(t *testing.T) {
		t.Parallel()
		truth := func(ctx context.Context, honest settle.Store, st settle.Settlement) (settle.Result, error) {
			return honest.Settle(ctx, st)
		}
		for _, v := range run(t, truth) {
			t.Error(v)
		}
	})
}
