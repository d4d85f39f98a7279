package settle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func newService(store settle.Store) *settle.Service {
	var deliveries atomic.Int64
	return &settle.Service{
		Store: store, DefaultCurrency: "USD",
		NewID: func() string { return fmt.Sprintf("delivery-%d", deliveries.Add(1)) },
		Now:   func() time.Time { return noon },
	}
}

func message(data string) settle.Delivery {
	return settle.Delivery{Message: settle.Message{ID: "1001", Data: []byte(data)}}
}

const plain = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731}`

func TestDeliverOutcomes(t *testing.T) {
	t.Parallel()
	store := memstore.New(func() time.Time { return noon })
	service := newService(store)
	for _, step := range []struct {
		data string
		want settle.Outcome
	}{
		{plain, settle.OutcomeApplied},
		{plain, settle.OutcomeDuplicate},
		{`{"amount_cents":4731,"settlement_id":"stl-8472","account_id":"reserve-claims"}`, settle.OutcomeDuplicate},
		{strings.Replace(plain, "4731", "4732", 1), settle.OutcomeConflict},
		{"", settle.OutcomeQuarantined},
		{plain, settle.OutcomeDuplicate},
	} {
		result, err := service.Deliver(t.Context(), message(step.data))
		if err != nil || result.Outcome != step.want {
			t.Errorf("%s: %v, %v; want %v", step.data, result.Outcome, err, step.want)
		}
	}
	all := store.Snapshot()
	if len(all.Movements) != 1 || len(all.Conflicts) != 1 || len(all.Quarantined) != 1 || len(all.Violations(false)) > 0 {
		t.Errorf("stored %+v", all)
	}
}

func TestDeliverQuarantinesUnreadableEventsUnchanged(t *testing.T) {
	t.Parallel()
	store := memstore.New(func() time.Time { return noon })
	d := message("not an event")
	d.Refusal = &payout.Refusal{Reason: payout.ReasonUnsupportedEvent, Detail: "no message"}
	result, err := newService(store).Deliver(t.Context(), d)
	if err != nil || result.Outcome != settle.OutcomeQuarantined || result.Refusal.Reason != payout.ReasonUnsupportedEvent {
		t.Fatalf("%+v, %v", result, err)
	}
	if kept := store.Snapshot().Quarantined; len(kept) != 1 || string(kept[0].Data) != "not an event" {
		t.Errorf("kept %+v", kept)
	}
}

// acceptingBank accepts every send. Compose fails with err.
type acceptingBank struct {
	transfer.Bank

	err error
}

func (c acceptingBank) Compose(p payout.Payout, key uuid.UUID) ([]byte, error) {
	return []byte(p.CreditorAccount + " " + key.String()), c.err
}

func (c acceptingBank) Send(context.Context, transfer.SendRequest) transfer.SendResult {
	return transfer.SendResult{Class: transfer.SendAccepted}
}

func stepper(store transfer.Store, bank transfer.Bank) *transfer.Stepper {
	var steps atomic.Int64
	return &transfer.Stepper{
		Store: store, Bank: bank, Policy: transfer.Policy{KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second, SendTimeout: 20 * time.Second},
		NewID: func() string { return fmt.Sprintf("step-%d", steps.Add(1)) },
		Now:   func() time.Time { return noon },
		Log:   slog.New(slog.DiscardHandler),
	}
}

const wantsBank = `{"settlement_id":"stl-8472","account_id":"a","amount_cents":1,"creditor_account":"cp-19"}`

func TestDeliverCreatesTheInstruction(t *testing.T) {
	t.Parallel()
	store := memstore.New(func() time.Time { return noon })
	service := newService(store)
	service.Banking = stepper(store, acceptingBank{})
	result, err := service.Deliver(t.Context(), message(wantsBank))
	if err != nil || result.Instruction != transfer.StateAccepted {
		t.Fatalf("%+v, %v", result, err)
	}
	want := "cp-19 bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6"
	if in := store.Snapshot().Instructions; len(in) != 1 || string(in[0].Body) != want || !in[0].NextCheckAt.Equal(noon.Add(15*time.Second)) {
		t.Errorf("instructions %+v", in)
	}
}

func TestDeliverStoresNothingWithoutABank(t *testing.T) {
	t.Parallel()
	store := memstore.New(func() time.Time { return noon })
	service := newService(store)
	if result, err := service.Deliver(t.Context(), message(wantsBank)); !errors.Is(err, transfer.ErrNoBank) || result.Outcome.Final() {
		t.Errorf("without a bank: %v, %v", result.Outcome, err)
	}
	broken := errors.New("broken")
	service.Banking = stepper(store, acceptingBank{err: broken})
	if result, err := service.Deliver(t.Context(), message(wantsBank)); !errors.Is(err, broken) || result.Outcome.Final() {
		t.Errorf("with a broken bank: %v, %v", result.Outcome, err)
	}
	if all := store.Snapshot(); len(all.Movements)+len(all.Quarantined) > 0 {
		t.Errorf("stored %+v", all)
	}
}

// failingStore fails every call.
type failingStore struct{ settle.Store }

var errStore = errors.New("store is down")

func (failingStore) Settle(context.Context, settle.Settlement) (settle.Result, error) {
	return settle.Result{Outcome: settle.OutcomeApplied}, errStore
}

func (failingStore) Quarantine(context.Context, settle.Quarantined) (bool, error) {
	return false, errStore
}

func TestDeliverGivesNoOutcomeAfterAnError(t *testing.T) {
	t.Parallel()
	service := newService(failingStore{})
	result, err := service.Deliver(t.Context(), message(plain))
	if !errors.Is(err, errStore) || !strings.Contains(err.Error(), `"stl-8472"`) {
		t.Errorf("error %v", err)
	}
	want := settle.Result{SettlementID: "stl-8472", PayloadHash: "v1:2ef5d116474234239b34892a6fa21c840166bd6b3b5f94a4c49e4db29144bad2"}
	if diff := cmp.Diff(want, result); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if result, err := service.Deliver(t.Context(), message("")); !errors.Is(err, errStore) || result.Outcome.Final() {
		t.Errorf("quarantine: %v, %v", result.Outcome, err)
	}
}

func TestDeliverRejectsTooLargeMessages(t *testing.T) {
	t.Parallel()
	store := memstore.New(func() time.Time { return noon })
	_, err := newService(store).Deliver(t.Context(), message(strings.Repeat("x", settle.MaxQuarantineBytes+1)))
	if !errors.Is(err, settle.ErrTooLargeToKeep) || len(store.Snapshot().Quarantined) > 0 {
		t.Errorf("error %v", err)
	}
}

func TestJudgeReportsATamperedMovement(t *testing.T) {
	t.Parallel()
	settled, err := payout.Decode([]byte(plain), "USD")
	if err != nil {
		t.Fatal(err)
	}
	stored := settle.Stored{Movement: &settle.Movement{
		SettlementID: "stl-8472", AccountID: "reserve-claims", AmountCents: 9999, Currency: "USD", PayloadHash: settled.Hash(),
	}}
	changed := settled
	changed.Reference = "other"
	judgement, err := settle.Judge(stored, settle.Settlement{Payout: changed, Hash: changed.Hash(), DeliveryID: "d"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"amount_cents", "reference", settle.FieldPayloadHash}
	if diff := cmp.Diff(want, judgement.Result.Fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

// The default currency was removed between the commit and its redelivery.
func TestAbsentCurrencyOfASettledPayoutIsADuplicate(t *testing.T) {
	t.Parallel()
	store := memstore.New(func() time.Time { return noon })
	service := newService(store)
	first, err := service.Deliver(t.Context(), message(plain))
	if err != nil {
		t.Fatal(err)
	}
	service.DefaultCurrency = ""
	for _, test := range []struct {
		data string
		want settle.Outcome
	}{
		{plain, settle.OutcomeDuplicate},
		{strings.Replace(plain, "4731", "4732", 1), settle.OutcomeQuarantined},
		{strings.Replace(plain, "stl-8472", "stl-8473", 1), settle.OutcomeQuarantined},
		{strings.Replace(plain, "4731", "0", 1), settle.OutcomeQuarantined},
	} {
		result, err := service.Deliver(t.Context(), message(test.data))
		if err != nil || result.Outcome != test.want {
			t.Errorf("%s: %v, %v; want %v", test.data, result.Outcome, err, test.want)
		}
		if test.want == settle.OutcomeDuplicate && !result.AppliedAt.Equal(first.AppliedAt) {
			t.Errorf("applied at %v, want %v", result.AppliedAt, first.AppliedAt)
		}
	}
	if all := store.Snapshot(); len(all.Movements) != 1 || len(all.Conflicts) != 0 || len(all.Quarantined) != 3 {
		t.Errorf("stored %+v", all)
	}
}

func TestKnownMessagesAreReported(t *testing.T) {
	t.Parallel()
	service := newService(memstore.New(func() time.Time { return noon }))
	for _, data := range []string{plain, strings.Replace(plain, "4731", "4732", 1), "not JSON"} {
		for n := range 2 {
			result, err := service.Deliver(t.Context(), message(data))
			if err != nil || result.Known != (n == 1 && data != plain) {
				t.Errorf("%s, delivery %d: %+v, %v", data, n, result, err)
			}
		}
	}
}

// redeliveryStore records whether a settlement is marked as redelivered.
type redeliveryStore struct {
	settle.Store

	redelivered []bool
}

func (s *redeliveryStore) Settle(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	s.redelivered = append(s.redelivered, st.Redelivered)
	return s.Store.Settle(ctx, st)
}

func TestSecondAttemptIsARedelivery(t *testing.T) {
	t.Parallel()
	store := &redeliveryStore{Store: memstore.New(func() time.Time { return noon })}
	service := newService(store)
	for _, attempt := range []int{0, 1, 2, 7} {
		d := message(plain)
		d.Attempt = attempt
		if _, err := service.Deliver(t.Context(), d); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]bool{false, false, true, true}, store.redelivered); diff != "" {
		t.Errorf("redelivered (-want +got):\n%s", diff)
	}
}

func TestJudgeReportsAReceiptThatContradictsTheMovement(t *testing.T) {
	t.Parallel()
	settled, err := payout.Decode([]byte(plain), "USD")
	if err != nil {
		t.Fatal(err)
	}
	stored := settle.Stored{
		Movement: &settle.Movement{SettlementID: "stl-8472", AccountID: "reserve-claims", AmountCents: 4731, Currency: "USD", PayloadHash: settled.Hash()},
		Receipt:  &settle.Receipt{PayloadHash: "v1:00", DeliveryID: "other"},
	}
	judgement, err := settle.Judge(stored, settle.Settlement{Payout: settled, Hash: settled.Hash(), DeliveryID: "d"})
	if err != nil || judgement.Result.Outcome != settle.OutcomeDuplicate || judgement.Result.Disagreement != settle.DisagreementReceipt {
		t.Errorf("%+v, %v", judgement, err)
	}
}
