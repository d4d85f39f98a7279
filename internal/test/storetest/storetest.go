// Package storetest is the conformance suite of settle.Store and transfer.Store.
// memstore and spannerstore both pass it, so that results of tests and simulations
// on memstore hold for spannerstore.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Store is a store under test.
type Store interface {
	settle.Store
	transfer.Store
}

// Backend is the data behind one or more stores.
type Backend interface {
	// Open returns a store over the data, as in another instance of the program.
	Open(t *testing.T) Store
	// Snapshot returns all rows.
	Snapshot(t *testing.T) audit.Snapshot
	// DeleteReceipt deletes a receipt, as the row deletion policy does.
	DeleteReceipt(t *testing.T, settlementID string)
}

// Run runs the suite. newBackend returns an empty backend for each test.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, b Backend)
	}{
		{"a new settlement is applied with everything that was given", testApplied},
		{"a duplicate changes nothing", testDuplicate},
		{"an own commit is recognised by its delivery ID", testOwnCommit},
		{"a changed member is a conflict that names exactly that member", testConflictNamesMember},
		{"a known conflict is written once", testKnownConflict},
		{"an explicit currency differs from the default", testCurrencyWrittenOut},
		{"another default currency is no conflict", testDefaultCurrencyChanged},
		{"a replay after the receipt expired is a duplicate", testExpiredReceipt},
		{"a bank instruction is created with the movement", testInstruction},
		{"due instructions are listed up to the limit", testDue},
		{"manual instructions are counted", testManual},
		{"only the owner of the lease takes a step", testClaim},
		{"a refused change changes nothing", testRefusedChange},
		{"a rejected transfer reverses the movement in one change", testRejected},
		{"an instruction under a new key keeps the old key", testNewKey},
		{"a settlement without a bank payout has no instruction", testNoInstruction},
		{"stored rows that contradict each other are judged", testDisagreement},
		{"a redelivery gives the same result", testRedelivered},
		{"a payout without a route is compared and never inserted", testUnroutable},
		{"a quarantined message is stored unchanged, once", testQuarantine},
		{"messages with one ID have a quarantine row each", testQuarantineIdentity},
		{"deliveries at the same time settle once", testConcurrentDeliveries},
		{"two payloads at the same time under one ID", testConcurrentConflict},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newBackend(t))
		})
	}
}

var deliveries atomic.Int64

// DeliveryID returns a unique delivery ID.
func DeliveryID() string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", deliveries.Add(1)) }

// PublishTime is the publish time of all messages of the suite.
var PublishTime = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// NewSettlement decodes message, as the service does, and returns the settlement
// that the service passes to the store. The delivery ID is unique.
func NewSettlement(t testing.TB, message string) settle.Settlement {
	t.Helper()
	p, err := payout.Decode([]byte(message), "USD")
	if err != nil {
		t.Fatalf("decode %s: %v", message, err)
	}
	st := settle.Settlement{
		Payout: p, Hash: p.Hash(), DeliveryID: DeliveryID(),
		Message: settle.Message{
			ID: "1001", Subscription: "projects/p/subscriptions/s", Source: "projects/p/topics/payouts", PublishTime: PublishTime, Data: []byte(message),
		},
	}
	if p.WantsBank() {
		st.Instruction = transfer.NewInstruction(p, []byte(`{"amount_minor":1}`), PublishTime)
	}
	return st
}

// again returns the same settlement in another delivery.
func again(st settle.Settlement) settle.Settlement {
	st.DeliveryID = DeliveryID()
	return st
}

func mustSettle(t *testing.T, store Store, st settle.Settlement) settle.Result {
	t.Helper()
	result, err := store.Settle(t.Context(), st)
	if err != nil {
		t.Fatalf("settle %q: %v", st.Payout.SettlementID, err)
	}
	return result
}

func wantOutcome(t *testing.T, got settle.Result, want settle.Outcome, fields ...string) {
	t.Helper()
	if got.Outcome != want {
		t.Fatalf("outcome %v, want %v (%+v)", got.Outcome, want, got)
	}
	if diff := cmp.Diff(fields, got.Fields); diff != "" {
		t.Fatalf("differing members (-want +got):\n%s", diff)
	}
	if got.Outcome != settle.OutcomeQuarantined && got.AppliedAt.IsZero() {
		t.Fatalf("no applied_at in %+v", got)
	}
}

