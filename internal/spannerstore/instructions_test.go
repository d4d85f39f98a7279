package spannerstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/storetest"
)

const wantsBank = `{"settlement_id":"stl-8472","account_id":"a","amount_cents":4731,"creditor_account":"cp-19"}`

// countingBank accepts every send and confirms it when asked, and counts.
type countingBank struct{ sends, questions atomic.Int64 }

func (*countingBank) Compose(settle.Payout, uuid.UUID) ([]byte, error) { return []byte("{}"), nil }

func (b *countingBank) Send(context.Context, settle.SendRequest) settle.SendResult {
	b.sends.Add(1)
	return settle.SendResult{Class: settle.SendAccepted, Answer: settle.BankAnswer{HTTPStatus: 201}}
}

func (b *countingBank) Status(context.Context, settle.StatusRequest) settle.StatusResult {
	b.questions.Add(1)
	return settle.StatusResult{Reading: settle.StatusConfirmed, Answer: settle.BankAnswer{HTTPStatus: 200}}
}

// stepper makes steps at the time that now holds.
func stepper(store settle.Store, bank settle.Bank, now *atomic.Pointer[time.Time]) *settle.Stepper {
	return &settle.Stepper{
		Store: store, Bank: bank, NewID: uuid.NewString, Now: func() time.Time { return *now.Load() }, Log: slog.New(slog.DiscardHandler),
		Policy: settle.Policy{KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second, SendTimeout: 20 * time.Second},
	}
}

func clockAt(t time.Time) *atomic.Pointer[time.Time] {
	var p atomic.Pointer[time.Time]
	p.Store(&t)
	return &p
}

// TestALostAnswerSendsOnce loses answers of the transactions around a send. The
// bank is never asked for the transfer a second time, and what it did is found
// out in the end.
func TestALostAnswerSendsOnce(t *testing.T) {
	t.Parallel()
	eachLostAnswer(t, true, func(t *testing.T, plan func(int) fault) {
		b, w, bank := newBackend(t), &wire{}, &countingBank{}
		store := b.open(t, w.options()...)
		if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, wantsBank)); err != nil {
			t.Fatal(err)
		}
		now := clockAt(storetest.PublishTime)
		steps := stepper(store, bank, now)
		w.watch(plan)
		state, err := steps.Step(t.Context(), "stl-8472")
		w.wantFired(t)
		if err != nil && !errors.Is(err, settle.ErrOutcomeUnknown) {
			t.Errorf("step: %v", err)
		}
		w.watch(nil)
		for n := 0; state != settle.InstructionConfirmed && n < 10; n++ {
			later := now.Load().Add(2 * time.Hour)
			now.Store(&later)
			if state, err = steps.Step(t.Context(), "stl-8472"); err != nil {
				t.Fatal(err)
			}
		}
		if bank.sends.Load() != 1 || state != settle.InstructionConfirmed {
			t.Errorf("%d sends, state %s; want 1, confirmed", bank.sends.Load(), state)
		}
		for _, violation := range b.Snapshot(t).Violations(false) {
			t.Error(violation)
		}
	})
}

// TestALostSettlingCommitSendsOnce loses answers from the settling commit on: the
// delivery that finds its own commit sends, and no other does.
func TestALostSettlingCommitSendsOnce(t *testing.T) {
	t.Parallel()
	eachLostAnswer(t, true, func(t *testing.T, plan func(int) fault) {
		b, w, bank := newBackend(t), &wire{}, &countingBank{}
		store := b.open(t, w.options()...)
		now := clockAt(time.Now())
		steps := stepper(store, bank, now)
		service := &settle.Service{Store: store, Banking: steps, DefaultCurrency: "USD", NewID: uuid.NewString, Now: time.Now}
		delivery := settle.Delivery{Message: settle.Message{Data: []byte(wantsBank)}}
		w.watch(plan)
		if _, err := service.Deliver(t.Context(), delivery); err != nil && !errors.Is(err, settle.ErrOutcomeUnknown) {
			t.Errorf("deliver: %v", err)
		}
		w.wantFired(t)
		w.watch(nil)
		var result settle.Result
		for n := 0; result.Instruction != settle.InstructionConfirmed && n < 5; n++ {
			later := now.Load().Add(2 * time.Hour)
			now.Store(&later)
			var err error
			if result, err = service.Deliver(t.Context(), delivery); err != nil {
				t.Fatal(err)
			}
		}
		if bank.sends.Load() != 1 || result.Instruction != settle.InstructionConfirmed {
			t.Errorf("%d sends, %+v; want 1, confirmed", bank.sends.Load(), result)
		}
		for _, violation := range b.Snapshot(t).Violations(false) {
			t.Error(violation)
		}
	})
}

// TestStepsAtTheSameTimeSendOnce lets instances compete for one instruction.
func TestStepsAtTheSameTimeSendOnce(t *testing.T) {
	t.Parallel()
	b, bank := newBackend(t), &countingBank{}
	now := clockAt(storetest.PublishTime)
	stores := openInstances(t, b)
	if _, err := stores[0].Settle(t.Context(), storetest.NewSettlement(t, wantsBank)); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, instances)
	for _, store := range stores {
		go func() {
			_, err := stepper(store, bank, now).Step(t.Context(), "stl-8472")
			failed <- err
		}()
	}
	done := 0
	for range instances {
		switch err := <-failed; {
		case err == nil:
			done++
		case !errors.Is(err, settle.ErrNotDue):
			t.Error(err)
		}
	}
	if done != 1 || bank.sends.Load() != 1 {
		t.Errorf("%d steps done, %d sends; want 1 each", done, bank.sends.Load())
	}
}

