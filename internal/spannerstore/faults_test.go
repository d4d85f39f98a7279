package spannerstore_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/audit"
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
	fired int    // injected faults
	trips *trips // nil: RPCs do not wait
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
	f := w.note(ctx, path.Base(method))
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
	w.note(ctx, path.Base(method))
	return streamer(ctx, desc, cc, method, opts...)
}

func (w *wire) note(ctx context.Context, method string) fault {
	w.mu.Lock()
	if w.trips != nil {
		waits := w.trips
		defer waits.join(ctx)
	}
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
	w.rpcs, w.n, w.fault, w.trips = nil, 0, f, nil
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
		if result.Known && !delivered {
			t.Error("the delivery that recorded the conflict found it known")
		}
	})
}

func TestLostAnswerQuarantinesOnce(t *testing.T) {
	t.Parallel()
	eachLostAnswer(t, false, func(t *testing.T, f func(int) fault) {
		b, w := newBackend(t), &wire{}
		store := b.open(t, w.options()...)
		w.watch(f)
		q := settle.Quarantined{Refusal: payout.Refusal{Reason: payout.ReasonEmptyData}}
		if known, err := store.Quarantine(t.Context(), q); err != nil || known {
			t.Errorf("quarantine: known %t, %v", known, err)
		}
		w.wantFired(t)
		if rows := b.Snapshot(t).Quarantined; len(rows) != 1 {
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

// The deadline ends while the answer is lost. The store reads in its own time.
func TestLostAnswerAtTheDeadline(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		deliver func(ctx context.Context, store settle.Store) error
		stored  func(all audit.Snapshot) int
	}{
		{"settlement", func(ctx context.Context, store settle.Store) error {
			result, err := store.Settle(ctx, storetest.NewSettlement(t, plain))
			if err == nil && result.Outcome != settle.OutcomeApplied {
				return fmt.Errorf("outcome %v", result.Outcome)
			}
			return err
		}, func(all audit.Snapshot) int { return len(all.Movements) - 1 }},
		{"conflict", func(ctx context.Context, store settle.Store) error {
			st := storetest.NewSettlement(t, strings.Replace(other, ":1}", ":2}", 1))
			st.Redelivered = true // its first Commit is the conflict's
			_, err := store.Settle(ctx, st)
			return err
		}, func(all audit.Snapshot) int { return len(all.Conflicts) }},
		{"quarantine", func(ctx context.Context, store settle.Store) error {
			_, err := store.Quarantine(ctx, settle.Quarantined{Refusal: payout.Refusal{Reason: payout.ReasonEmptyData}})
			return err
		}, func(all audit.Snapshot) int { return len(all.Quarantined) }},
	} {
		for _, lose := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, request lost %t", test.name, lose), func(t *testing.T) {
				t.Parallel()
				b, w := newBackend(t), &wire{}
				store := b.open(t, w.options()...)
				if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, other)); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				w.watch(func(int) fault {
					return fault{err: status.Error(codes.DeadlineExceeded, "late"), lose: lose, then: func() { <-ctx.Done() }}
				})
				err := test.deliver(ctx, store)
				w.wantFired(t)
				if lose != errors.Is(err, settle.ErrOutcomeUnknown) || !lose && err != nil {
					t.Errorf("error %v", err)
				}
				if n := test.stored(b.Snapshot(t)); (n == 1) == lose {
					t.Errorf("%d rows stored", n)
				}
			})
		}
	}
}

// The client library repeats a Commit whose answer was lost. The refusal of the second
// says nothing about the first.
func TestRefusalAfterARepeatedCommit(t *testing.T) {
	t.Parallel()
	for _, lose := range []bool{false, true} {
		t.Run(fmt.Sprintf("first request lost %t", lose), func(t *testing.T) {
			t.Parallel()
			b, w := newBackend(t), &wire{}
			store := b.open(t, w.options()...)
			plan := func(commit int) fault {
				switch commit {
				case 1:
					return fault{err: status.Error(codes.Unavailable, "connection reset"), lose: lose}
				case 2:
					return fault{err: status.Error(codes.PermissionDenied, "no longer"), lose: true}
				default:
					return fault{}
				}
			}
			w.watch(plan)
			result, err := store.Settle(t.Context(), storetest.NewSettlement(t, plain))
			if err != nil || result.Outcome != settle.OutcomeApplied {
				t.Errorf("outcome %v, %v", result.Outcome, err)
			}
			w.watch(plan)
			st := storetest.NewSettlement(t, changed)
			st.Redelivered = true // its first Commit is the conflict's
			result, err = store.Settle(t.Context(), st)
			if err != nil || result.Outcome != settle.OutcomeConflict || result.Known {
				t.Errorf("%+v, %v", result, err)
			}
			w.watch(plan)
			known, err := store.Quarantine(t.Context(), settle.Quarantined{Refusal: payout.Refusal{Reason: payout.ReasonEmptyData}})
			if err != nil || known {
				t.Errorf("quarantine: known %t, %v", known, err)
			}
			all := b.Snapshot(t)
			if len(all.Movements) != 1 || len(all.Conflicts) != 1 || len(all.Quarantined) != 1 {
				t.Errorf("stored %+v", all)
			}
		})
	}
}

// A refusal of the only Commit is final: nothing is read, and nothing is stored.
func TestRefusalOfTheOnlyCommit(t *testing.T) {
	t.Parallel()
	b, w := newBackend(t), &wire{}
	store := b.open(t, w.options()...)
	w.watch(func(int) fault { return fault{err: status.Error(codes.PermissionDenied, "no"), lose: true} })
	_, err := store.Settle(t.Context(), storetest.NewSettlement(t, plain))
	if err == nil || errors.Is(err, settle.ErrOutcomeUnknown) {
		t.Errorf("error %v, want the refusal", err)
	}
	if _, err := store.Quarantine(t.Context(), settle.Quarantined{}); err == nil || errors.Is(err, settle.ErrOutcomeUnknown) {
		t.Errorf("error %v, want the refusal", err)
	}
}