// wantEqual fails the test if the values of name differ.
func wantEqual(t *testing.T, name string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// wantUnchanged fails the test if cause changed a row.
func wantUnchanged(t *testing.T, b Backend, cause string, before audit.Snapshot) {
	t.Helper()
	wantEqual(t, "rows after "+cause, before, b.Snapshot(t))
}

// mustChange changes the instruction of stl-8472, and returns it.
func mustChange(t *testing.T, store Store, decide func(transfer.Instruction) (transfer.Change, error)) transfer.Instruction {
	t.Helper()
	change, err := store.Change(t.Context(), "stl-8472", decide)
	if err != nil {
		t.Fatal(err)
	}
	return change.Next
}

func wantSound(t *testing.T, b Backend) audit.Snapshot {
	t.Helper()
	all := b.Snapshot(t)
	for _, violation := range all.Violations(false) {
		t.Error(violation)
	}
	return all
}

const (
	plain = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731}`
	full  = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR",` +
		`"creditor_account":"cp-19","reference":"claim 19-4431","metadata":{"b":"\u0000<&>","a":""}}`
)

func testApplied(t *testing.T, b Backend) {
	store := b.Open(t)
	st := NewSettlement(t, full)
	result := mustSettle(t, store, st)
	wantOutcome(t, result, settle.OutcomeApplied)
	all := wantSound(t, b)
	wantMovement := []settle.Movement{{
		SettlementID: "stl-8472", AccountID: "reserve-claims", AmountCents: 4731, Currency: "EUR", CreditorAccount: "cp-19",
		Reference: "claim 19-4431", PayloadHash: st.Hash, Source: "projects/p/topics/payouts", RecordedAt: result.AppliedAt,
	}}
	wantEqual(t, "movements", wantMovement, all.Movements)
	wantReceipt := []spannerstore.ReceiptRow{{
		SettlementID: "stl-8472", PayloadHash: st.Hash, ResultStatus: "applied", DeliveryID: st.DeliveryID, MessageID: "1001",
		PublishTime: &PublishTime, Metadata: `{"a":"","b":"\u0000<&>"}`, AppliedAt: result.AppliedAt,
	}}
	wantEqual(t, "receipts", wantReceipt, all.Receipts)
}

func testDuplicate(t *testing.T, b Backend) {
	store := b.Open(t)
	first := mustSettle(t, store, NewSettlement(t, plain))
	before := wantSound(t, b)
	reordered := `{"amount_cents":4731, "metadata":{"other":"metadata"}, "account_id":"reserve-claims", "settlement_id":"stl-8472"}`
	for _, message := range []string{plain, reordered} {
		result := mustSettle(t, b.Open(t), NewSettlement(t, message))
		wantOutcome(t, result, settle.OutcomeDuplicate)
		if !result.AppliedAt.Equal(first.AppliedAt) || result.ReceiptExpired {
			t.Errorf("duplicate %+v, want the stored outcome of %v", result, first.AppliedAt)
		}
	}
	wantUnchanged(t, b, "a duplicate", before)
}

func testOwnCommit(t *testing.T, b Backend) {
	store := b.Open(t)
	st := NewSettlement(t, plain)
	first := mustSettle(t, store, st)
	second := mustSettle(t, store, st)
	wantEqual(t, "the same delivery settled again", first, second)
	changed := NewSettlement(t, `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":1}`)
	for range 2 {
		wantOutcome(t, mustSettle(t, store, changed), settle.OutcomeConflict, "amount_cents")
	}
	if conflicts := wantSound(t, b).Conflicts; len(conflicts) != 1 {
		t.Errorf("one delivery recorded %+v", conflicts)
	}
}

