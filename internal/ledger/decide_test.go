package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// manual settles a payout and makes its instruction manual: the bank forgets every
// send, and then the key.
func (w *fixture) manual(id string) {
	w.t.Helper()
	w.manualAfter(id, fakebank.Attempt{Execute: fakebank.ExecuteNever, AfterStatus: 500})
}

// manualAfter does so with another result of the send, which the bank does not show.
func (w *fixture) manualAfter(id string, send fakebank.Attempt) {
	w.t.Helper()
	w.bank.ScriptCreditor("c-"+id, fakebank.Plan{Rest: send})
	w.deliver(w.message(fmt.Sprintf(`{"settlement_id":%q,"account_id":"a","amount_cents":5000,"creditor_account":%q}`, id, "c-"+id)), settle.OutcomeApplied)
	w.clock.Advance(20 * time.Hour)
	w.step(id, transfer.StateManual)
}

func verdict(d transfer.Decision) ledger.Verdict {
	return ledger.Verdict{Decision: d, By: "Ines", Second: "Bert", Note: "letter of the bank"}
}

func (w *fixture) decide(o *ledger.Operator, id string, v ledger.Verdict) (transfer.Instruction, bool, error) {
	w.t.Helper()
	c, err := o.Open(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return o.Decide(w.t.Context(), c, v)
}

func instruction(t *testing.T, all audit.Snapshot, id string) transfer.Instruction {
	t.Helper()
	for _, in := range all.Instructions {
		if in.SettlementID == id {
			return in
		}
	}
	t.Fatalf("no instruction of %s", id)
	return transfer.Instruction{}
}

func TestDecideRejected(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.manual("stl-1")
	dry := verdict(transfer.DecideRejected)
	dry.DryRun = true
	if after, made, err := w.decide(w.operator, "stl-1", dry); err != nil || made || after.State != transfer.StateRejected {
		t.Errorf("dry run: %s, %t, %v", after.State, made, err)
	}
	if all := w.snapshot(); len(all.Reversals) != 0 {
		t.Error("the dry run has reversed")
	}
	after, made, err := w.decide(w.operator, "stl-1", verdict(transfer.DecideRejected))
	if err != nil || !made || after.State != transfer.StateRejected {
		t.Fatalf("%s, %t, %v", after.State, made, err)
	}
	all := w.snapshot()
	if len(all.Reversals) != 1 || all.Reversals[0].AmountCents != 5000 || all.Reversals[0].Reason != "rejected" {
		t.Errorf("reversals %+v", all.Reversals)
	}
	event := all.Events[len(all.Events)-1]
	want := `rejected, decided by "Ines" and "Bert": "letter of the bank"; the bank's status: not_found`
	if event.Event.Cause != transfer.CauseDecided || event.Event.Detail != want || event.Event.HTTPStatus != 200 {
		t.Errorf("event %+v", event)
	}
	// A repetition changes nothing; another decision is refused.
	if _, made, err := w.decide(w.operator, "stl-1", verdict(transfer.DecideRejected)); err != nil || made {
		t.Errorf("the same again: %t, %v", made, err)
	}
	_, _, err = w.decide(w.operator, "stl-1", verdict(transfer.DecideConfirmed))
	wantRefused(t, err)
	// The bank is still watched.
	w.clock.Advance(30 * time.Hour)
	w.step("stl-1", transfer.StateRejected)
	w.snapshot()
}

func TestDecideConfirmed(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.manual("stl-1")
	if after, made, err := w.decide(w.operator, "stl-1", verdict(transfer.DecideConfirmed)); err != nil || !made || after.State != transfer.StateConfirmed {
		t.Fatalf("%s, %t, %v", after.State, made, err)
	}
	if all := w.snapshot(); len(all.Reversals) != 0 {
		t.Errorf("%d reversals", len(all.Reversals))
	}
}

func TestDecideRefusesWhenTheBankContradicts(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for status, refused := range map[string][]transfer.Decision{
		fakebank.Settled:  {transfer.DecideRejected, transfer.DecideResend},
		fakebank.Returned: {transfer.DecideConfirmed, transfer.DecideResend},
		"RJCT":            {transfer.DecideConfirmed},
		"ACSP":            {transfer.DecideRejected, transfer.DecideResend},
	} {
		id := "stl-" + status
		// First a status for a person, then the one of the case.
		w.bank.ScriptCreditor("c-"+id, fakebank.Plan{Steps: []fakebank.Step{{Status: "BLCK"}}, StepsRest: fakebank.Step{Status: status}})
		w.deliver(w.message(fmt.Sprintf(`{"settlement_id":%q,"account_id":"a","amount_cents":1,"creditor_account":%q}`, id, "c-"+id)), settle.OutcomeApplied)
		w.clock.Advance(time.Minute)
		w.step(id, transfer.StateManual)
		for _, d := range refused {
			_, made, err := w.decide(w.operator, id, verdict(d))
			if _, is := errors.AsType[*transfer.Refused](err); !is || made {
				t.Errorf("%s while the bank says %s: %t, %v", d, status, made, err)
			}
		}
		if in := instruction(t, w.snapshot(), id); in.State != transfer.StateManual || in.Version != 4 && in.Version != 3 {
			t.Errorf("%s after refused decisions: %s, version %d", id, in.State, in.Version)
		}
	}
	w.deliver(w.message(`{"settlement_id":"stl-plain","account_id":"a","amount_cents":1}`), settle.OutcomeApplied)
	if _, err := w.operator.Open(t.Context(), "stl-plain"); !errors.Is(err, transfer.ErrNoInstruction) {
		t.Errorf("without an instruction: %v", err)
	}
	if _, err := w.operator.Open(t.Context(), "stl-none"); !errors.Is(err, ledger.ErrNoSettlement) || strings.Count(err.Error(), "stl-none") != 1 {
		t.Errorf("unknown settlement, or not named once: %v", err)
	}
	if _, err := w.operator.Step(t.Context(), nil, "stl-none"); !errors.Is(err, ledger.ErrNoSettlement) || strings.Count(err.Error(), "stl-none") != 1 {
		t.Errorf("a step without a settlement, or not named once: %v", err)
	}
}

func TestDecideWithoutTheBank(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.manual("stl-1")
	w.operator.Bank = nil
	_, _, err := w.decide(w.operator, "stl-1", verdict(transfer.DecideRejected))
	wantRefused(t, err)
	v := verdict(transfer.DecideRejected)
	v.WithoutBank = true
	if after, made, err := w.decide(w.operator, "stl-1", v); err != nil || !made || after.State != transfer.StateRejected {
		t.Fatalf("%s, %t, %v", after.State, made, err)
	}
	all := w.snapshot()
	if detail := all.Events[len(all.Events)-1].Event.Detail; detail != `rejected, decided by "Ines" and "Bert": "letter of the bank"; the bank's status: unknown` {
		t.Errorf("detail %q", detail)
	}
}

func TestOneOfTwoConcurrentDecisionsWins(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.manual("stl-1")
	operators := []*ledger.Operator{w.operator, w.newOperator()}
	decisions := []transfer.Decision{transfer.DecideConfirmed, transfer.DecideRejected}
	var cases [2]ledger.Case
	for i, o := range operators {
		var err error
		if cases[i], err = o.Open(t.Context(), "stl-1"); err != nil {
			t.Fatal(err)
		}
	}
	var (
		together sync.WaitGroup
		made     [2]bool
		errs     [2]error
	)
	for i, o := range operators {
		together.Go(func() { _, made[i], errs[i] = o.Decide(t.Context(), cases[i], verdict(decisions[i])) })
	}
	together.Wait()
	if made[0] == made[1] {
		t.Fatalf("made %v, errors %v; want one", made, errs)
	}
	winner := 0
	if made[1] {
		winner = 1
	}
	wantRefused(t, errs[1-winner])
	in := instruction(t, w.snapshot(), "stl-1")
	if want := transfer.State(decisions[winner]); in.State != want || in.Version != cases[0].Instruction.Version+1 {
		t.Errorf("%s, version %d; want %s", in.State, in.Version, want)
	}
}

// TestDecideRejectsStaleVersion opens a case. Then another pair rejects the transfer,
// and the bank executes it after all, which makes it manual again.
func TestDecideRejectsStaleVersion(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.manualAfter("stl-1", fakebank.Attempt{Execute: fakebank.ExecuteLate, LateBy: 25 * time.Hour, AfterStatus: 500})
	seen, err := w.operator.Open(t.Context(), "stl-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.decide(w.newOperator(), "stl-1", verdict(transfer.DecideRejected)); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(30 * time.Hour)
	w.step("stl-1", transfer.StateManual)
	_, made, err := w.operator.Decide(t.Context(), seen, verdict(transfer.DecideConfirmed))
	if wantRefused(t, err); made {
		t.Error("decided")
	}
	all := w.snapshot()
	if in := instruction(t, all, "stl-1"); in.State != transfer.StateManual || len(all.Reversals) != 1 {
		t.Errorf("%s, %d reversals", in.State, len(all.Reversals))
	}
}

// slowBank calls meanwhile before it answers.
type slowBank struct {
	transfer.Bank

	meanwhile func()
}

func (b slowBank) Status(ctx context.Context, r transfer.StatusRequest) transfer.StatusResult {
	b.meanwhile()
	return b.Bank.Status(ctx, r)
}

// TestSlowStepLosesAgainstADecision lets a step wait for the bank until another step
// and a decision have taken place.
func TestSlowStepLosesAgainstADecision(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.manual("stl-1")
	if _, _, err := w.decide(w.operator, "stl-1", verdict(transfer.DecideConfirmed)); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(30 * time.Hour)
	v := verdict(transfer.DecideRejected)
	slow := *w.stepper
	slow.Bank = slowBank{w.stepper.Bank, func() {
		_, _, err := w.decide(w.operator, "stl-1", v)
		wantRefused(t, err) // the slow step holds the lease
		w.clock.Advance(2 * time.Minute)
		w.seesRejected("stl-1")
		if after, made, err := w.decide(w.operator, "stl-1", v); err != nil || !made || after.State != transfer.StateRejected {
			t.Errorf("%s by %q, %t, %v", after.State, after.Owner, made, err)
		}
	}}
	if state, err := slow.Step(t.Context(), "stl-1"); !errors.Is(err, transfer.ErrLeaseLost) {
		t.Errorf("the slow step: %s, %v", state, err)
	}
	all := w.snapshot()
	if in := instruction(t, all, "stl-1"); in.State != transfer.StateRejected || len(all.Reversals) != 1 {
		t.Errorf("%s, %d reversals", in.State, len(all.Reversals))
	}
}

// seesRejected makes a step in which the bank rejects a confirmed transfer, which
// becomes manual.
func (w *fixture) seesRejected(id string) {
	w.t.Helper()
	now := w.clock.Now()
	for _, change := range []func(in transfer.Instruction) (transfer.Change, error){
		func(in transfer.Instruction) (transfer.Change, error) {
			return w.stepper.Policy.Claim(in, "another step", now)
		},
		func(in transfer.Instruction) (transfer.Change, error) {
			said := transfer.Statuses{Current: transfer.StatusResult{Reading: transfer.StatusRejected}}
			return w.stepper.Policy.AfterStatus(in, said, transfer.Interval{Began: now, Ended: now})
		},
	} {
		if _, err := w.stepper.Store.Change(w.t.Context(), id, change); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestDecideRecognisesItsLostCommit lets the reconciler continue before the store's
// retry, and before a repetition of the command.
func TestDecideRecognisesItsLostCommit(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.manual("stl-1")
	w.bank.ScriptCreditor("c-stl-1", fakebank.Plan{})
	w.clock.Advance(5 * time.Hour)
	o := w.newOperator()
	o.Store = lostAnswer{o.Store, func() { w.step("stl-1", transfer.StateAccepted) }}
	after, made, err := w.decide(o, "stl-1", verdict(transfer.DecideResend))
	if err != nil || !made || after.State != transfer.StateAccepted {
		t.Errorf("while it runs: %s, %t, %v", after.State, made, err)
	}
	after, made, err = w.decide(w.operator, "stl-1", verdict(transfer.DecideResend))
	if err != nil || made || after.State != transfer.StateAccepted {
		t.Errorf("given again: %s, %t, %v", after.State, made, err)
	}
	other := verdict(transfer.DecideResend)
	other.Note = "another letter"
	_, _, err = w.decide(w.operator, "stl-1", other)
	wantRefused(t, err)
	w.snapshot()
	if entries := w.bank.Ledger(); len(entries) != 1 {
		t.Errorf("the bank's ledger %+v", entries)
	}
}

// lostAnswer is a store that runs each change twice, as after a lost answer, with
// meanwhile between.
type lostAnswer struct {
	transfer.Store

	meanwhile func()
}

func (s lostAnswer) Change(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (transfer.Change, error) {
	if change, err := s.Store.Change(ctx, id, decide); err != nil {
		return change, err
	}
	s.meanwhile()
	return s.Store.Change(ctx, id, decide)
}

func TestResendUnderANewKey(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.manual("stl-1")
	_, _, err := w.decide(w.operator, "stl-1", verdict(transfer.DecideResend))
	wantRefused(t, err) // the key's lifetime has not passed
	w.clock.Advance(5 * time.Hour)
	without := verdict(transfer.DecideResend)
	without.WithoutBank = true
	unreachable := w.newOperator()
	unreachable.Bank = nil
	_, _, err = w.decide(unreachable, "stl-1", without)
	wantRefused(t, err)

	after, made, err := w.decide(w.operator, "stl-1", verdict(transfer.DecideResend))
	second := transfer.KeyOfGeneration("stl-1", 2)
	if err != nil || !made || after.State != transfer.StateUncertain || after.Transfer.Key != second {
		t.Fatalf("%+v, %t, %v", after, made, err)
	}
	in := instruction(t, w.snapshot(), "stl-1")
	if in.Transfer.Key != second || in.Sends != 0 || len(in.Superseded) != 1 || in.Superseded[0].Key != transfer.InstructionKey("stl-1") {
		t.Fatalf("stored %+v", in)
	}
	if backlog, err := w.stepper.Store.Backlog(t.Context()); err != nil || !backlog.UncertainSince.Equal(in.Superseded[0].At) {
		t.Errorf("backlog %+v, %v; want it uncertain since the new key", backlog, err)
	}

	w.bank.ScriptCreditor("c-stl-1", fakebank.Plan{})
	w.step("stl-1", transfer.StateAccepted)
	w.clock.Advance(time.Minute)
	w.step("stl-1", transfer.StateConfirmed)
	w.snapshot()
	entries := w.bank.Ledger()
	if len(entries) != 1 || entries[0].Key != second.String() {
		t.Errorf("the bank's ledger %+v, want one transfer under %s", entries, second)
	}
}

// TestLateExecutionUnderTheOldKeyStopsTheResend executes the first request after the
// decision to resend.
func TestLateExecutionUnderTheOldKeyStopsTheResend(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.manualAfter("stl-1", fakebank.Attempt{Execute: fakebank.ExecuteLate, LateBy: 25*time.Hour + 10*time.Minute, AfterStatus: 500})
	w.clock.Advance(5 * time.Hour)
	if _, _, err := w.decide(w.operator, "stl-1", verdict(transfer.DecideResend)); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(15 * time.Minute)
	w.step("stl-1", transfer.StateManual)
	in := instruction(t, w.snapshot(), "stl-1")
	if entries := w.bank.Ledger(); in.Sends != 0 || len(entries) != 1 || entries[0].Key != transfer.InstructionKey("stl-1").String() {
		t.Errorf("sent %d times under the new key; the bank's ledger %+v", in.Sends, entries)
	}
	// Neither reversal nor resend is allowed while the bank has that transfer.
	for _, d := range []transfer.Decision{transfer.DecideRejected, transfer.DecideResend} {
		_, _, err := w.decide(w.operator, "stl-1", verdict(d))
		wantRefused(t, err)
	}
	if after, _, err := w.decide(w.operator, "stl-1", verdict(transfer.DecideConfirmed)); err != nil || after.State != transfer.StateConfirmed || !after.NextCheckAt.IsZero() {
		t.Errorf("%+v, %v", after, err)
	}
	w.snapshot()
}

// TestDecideRefusesAfterARestoreLostAKey sends under the second key, of which the
// database has no record, as after a restore.
func TestDecideRefusesAfterARestoreLostAKey(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.manual("stl-1")
	w.bank.ScriptCreditor("c-stl-1", fakebank.Plan{})
	tr := instruction(t, w.snapshot(), "stl-1").Transfer
	tr.Key = transfer.KeyOfGeneration("stl-1", 2)
	body, err := w.operator.Bank.Compose(payout.Payout{SettlementID: "stl-1", AccountID: "a", AmountCents: 5000, Currency: "USD", CreditorAccount: "c-stl-1"}, tr.Key)
	if err != nil {
		t.Fatal(err)
	}
	if sent := w.operator.Bank.Send(t.Context(), transfer.SendRequest{Transfer: tr, Body: body}); sent.Class != transfer.SendAccepted {
		t.Fatalf("sent: %+v", sent)
	}
	w.clock.Advance(5 * time.Hour)
	for _, d := range []transfer.Decision{transfer.DecideRejected, transfer.DecideResend} {
		_, made, err := w.decide(w.operator, "stl-1", verdict(d))
		if wantRefused(t, err); made || !strings.Contains(err.Error(), "status of key 2 is") {
			t.Errorf("%s: %t, %v", d, made, err)
		}
	}
	w.snapshot()
}

// TestDecideReversesOnce rejects a transfer that the bank then reports as executed.
func TestDecideReversesOnce(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.manual("stl-1")
	if _, _, err := w.decide(w.operator, "stl-1", verdict(transfer.DecideRejected)); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(30 * time.Hour)
	now := w.clock.Now()
	for _, decide := range []func(in transfer.Instruction) (transfer.Change, error){
		func(in transfer.Instruction) (transfer.Change, error) {
			return w.stepper.Policy.Claim(in, "a step", now)
		},
		func(in transfer.Instruction) (transfer.Change, error) {
			said := transfer.Statuses{Current: transfer.StatusResult{Reading: transfer.StatusConfirmed}}
			return w.stepper.Policy.AfterStatus(in, said, transfer.Interval{Began: now, Ended: now})
		},
	} {
		if _, err := w.stepper.Store.Change(t.Context(), "stl-1", decide); err != nil {
			t.Fatal(err)
		}
	}
	if in := instruction(t, w.snapshot(), "stl-1"); in.State != transfer.StateManual {
		t.Fatalf("%s, want manual", in.State)
	}
	for _, d := range []transfer.Decision{transfer.DecideConfirmed, transfer.DecideResend} {
		_, _, err := w.decide(w.operator, "stl-1", verdict(d))
		wantRefused(t, err)
	}
	if after, made, err := w.decide(w.operator, "stl-1", verdict(transfer.DecideRejected)); err != nil || !made || after.State != transfer.StateRejected {
		t.Fatalf("%s, %t, %v", after.State, made, err)
	}
	if all := w.snapshot(); len(all.Reversals) != 1 {
		t.Errorf("%d reversals", len(all.Reversals))
	}
}

// TestStep also shows a step's accesses to the comparison with the role's grants.
func TestStep(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.bank.ScriptCreditor("c-1", fakebank.Plan{Life: []fakebank.Change{{Status: fakebank.Returned}}})
	w.deliver(w.message(`{"settlement_id":"stl-1","account_id":"a","amount_cents":1,"creditor_account":"c-1"}`), settle.OutcomeApplied)
	stepper := *w.stepper
	stepper.Store = w.operator.Store
	done, err := w.operator.Step(t.Context(), &stepper, "stl-1")
	if !errors.Is(err, transfer.ErrNotDue) || ledger.WhyNotDue(done.After, w.clock.Now()) == "" || len(done.Events) != 0 {
		t.Errorf("before it is due: %+v, %v", done, err)
	}
	w.clock.Advance(time.Minute)
	done, err = w.operator.Step(t.Context(), &stepper, "stl-1")
	if err != nil || done.Before.State != transfer.StateAccepted || done.After.State != transfer.StateReturned || len(done.Events) != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if why := ledger.WhyNotDue(done.Before, w.clock.Now()); why != "" {
		t.Errorf("it was due: %s", why)
	}
	w.snapshot()
}
