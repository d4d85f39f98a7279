package spannerstore_test

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/test/storetest"
)

// wire records the RPCs of a client and can lose requests and answers.
type wire struct {
	mu   sync.Mutex
	rpcs []string
	// fault returns the fault of each Commit, by its number from 1.
	fault func(commit int) fault
	n     int
	fired int // injected faults
}

// fault disturbs one Commit. The zero value does not.
type fault struct {
	err   error  // replaces the answer
	lose  bool   // the request does not reach Spanner
	first func() // runs before the request is sent
	then  func() // runs after Spanner's answer or the loss
}

func (w *wire) options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(w.unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(w.stream)),
	}
}

func (w *wire) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	f := w.note(path.Base(method))
	if f.first != nil {
		f.first()
	}
	if f.then != nil {
		defer f.then()
	}
	if f.lose {
		return f.err
	}
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return err
	}
	return f.err
}

func (w *wire) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	w.note(path.Base(method))
	return streamer(ctx, desc, cc, method, opts...)
}

func (w *wire) note(method string) fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rpcs = append(w.rpcs, method)
	if method != "Commit" || w.fault == nil {
		return fault{}
	}
	w.n++
	f := w.fault(w.n)
	if f.err != nil {
		w.fired++
	}
	return f
}

// wantFired fails a test without an injected fault.
func (w *wire) wantFired(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fired == 0 {
		t.Error("no fault was injected")
	}
}

// watch clears the record and sets the faults of later Commits.
func (w *wire) watch(f func(commit int) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rpcs, w.n, w.fault = nil, 0, f
}

func (w *wire) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.rpcs)
}

const (
	plain   = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731}`
	changed = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4732}`
	other   = `{"settlement_id":"stl-1","account_id":"reserve-claims","amount_cents":1}`
)

func TestRPCsOfADelivery(t *testing.T) {
	t.Parallel()
	b, w := newBackend(t), &wire{}
	store := b.open(t, w.options()...)
	if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, other)); err != nil { // creates the client's session
		t.Fatal(err)
	}
	for _, step := range []struct {
		name    string
		message string
		want    settle.Outcome
		rpcs    []string
	}{
		{"fresh", plain, settle.OutcomeApplied, []string{"Commit"}},
		{"duplicate", plain, settle.OutcomeDuplicate, []string{"Commit", "ExecuteStreamingSql"}},
		{"conflict", changed, settle.OutcomeConflict, []string{"Commit", "ExecuteStreamingSql", "Commit"}},
		{"conflict again", changed, settle.OutcomeConflict, []string{"Commit", "ExecuteStreamingSql", "ExecuteStreamingSql", "Commit"}},
	} {
		w.watch(nil)
		result, err := store.Settle(t.Context(), storetest.NewSettlement(t, step.message))
		if err != nil || result.Outcome != step.want {
			t.Errorf("%s: %v, %v", step.name, result.Outcome, err)
		}
		if diff := cmp.Diff(step.rpcs, w.seen()); diff != "" {
			t.Errorf("%s: RPCs (-want +got):\n%s", step.name, diff)
		}
	}
	w.watch(nil)
	if err := store.Quarantine(t.Context(), settle.Quarantined{DeliveryID: "d"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Commit"}, w.seen()); diff != "" {
		t.Errorf("quarantine: RPCs (-want +got):\n%s", diff)
	}
}

// lostAnswers are the errors of a lost answer.
var lostAnswers = map[string]error{
	"UNAVAILABLE":         status.Error(codes.Unavailable, "connection reset"),
	"DEADLINE_EXCEEDED":   status.Error(codes.DeadlineExceeded, "deadline"),
	"INTERNAL":            status.Error(codes.Internal, "internal"),
	"INTERNAL RST_STREAM": status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"),
	"UNKNOWN":             status.Error(codes.Unknown, "unknown"),
	"CANCELLED":           status.Error(codes.Canceled, "cancelled"),
	"ABORTED":             status.Error(codes.Aborted, "aborted"),
}

const secondLost = "answer of the second Commit lost"

// faultPlans select the disturbed Commits of one delivery.
var faultPlans = map[string]func(err error, commit int) fault{
	"answer of the first Commit lost": func(err error, commit int) fault {
		if commit == 1 {
			return fault{err: err}
		}
		return fault{}
	},
	"request of the first Commit lost, then an answer": func(err error, commit int) fault {
		switch commit {
		case 1:
			return fault{err: err, lose: true}
		case 2:
			return fault{err: err}
		}
		return fault{}
	},
	secondLost: func(err error, commit int) fault {
		if commit == 2 {
			return fault{err: err}
		}
		return fault{}
	},
	"answers of the first three Commits lost": func(err error, commit int) fault {
		if commit <= 3 {
			return fault{err: err}
		}
		return fault{}
	},
}