func testConflictNamesMember(t *testing.T, b Backend) {
	const settled = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR","creditor_account":"cp-19","reference":"claim"}`
	for i, change := range []struct{ member, old, changed string }{
		{"amount_cents", "4731", "4732"},
		{"account_id", "claims", "Claims"},
		{"currency", "EUR", "USD"},
		{"currency", `"currency":"EUR",`, ""},
		{"creditor_account", "cp-19", "cp-20"},
		{"creditor_account", `"creditor_account":"cp-19",`, ""},
		{"reference", `"claim"`, `"Claim"`},
		{"reference", `,"reference":"claim"`, ""},
	} {
		store, message := b.Open(t), strings.Replace(settled, "stl-8472", fmt.Sprintf("stl-%d", i), 1)
		first := mustSettle(t, store, NewSettlement(t, message))
		before := b.Snapshot(t)

		changed := NewSettlement(t, strings.Replace(message, change.old, change.changed, 1))
		result := mustSettle(t, store, changed)
		wantOutcome(t, result, settle.OutcomeConflict, change.member)
		if result.PayloadHash != changed.Hash || !result.AppliedAt.Equal(first.AppliedAt) {
			t.Errorf("%s: conflict %+v", change.member, result)
		}
		after := wantSound(t, b)
		found := after.Conflicts
		after.Conflicts, before.Conflicts = nil, nil
		wantEqual(t, fmt.Sprintf("%s: a conflict changed", change.member), before, after)
		if got := found[len(found)-1]; got.PayloadHash != changed.Hash || string(got.Payload) != string(changed.Message.Data) || got.Source != changed.Message.Source {
			t.Errorf("%s: recorded %+v", change.member, got)
		}
	}
}

func testKnownConflict(t *testing.T, b Backend) {
	store := b.Open(t)
	mustSettle(t, store, NewSettlement(t, plain))
	changed := NewSettlement(t, `{"settlement_id":"stl-8472","account_id":"a","amount_cents":1}`)
	var recorded audit.Snapshot
	for n := range 3 {
		changed = again(changed)
		changed.Redelivered = n == 2
		result := mustSettle(t, store, changed)
		wantOutcome(t, result, settle.OutcomeConflict, "account_id", "amount_cents")
		if result.Known != (n > 0) {
			t.Errorf("delivery %d: known %t", n, result.Known)
		}
		if n == 0 {
			recorded = wantSound(t, b)
		}
	}
	wantUnchanged(t, b, "a known conflict", recorded)
	other := NewSettlement(t, `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":2}`)
	wantOutcome(t, mustSettle(t, store, other), settle.OutcomeConflict, "amount_cents")
	if all := wantSound(t, b); len(all.Conflicts) != 2 {
		t.Errorf("conflicts %+v, want one for each payload", all.Conflicts)
	}
	// The settled payout is still a duplicate.
	wantOutcome(t, mustSettle(t, store, NewSettlement(t, plain)), settle.OutcomeDuplicate)
}

func testCurrencyWrittenOut(t *testing.T, b Backend) {
	store := b.Open(t)
	mustSettle(t, store, NewSettlement(t, plain))
	written := NewSettlement(t, `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"USD"}`)
	wantOutcome(t, mustSettle(t, store, written), settle.OutcomeConflict, "currency")
	wantSound(t, b)
}

func testDefaultCurrencyChanged(t *testing.T, b Backend) {
	store := b.Open(t)
	mustSettle(t, store, NewSettlement(t, plain))
	for message, want := range map[string]settle.Outcome{
		plain: settle.OutcomeDuplicate,
		`{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4732}`: settle.OutcomeConflict,
	} {
		st := NewSettlement(t, message)
		st.Payout.Currency = "EUR" // the effect of another DEFAULT_CURRENCY
		result := mustSettle(t, store, st)
		if want == settle.OutcomeConflict {
			wantOutcome(t, result, want, "amount_cents")
		} else {
			wantOutcome(t, result, want)
		}
	}
	if m := wantSound(t, b).Movement("stl-8472"); m.Currency != "USD" {
		t.Errorf("currency %s, want the settled USD", m.Currency)
	}
}