// TestDueReadsNothingThatIsFinal looks at the reads as they are sent: ranges of
// the index that end at now, and no table. What they return does not grow with
// instructions that are final, or are due later.
func TestDueReadsNothingThatIsFinal(t *testing.T) {
	t.Parallel()
	b, reads := newBackend(t), &readWatch{}
	store := b.open(t, option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(reads.stream)))
	now := storetest.PublishTime
	settleInState := func(id string, next time.Time, state settle.InstructionState) {
		st := storetest.NewSettlement(t, fmt.Sprintf(`{"settlement_id":%q,"account_id":"a","amount_cents":1,"creditor_account":"c"}`, id))
		st.Instruction.State, st.Instruction.NextCheckAt = state, next
		if _, err := store.Settle(t.Context(), st); err != nil {
			t.Fatal(err)
		}
	}
	settleInState("due", now, settle.InstructionUncertain)
	for n := range 100 {
		settleInState(fmt.Sprintf("final-%d", n), time.Time{}, settle.InstructionReturned)
		settleInState(fmt.Sprintf("watched-%d", n), now.Add(time.Hour), settle.InstructionConfirmed)
	}
	reads.watch()
	due, err := store.Due(t.Context(), now, 1000)
	if err != nil || len(due) != 1 {
		t.Errorf("due %v, %v", due, err)
	}
	ranges, rows := reads.seen()
	if len(ranges) != 16 || rows != 1 {
		t.Errorf("%d reads of %d rows, want 16 reads of 1 row", len(ranges), rows)
	}
	for _, r := range ranges {
		end := r.GetKeySet().GetRanges()
		if r.GetIndex() != "bank_instructions_due" || r.GetKeySet().GetAll() || len(end) != 1 || len(end[0].GetEndClosed().GetValues()) != 2 || r.GetLimit() != 1000 {
			t.Errorf("read %v", r)
		}
	}
}

// readWatch keeps the reads of a client and counts the rows that come back.
type readWatch struct {
	mu    sync.Mutex
	reads []*spannerpb.ReadRequest
	rows  int
}

func (w *readWatch) watch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads, w.rows = nil, 0
}

func (w *readWatch) seen() ([]*spannerpb.ReadRequest, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads, w.rows
}

func (w *readWatch) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, cc, method, opts...)
	return &watchedStream{stream, w}, err
}

type watchedStream struct {
	grpc.ClientStream

	w *readWatch
}

func (s *watchedStream) SendMsg(m any) error {
	if read, ok := m.(*spannerpb.ReadRequest); ok {
		s.w.mu.Lock()
		s.w.reads = append(s.w.reads, read)
		s.w.mu.Unlock()
	}
	return s.ClientStream.SendMsg(m)
}

func (s *watchedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if part, ok := m.(*spannerpb.PartialResultSet); ok && err == nil {
		s.w.mu.Lock()
		s.w.rows += len(part.GetValues()) // one column a row
		s.w.mu.Unlock()
	}
	return err
}

// sendWatch is a bank that notes what the wire had seen when it was asked.
type sendWatch struct {
	countingBank

	w      *wire
	before []string
}

func (b *sendWatch) Send(ctx context.Context, r settle.SendRequest) settle.SendResult {
	b.before = b.w.seen()
	b.w.watch(nil)
	return b.countingBank.Send(ctx, r)
}

func TestRPCsOfADeliveryWithABank(t *testing.T) {
	t.Parallel()
	b, w := newBackend(t), &wire{}
	store := b.open(t, w.options()...)
	if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, other)); err != nil { // warms the client up
		t.Fatal(err)
	}
	bank := &sendWatch{w: w}
	now := clockAt(storetest.PublishTime)
	service := &settle.Service{Store: store, Banking: stepper(store, bank, now), DefaultCurrency: "USD", NewID: uuid.NewString, Now: time.Now}
	w.watch(nil)
	result, err := service.Deliver(t.Context(), settle.Delivery{Message: settle.Message{Data: []byte(wantsBank)}})
	if err != nil || result.Instruction != settle.InstructionAccepted {
		t.Fatalf("%+v, %v", result, err)
	}
	if diff := cmp.Diff([]string{"Commit"}, bank.before); diff != "" {
		t.Errorf("RPCs before the send (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ExecuteStreamingSql", "Commit"}, w.seen()); diff != "" {
		t.Errorf("RPCs of recording (-want +got):\n%s", diff)
	}
	w.watch(nil)
	later := now.Load().Add(time.Minute)
	now.Store(&later)
	if _, err := stepper(store, bank, now).Step(t.Context(), "stl-8472"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ExecuteStreamingSql", "Commit", "ExecuteStreamingSql", "Commit"}, w.seen()); diff != "" {
		t.Errorf("RPCs of a question (-want +got):\n%s", diff)
	}
}