// deliver settles under a time limit. Like Pub/Sub, it redelivers after an error.
func deliver(t *testing.T, store settle.Store, message string) (settle.Result, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	result, err := store.Settle(ctx, storetest.NewSettlement(t, message))
	if err == nil {
		return result, false
	}
	if !errors.Is(err, settle.ErrOutcomeUnknown) {
		t.Errorf("error %v, want ErrOutcomeUnknown", err)
	}
	result, err = store.Settle(t.Context(), storetest.NewSettlement(t, message))
	if err != nil {
		t.Fatalf("redelivered: %v", err)
	}
	return result, true
}

// eachLostAnswer runs test with every error and every plan. secondCommit means that the
// test makes a second Commit even without a fault.
func eachLostAnswer(t *testing.T, secondCommit bool, test func(t *testing.T, plan func(commit int) fault)) {
	t.Helper()
	for code, err := range lostAnswers {
		for name, plan := range faultPlans {
			if name == secondLost && !secondCommit {
				continue
			}
			t.Run(code+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, func(commit int) fault { return plan(err, commit) })
			})
		}
	}
}

func TestLostAnswerSettlesOnce(t *testing.T) {
	t.Parallel()
	eachLostAnswer(t, false, func(t *testing.T, f func(int) fault) {
		b, w := newBackend(t), &wire{}
		store := b.open(t, w.options()...)
		w.watch(f)
		result, delivered := deliver(t, store, plain)
		w.wantFired(t)
		want := settle.OutcomeApplied
		if delivered && result.Outcome == settle.OutcomeDuplicate {
			want = settle.OutcomeDuplicate
		}
		if result.Outcome != want {
			t.Errorf("outcome %v after %d deliveries", result.Outcome, map[bool]int{false: 1, true: 2}[delivered])
		}
		all := b.Snapshot(t)
		if len(all.Movements) != 1 || len(all.Receipts) != 1 || len(all.Conflicts) != 0 || len(all.Violations(false)) > 0 {
			t.Errorf("stored %+v", all)
		}
	})
}

func TestLostAnswerRecordsAConflictOnce(t *testing.T) {
	t.Parallel()
	eachLostAnswer(t, true, func(t *testing.T, f func(int) fault) {
		b, w := newBackend(t), &wire{}
		store := b.open(t, w.options()...)
		if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, plain)); err != nil {
			t.Fatal(err)
		}
		w.watch(f)
		result, delivered := deliver(t, store, changed)
		w.wantFired(t)
		if result.Outcome != settle.OutcomeConflict || !slices.Equal(result.Fields, []string{"amount_cents"}) {
			t.Errorf("result %+v", result)
		}
		all := b.Snapshot(t)
		if len(all.Conflicts) != 1 || len(all.Movements) != 1 || len(all.Violations(false)) > 0 {
			t.Fatalf("stored %+v", all)
		}
		if got := all.Conflicts[0].Deliveries; !delivered && got != 1 || got > 2 {
			t.Errorf("one delivery counted %d times", got)
		}
	})
}

func TestLostAnswerQuarantinesOnce(t *testing.T) {
	t.Parallel()
	eachLostAnswer(t, false, func(t *testing.T, f func(int) fault) {
		b, w := newBackend(t), &wire{}
		store := b.open(t, w.options()...)
		w.watch(f)
		q := settle.Quarantined{DeliveryID: storetest.DeliveryID(), Refusal: payout.Refusal{Reason: payout.ReasonEmptyData}}
		if err := store.Quarantine(t.Context(), q); err != nil {
			t.Errorf("quarantine: %v", err)
		}
		w.wantFired(t)
		if rows := b.Snapshot(t).Quarantined; len(rows) != 1 || rows[0].Deliveries != 1 {
			t.Errorf("stored %+v", rows)
		}
	})
}

// A cancelled caller gets no outcome and causes no further RPC. Its redelivery finds the
// commit, if any.
func TestSettleDoesNotReadForACancelledCaller(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		lose   bool
		replay settle.Outcome
	}{{"after the Commit", false, settle.OutcomeDuplicate}, {"before the Commit", true, settle.OutcomeApplied}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b, w := newBackend(t), &wire{}
			store := b.open(t, w.options()...)
			if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, other)); err != nil { // creates the client's session
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			w.watch(func(commit int) fault {
				if commit > 1 {
					return fault{}
				}
				return fault{err: status.FromContextError(context.Canceled).Err(), lose: test.lose, then: cancel}
			})
			result, err := store.Settle(ctx, storetest.NewSettlement(t, plain))
			if !errors.Is(err, settle.ErrOutcomeUnknown) || result.Outcome.Final() {
				t.Errorf("%v, %v; want ErrOutcomeUnknown", result.Outcome, err)
			}
			if diff := cmp.Diff([]string{"Commit"}, w.seen()); diff != "" {
				t.Errorf("RPCs (-want +got):\n%s", diff)
			}
			result, err = store.Settle(t.Context(), storetest.NewSettlement(t, plain))
			if err != nil || result.Outcome != test.replay {
				t.Errorf("redelivered: %v, %v; want %v", result.Outcome, err, test.replay)
			}
		})
	}
}