func testExpiredReceipt(t *testing.T, b Backend) {
	store := b.Open(t)
	first := mustSettle(t, store, NewSettlement(t, plain))
	b.DeleteReceipt(t, "stl-8472")
	before := b.Snapshot(t)
	if before.Receipt("stl-8472") != nil {
		t.Fatal("the receipt is still there")
	}
	replay := mustSettle(t, store, NewSettlement(t, plain))
	wantOutcome(t, replay, settle.OutcomeDuplicate)
	if !replay.ReceiptExpired || !replay.AppliedAt.Equal(first.AppliedAt) {
		t.Errorf("replay %+v, want an expired receipt, applied at %v", replay, first.AppliedAt)
	}
	wantUnchanged(t, b, "the replay", before)
	changed := NewSettlement(t, `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":47310}`)
	conflict := mustSettle(t, store, changed)
	wantOutcome(t, conflict, settle.OutcomeConflict, "amount_cents")
	if !conflict.ReceiptExpired {
		t.Errorf("conflict %+v, want an expired receipt", conflict)
	}
	after := b.Snapshot(t)
	if violations := after.Violations(true); len(violations) > 0 || len(after.Conflicts) != 1 {
		t.Errorf("violations %q, conflicts %+v", violations, after.Conflicts)
	}
}

func testInstruction(t *testing.T, b Backend) {
	store := b.Open(t)
	st := NewSettlement(t, full)
	if result := mustSettle(t, store, st); result.Instruction != transfer.StateUncertain {
		t.Errorf("applied with instruction %q, want uncertain", result.Instruction)
	}
	wantOutcome(t, mustSettle(t, store, again(st)), settle.OutcomeDuplicate)
	all := wantSound(t, b)
	want := *st.Instruction
	want.CreatedAt = all.Movements[0].RecordedAt
	if want.Transfer.Key.String() != "bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6" {
		t.Errorf("idempotency key %s", want.Transfer.Key)
	}
	wantEqual(t, "instructions", []transfer.Instruction{want}, all.Instructions)
	wantEvent := spannerstore.EventRow{
		SettlementID: "stl-8472", Version: 1, RecordedAt: want.CreatedAt,
		Event: transfer.Event{To: transfer.StateUncertain, Cause: transfer.CauseCreated},
	}
	wantEqual(t, "events", []spannerstore.EventRow{wantEvent}, all.Events)
}

func testDue(t *testing.T, b Backend) {
	store := b.Open(t)
	for i := range 5 {
		st := NewSettlement(t, fmt.Sprintf(`{"settlement_id":"stl-%d","account_id":"a","amount_cents":1,"creditor_account":"c"}`, i))
		st.Instruction.NextCheckAt = PublishTime.Add(time.Duration(i) * time.Minute)
		mustSettle(t, store, st)
	}
	mustSettle(t, store, NewSettlement(t, plain))
	for _, test := range []struct {
		after time.Duration
		limit int
		want  int
	}{{-time.Second, 10, 0}, {0, 10, 1}, {2 * time.Minute, 10, 3}, {time.Hour, 10, 5}, {time.Hour, 2, 2}} {
		due, err := store.Due(t.Context(), PublishTime.Add(test.after), test.limit)
		if err != nil || len(due) != test.want {
			t.Errorf("due after %v, at most %d: %v, %v; want %d", test.after, test.limit, due, err, test.want)
		}
	}
	backlog, err := store.Backlog(t.Context())
	want := transfer.Backlog{UncertainSince: wantSound(t, b).Instructions[0].CreatedAt, NextDue: PublishTime}
	if err != nil || backlog != want {
		t.Errorf("backlog %+v, %v; want %+v", backlog, err, want)
	}
}

func testManual(t *testing.T, b Backend) {
	store := b.Open(t)
	in := func(state transfer.State) func(transfer.Instruction) (transfer.Change, error) {
		return func(in transfer.Instruction) (transfer.Change, error) {
			in.State, in.NextCheckAt, in.Version = state, time.Time{}, in.Version+1
			return transfer.Change{Next: in, Write: true}, nil
		}
	}
	for i, state := range []transfer.State{transfer.StateManual, transfer.StateManual, transfer.StateConfirmed} {
		st := NewSettlement(t, fmt.Sprintf(`{"settlement_id":"stl-%d","account_id":"a","amount_cents":1,"creditor_account":"c"}`, i))
		mustSettle(t, store, st)
		if _, err := store.Change(t.Context(), st.Payout.SettlementID, in(state)); err != nil {
			t.Fatal(err)
		}
	}
	mustSettle(t, store, NewSettlement(t, plain))
	for _, want := range []int{2, 1, 0} {
		if backlog, err := store.Backlog(t.Context()); err != nil || backlog != (transfer.Backlog{Manual: want}) {
			t.Errorf("backlog %+v, %v; want %d manual", backlog, err, want)
		}
		if want > 0 {
			if _, err := store.Change(t.Context(), fmt.Sprintf("stl-%d", want-1), in(transfer.StateConfirmed)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

var policy = transfer.Policy{KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second, SendTimeout: 20 * time.Second}

// claim leases the instruction of stl-8472 to owner.
func claim(t *testing.T, store Store, owner string, now time.Time) (transfer.Change, error) {
	t.Helper()
	return store.Change(t.Context(), "stl-8472", func(in transfer.Instruction) (transfer.Change, error) {
		return policy.Claim(in, owner, now)
	})
}

func testClaim(t *testing.T, b Backend) {
	store := b.Open(t)
	mustSettle(t, store, NewSettlement(t, full))
	first, second := DeliveryID(), DeliveryID()
	held, err := claim(t, store, first, PublishTime)
	if err != nil || held.Follow != transfer.PlanSend || held.Next.Sends != 1 {
		t.Fatalf("claimed %+v, %v", held, err)
	}
	again, err := claim(t, store, first, PublishTime)
	if err != nil || again.Follow != transfer.PlanSend {
		t.Errorf("the same step again: %+v, %v", again, err)
	}
	if _, err := claim(t, store, second, PublishTime.Add(59*time.Second)); !errors.Is(err, transfer.ErrNotDue) {
		t.Errorf("another step under the lease: %v, want ErrNotDue", err)
	}
	all := wantSound(t, b)
	wantEqual(t, "stored", []transfer.Instruction{held.Next}, all.Instructions)
	if len(all.Events) != 2 || all.Events[1].Event.Cause != transfer.CauseSend {
		t.Errorf("events %+v", all.Events)
	}
	// The owner crashed: after the end of the lease another step takes over. It asks
	// the bank, because the send may have arrived.
	taken, err := claim(t, store, second, PublishTime.Add(time.Minute))
	if err != nil || taken.Follow != transfer.PlanAsk || taken.Next.Sends != 1 {
		t.Errorf("taken over %+v, %v", taken, err)
	}
}

func testRefusedChange(t *testing.T, b Backend) {
	store := b.Open(t)
	mustSettle(t, store, NewSettlement(t, full))
	if _, err := claim(t, store, DeliveryID(), PublishTime); err != nil {
		t.Fatal(err)
	}
	before := b.Snapshot(t)
	refused := errors.New("not this one")
	if _, err := store.Change(t.Context(), "stl-8472", func(transfer.Instruction) (transfer.Change, error) {
		return transfer.Change{Write: true}, refused
	}); !errors.Is(err, refused) {
		t.Errorf("error %v, want decide's own", err)
	}
	wantUnchanged(t, b, "a refused change", before)
}

func testRejected(t *testing.T, b Backend) {
	store := b.Open(t)
	mustSettle(t, store, NewSettlement(t, full))
	held, err := claim(t, store, DeliveryID(), PublishTime)
	if err != nil {
		t.Fatal(err)
	}
	answer := transfer.BankAnswer{HTTPStatus: 422, TransferID: "tr-1", Status: "RJCT", Detail: "insufficient_funds"}
	change, err := policy.AfterSend(held.Next, transfer.SendResult{Class: transfer.SendRejected, Answer: answer}, transfer.Interval{Began: PublishTime, Ended: PublishTime.Add(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	mustChange(t, store, func(transfer.Instruction) (transfer.Change, error) { return change, nil })
	all := wantSound(t, b)
	if len(all.Reversals) != 1 || all.Reversals[0].Reason != "rejected" {
		t.Fatalf("reversals %+v", all.Reversals)
	}
	committed := all.Reversals[0].RecordedAt
	if !all.Events[2].RecordedAt.Equal(committed) {
		t.Errorf("reversal %v, event %v: not one commit", committed, all.Events[2].RecordedAt)
	}
	wantEqual(t, "stored", []transfer.Instruction{change.Next}, all.Instructions)
	wantEvent := transfer.Event{
		From: transfer.StateUncertain, To: transfer.StateRejected, Cause: transfer.CauseAnswer, HTTPStatus: 422, Detail: "rejected; insufficient_funds",
	}
	wantEqual(t, "event", wantEvent, all.Events[2].Event)
	wantOutcome(t, mustSettle(t, store, NewSettlement(t, full)), settle.OutcomeDuplicate)
}

func testNewKey(t *testing.T, b Backend) {
	store := b.Open(t)
	mustSettle(t, store, NewSettlement(t, full))
	held, err := claim(t, store, DeliveryID(), PublishTime)
	if err != nil {
		t.Fatal(err)
	}
	now := PublishTime.Add(30 * 24 * time.Hour)
	notFound := transfer.Statuses{Current: transfer.StatusResult{Reading: transfer.StatusNotFound, Answer: transfer.BankAnswer{HTTPStatus: 200}}}
	waiting := mustChange(t, store, func(transfer.Instruction) (transfer.Change, error) {
		return policy.AfterStatus(held.Next, notFound, transfer.Interval{Began: now, Ended: now})
	})
	notFound = transfer.AskAllStatuses(t.Context(), func(context.Context, transfer.StatusRequest) transfer.StatusResult { return notFound.Current }, waiting)
	ruling := transfer.Ruling{
		ID: DeliveryID(), Decision: transfer.DecideResend, By: "Ines", Second: "Bert", Note: "letter", Version: waiting.Version,
		Said: notFound, Took: transfer.Interval{Began: now, Ended: now}, Body: []byte("new body"),
	}
	decide := func(in transfer.Instruction) (transfer.Change, error) { return policy.Decide(in, ruling) }
	resent := mustChange(t, store, decide)
	mustChange(t, store, decide) // after a lost answer, it recognises its own commit
	all := wantSound(t, b)
	resent.Superseded[0].At = all.Events[len(all.Events)-1].RecordedAt // the commit timestamp
	wantEqual(t, "stored", []transfer.Instruction{resent}, all.Instructions)
	mustChange(t, store, func(in transfer.Instruction) (transfer.Change, error) {
		wantEqual(t, "read", resent, in)
		return transfer.Change{Next: in}, nil
	})
	if len(all.Events) != 4 || all.Events[3].Event.Cause != transfer.CauseDecided || string(resent.Body) != "new body" {
		t.Errorf("events %+v, body %s", all.Events, resent.Body)
	}
	if backlog, err := store.Backlog(t.Context()); err != nil || !backlog.UncertainSince.Equal(resent.Superseded[0].At) {
		t.Errorf("backlog %+v, %v; want it uncertain since the new key", backlog, err)
	}
	wantOutcome(t, mustSettle(t, store, NewSettlement(t, full)), settle.OutcomeDuplicate)
}

func testNoInstruction(t *testing.T, b Backend) {
	store := b.Open(t)
	mustSettle(t, store, NewSettlement(t, plain))
	for _, id := range []string{"stl-8472", "unknown"} {
		if _, err := store.Change(t.Context(), id, func(transfer.Instruction) (transfer.Change, error) {
			t.Error("decide called without an instruction")
			return transfer.Change{}, nil
		}); !errors.Is(err, transfer.ErrNoInstruction) {
			t.Errorf("%s: %v, want ErrNoInstruction", id, err)
		}
	}
	if backlog, err := store.Backlog(t.Context()); err != nil || backlog != (transfer.Backlog{}) {
		t.Errorf("backlog %+v, %v", backlog, err)
	}
}

// No known algorithm made the stored hashes, so the movement's columns decide.
func testDisagreement(t *testing.T, b Backend) {
	store := b.Open(t)
	for _, hash := range []payout.Hash{"v2:00", "by hand", ""} {
		id := fmt.Sprintf("stl-%x", string(hash))
		message := fmt.Sprintf(`{"settlement_id":%q,"account_id":"a","amount_cents":1}`, id)
		st := NewSettlement(t, message)
		st.Hash = hash
		mustSettle(t, store, st)
		for _, redelivered := range []bool{false, true} {
			st := NewSettlement(t, message)
			st.Redelivered = redelivered
			result := mustSettle(t, store, st)
			wantOutcome(t, result, settle.OutcomeDuplicate)
			wantEqual(t, "disagreement", settle.DisagreementHash, result.Disagreement)
		}
		conflict := mustSettle(t, store, NewSettlement(t, strings.Replace(message, ":1}", ":2}", 1)))
		wantOutcome(t, conflict, settle.OutcomeConflict, "amount_cents", settle.FieldPayloadHash)
		wantEqual(t, "disagreement", settle.DisagreementHash, conflict.Disagreement)
	}
}

func testRedelivered(t *testing.T, b Backend) {
	store := b.Open(t)
	redelivered := func(message string) settle.Settlement {
		st := NewSettlement(t, message)
		st.Redelivered = true
		return st
	}
	first := mustSettle(t, store, redelivered(full))
	wantOutcome(t, first, settle.OutcomeApplied)
	if first.Instruction != transfer.StateUncertain {
		t.Errorf("instruction %q", first.Instruction)
	}
	wantOutcome(t, mustSettle(t, store, redelivered(full)), settle.OutcomeDuplicate)
	wantOutcome(t, mustSettle(t, store, redelivered(strings.Replace(full, "4731", "4732", 1))), settle.OutcomeConflict, "amount_cents")
	b.DeleteReceipt(t, "stl-8472")
	replay := mustSettle(t, store, redelivered(full))
	wantOutcome(t, replay, settle.OutcomeDuplicate)
	if !replay.AppliedAt.Equal(first.AppliedAt) {
		t.Errorf("applied at %v, want %v", replay.AppliedAt, first.AppliedAt)
	}
	wantOutcome(t, mustSettle(t, store, redelivered(strings.Replace(full, "4731", "4733", 1))), settle.OutcomeConflict, "amount_cents")
	if all := b.Snapshot(t); len(all.Movements) != 1 || len(all.Conflicts) != 2 || len(all.Instructions) != 1 {
		t.Errorf("stored %+v", all)
	}
}

func testUnroutable(t *testing.T, b Backend) {
	store := b.Open(t)
	unroutable := func(message string) settle.Settlement {
		st := NewSettlement(t, message)
		st.Instruction = nil
		return st
	}
	for _, redelivered := range []bool{false, true} {
		st := unroutable(full)
		st.Redelivered = redelivered
		if result, err := store.Settle(t.Context(), st); !errors.Is(err, transfer.ErrNoBank) || result.Outcome.Final() {
			t.Errorf("settled as %v, %v; want ErrNoBank", result.Outcome, err)
		}
	}
	if all := b.Snapshot(t); len(all.Movements) != 0 {
		t.Fatalf("stored %+v", all)
	}
	mustSettle(t, store, NewSettlement(t, full))
	wantOutcome(t, mustSettle(t, store, unroutable(full)), settle.OutcomeDuplicate)
	wantOutcome(t, mustSettle(t, store, unroutable(strings.Replace(full, "4731", "4732", 1))), settle.OutcomeConflict, "amount_cents")
	b.DeleteReceipt(t, "stl-8472")
	wantOutcome(t, mustSettle(t, store, unroutable(full)), settle.OutcomeDuplicate)
}

// newQuarantined returns the quarantined message of data, which must not be a payout.
func newQuarantined(t *testing.T, data string) settle.Quarantined {
	t.Helper()
	_, err := payout.Decode([]byte(data), "USD")
	refusal, refused := errors.AsType[*payout.Refusal](err)
	if !refused {
		t.Fatalf("%q is a payout", data)
	}
	return settle.Quarantined{
		Message: settle.Message{
			ID: "1002", Subscription: "projects/p/subscriptions/s", PublishTime: PublishTime, OrderingKey: "k",
			Attributes: map[string]string{"z": "1", "a": "\x00"}, Data: []byte(data),
		},
		Refusal: *refusal,
	}
}

// mustQuarantine quarantines q. It fails the test if the message was known and must not
// be, or the other way round.
func mustQuarantine(t *testing.T, store Store, q settle.Quarantined, wantKnown bool) {
	t.Helper()
	if known, err := store.Quarantine(t.Context(), q); err != nil || known != wantKnown {
		t.Fatalf("quarantine: known %t, %v; want known %t", known, err, wantKnown)
	}
}

func testQuarantine(t *testing.T, b Backend) {
	store := b.Open(t)
	for _, data := range []string{"\x00\xff not a payout", `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":0}`} {
		q := newQuarantined(t, data)
		mustQuarantine(t, store, q, false)
		before := b.Snapshot(t)
		mustQuarantine(t, b.Open(t), q, true)
		wantUnchanged(t, b, "a known message", before)
		all := wantSound(t, b).Quarantined
		i := slices.IndexFunc(all, func(row spannerstore.QuarantineRow) bool { return row.Identity == q.Identity() })
		if i < 0 {
			t.Fatalf("no row for %q", data)
		}
		want := spannerstore.QuarantineRow{
			Identity: q.Identity(), MessageID: "1002", Subscription: "projects/p/subscriptions/s", Reason: q.Refusal.Reason,
			Member: q.Refusal.Member, Detail: q.Refusal.Detail, Data: []byte(data), Attributes: `{"a":"\u0000","z":"1"}`,
			OrderingKey: "k", PublishTime: &PublishTime, QuarantinedAt: all[i].QuarantinedAt,
		}
		wantEqual(t, "row", want, all[i])
	}
	if got := len(b.Snapshot(t).Quarantined); got != 2 {
		t.Errorf("%d rows, want 2", got)
	}
}

func testQuarantineIdentity(t *testing.T, b Backend) {
	store := b.Open(t)
	for _, data := range []string{"", "a", "b"} {
		q := newQuarantined(t, data)
		q.Message.ID = ""
		mustQuarantine(t, store, q, false)
		mustQuarantine(t, store, newQuarantined(t, data), false)
	}
	if got := len(wantSound(t, b).Quarantined); got != 6 {
		t.Errorf("%d rows, want 6", got)
	}
}

// settleConcurrently settles all of them concurrently, each in a store of its own.
func settleConcurrently(t *testing.T, b Backend, all []settle.Settlement) map[settle.Outcome]int {
	t.Helper()
	var wg sync.WaitGroup
	results := make([]settle.Result, len(all))
	errs := make([]error, len(all))
	for i, st := range all {
		store := b.Open(t)
		wg.Go(func() { results[i], errs[i] = store.Settle(t.Context(), st) })
	}
	wg.Wait()
	outcomes := map[settle.Outcome]int{}
	for i, result := range results {
		if errs[i] != nil {
			t.Errorf("delivery %d: %v", i, errs[i])
		}
		outcomes[result.Outcome]++
	}
	return outcomes
}

func testConcurrentDeliveries(t *testing.T, b Backend) {
	all := make([]settle.Settlement, 6)
	for i := range all {
		all[i] = NewSettlement(t, plain)
	}
	want := map[settle.Outcome]int{settle.OutcomeApplied: 1, settle.OutcomeDuplicate: 5}
	wantEqual(t, "outcomes", want, settleConcurrently(t, b, all))
	wantSound(t, b)
}

func testConcurrentConflict(t *testing.T, b Backend) {
	all := make([]settle.Settlement, 6)
	for i := range all {
		all[i] = NewSettlement(t, fmt.Sprintf(`{"settlement_id":"stl-8472","account_id":"a","amount_cents":%d}`, 1+i%2))
	}
	want := map[settle.Outcome]int{settle.OutcomeApplied: 1, settle.OutcomeDuplicate: 2, settle.OutcomeConflict: 3}
	wantEqual(t, "outcomes", want, settleConcurrently(t, b, all))
	if conflicts := wantSound(t, b).Conflicts; len(conflicts) != 1 {
		t.Errorf("conflicts %+v, want one", conflicts)
	}
}
