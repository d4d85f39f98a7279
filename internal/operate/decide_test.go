package operate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/operate"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/snapshot"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// manual settles a payout, and brings its instruction to a person: the bank forgets
// every send, and then the key.
func (w *world) manual(id string) {
	w.t.Helper()
	w.manualAfter(id, fakebank.Attempt{Execute: fakebank.ExecuteNever, AfterStatus: 500})
}

// manualAfter does so where the bank has done something else with the send, which
// it does not show.
func (w *world) manualAfter(id string, send fakebank.Attempt) {
	w.t.Helper()
	w.bank.ScriptCreditor("c-"+id, fakebank.Plan{Rest: send})
	w.deliver(w.message(fmt.Sprintf(`{"settlement_id":%q,"account_id":"a","amount_cents":5000,"creditor_account":%q}`, id, "c-"+id)), settle.OutcomeApplied)
	w.clock.Advance(20 * time.Hour)
	w.step(id, settle.InstructionManual)
}

func verdict(d settle.Decision) operate.Verdict {
	return operate.Verdict{Decision: d, By: "Ines", Second: "Bert", Note: "letter of the bank"}
}

// decide opens the case and decides about it.
func (w *world) decide(o *operate.Operator, id string, v operate.Verdict) (settle.Instruction, bool, error) {
	w.t.Helper()
	c, err := o.Open(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return o.Decide(w.t.Context(), c, v)
}

func wantObjection(t *testing.T, err error) {
	t.Helper()
	if _, is := errors.AsType[*settle.Objection](err); !is {
		t.Fatalf("error %v, want an objection", err)
	}
}

func instruction(t *testing.T, all snapshot.Snapshot, id string) settle.Instruction {
	t.Helper()
	for _, in := range all.Instructions {
		if in.SettlementID == id {
			return in
		}
	}
	t.Fatalf("no instruction of %s", id)
	return settle.Instruction{}
}

func TestDecideRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manual("stl-1")
	dry := verdict(settle.DecideRejected)
	dry.DryRun = true
	if after, made, err := w.decide(w.operator, "stl-1", dry); err != nil || made || after.State != settle.InstructionRejected {
		t.Errorf("dry run: %s, %t, %v", after.State, made, err)
	}
	if all := w.snapshot(); len(all.Reversals) != 0 {
		t.Error("the dry run has reversed")
	}
	after, made, err := w.decide(w.operator, "stl-1", verdict(settle.DecideRejected))
	if err != nil || !made || after.State != settle.InstructionRejected {
		t.Fatalf("%s, %t, %v", after.State, made, err)
	}
	all := w.snapshot()
	if len(all.Reversals) != 1 || all.Reversals[0].AmountCents != 5000 || all.Reversals[0].Reason != "rejected" {
		t.Errorf("reversals %+v", all.Reversals)
	}
	receipt := all.Receipt("stl-1")
	if receipt == nil || receipt.ExpireFrom == nil || !receipt.ExpireFrom.Equal(all.Reversals[0].RecordedAt) {
		t.Errorf("receipt %+v: not released together with the reversal", receipt)
	}
	event := all.Events[len(all.Events)-1]
	want := `rejected, decided by "Ines" and "Bert": "letter of the bank"; the bank's status: not_found`
	if event.Event.Cause != settle.CauseDecided || event.Event.Detail != want || event.Event.HTTPStatus != 200 {
		t.Errorf("event %+v", event)
	}
	// The same again, as after an answer that was lost, changes nothing; anything
	// else is refused.
	if _, made, err := w.decide(w.operator, "stl-1", verdict(settle.DecideRejected)); err != nil || made {
		t.Errorf("the same again: %t, %v", made, err)
	}
	_, _, err = w.decide(w.operator, "stl-1", verdict(settle.DecideConfirmed))
	wantObjection(t, err)
	// The bank is still watched.
	w.clock.Advance(30 * time.Hour)
	w.step("stl-1", settle.InstructionRejected)
	w.snapshot()
}

func TestDecideConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manual("stl-1")
	if after, made, err := w.decide(w.operator, "stl-1", verdict(settle.DecideConfirmed)); err != nil || !made || after.State != settle.InstructionConfirmed {
		t.Fatalf("%s, %t, %v", after.State, made, err)
	}
	all := w.snapshot()
	if receipt := all.Receipt("stl-1"); len(all.Reversals) != 0 || receipt == nil || receipt.ExpireFrom == nil {
		t.Errorf("%d reversals, receipt %+v", len(all.Reversals), receipt)
	}
}

// TestDecideAgainstTheBank: each decision is refused that the bank contradicts, and
// nothing is changed.
func TestDecideAgainstTheBank(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for status, refused := range map[string][]settle.Decision{
		fakebank.Settled:  {settle.DecideRejected, settle.DecideResend},
		fakebank.Returned: {settle.DecideConfirmed, settle.DecideResend},
		"RJCT":            {settle.DecideConfirmed},
		"ACSP":            {settle.DecideRejected, settle.DecideResend},
	} {
		id := "stl-" + status
		// First a status for a person, then the one of the case.
		w.bank.ScriptCreditor("c-"+id, fakebank.Plan{Steps: []fakebank.Step{{Status: "BLCK"}}, StepsRest: fakebank.Step{Status: status}})
		w.deliver(w.message(fmt.Sprintf(`{"settlement_id":%q,"account_id":"a","amount_cents":1,"creditor_account":%q}`, id, "c-"+id)), settle.OutcomeApplied)
		w.clock.Advance(time.Minute)
		w.step(id, settle.InstructionManual)
		for _, d := range refused {
			_, made, err := w.decide(w.operator, id, verdict(d))
			if _, is := errors.AsType[*settle.Objection](err); !is || made {
				t.Errorf("%s while the bank says %s: %t, %v", d, status, made, err)
			}
		}
		if in := instruction(t, w.snapshot(), id); in.State != settle.InstructionManual || in.Version != 4 && in.Version != 3 {
			t.Errorf("%s after refused decisions: %s, version %d", id, in.State, in.Version)
		}
	}
	w.deliver(w.message(`{"settlement_id":"stl-plain","account_id":"a","amount_cents":1}`), settle.OutcomeApplied)
	if _, err := w.operator.Open(t.Context(), "stl-plain"); !errors.Is(err, settle.ErrNoInstruction) {
		t.Errorf("without an instruction: %v", err)
	}
	if _, err := w.operator.Open(t.Context(), "stl-none"); !errors.Is(err, operate.ErrNoSettlement) || strings.Count(err.Error(), "stl-none") != 1 {
		t.Errorf("without a settlement, or not named once: %v", err)
	}
	if _, err := w.operator.Step(t.Context(), nil, "stl-none"); !errors.Is(err, operate.ErrNoSettlement) || strings.Count(err.Error(), "stl-none") != 1 {
		t.Errorf("a step without a settlement, or not named once: %v", err)
	}
}

// TestDecideWithoutTheBank: a bank that cannot be reached is said to be so.
func TestDecideWithoutTheBank(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manual("stl-1")
	w.operator.Bank = nil
	_, _, err := w.decide(w.operator, "stl-1", verdict(settle.DecideRejected))
	wantObjection(t, err)
	v := verdict(settle.DecideRejected)
	v.WithoutBank = true
	if after, made, err := w.decide(w.operator, "stl-1", v); err != nil || !made || after.State != settle.InstructionRejected {
		t.Fatalf("%s, %t, %v", after.State, made, err)
	}
	all := w.snapshot()
	if detail := all.Events[len(all.Events)-1].Event.Detail; detail != `rejected, decided by "Ines" and "Bert": "letter of the bank"; the bank's status could not be learnt` {
		t.Errorf("detail %q", detail)
	}
}

// TestTwoDecisionsAtOnce: of people who decide against each other at the same time
// one pair decides, and the ledger is theirs.
func TestTwoDecisionsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manual("stl-1")
	operators := []*operate.Operator{w.operator, w.newOperator()}
	decisions := []settle.Decision{settle.DecideConfirmed, settle.DecideRejected}
	var cases [2]operate.Case
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
	wantObjection(t, errs[1-winner])
	in := instruction(t, w.snapshot(), "stl-1")
	if want := settle.InstructionState(decisions[winner]); in.State != want || in.Version != cases[0].Instruction.Version+1 {
		t.Errorf("%s, version %d; want %s", in.State, in.Version, want)
	}
}

// TestACaseOfTheDayBefore: people look at a case, and before they decide others reject
// the transfer, and the bank executes it after all. It waits for people again; what
// these decide about is no longer there: the movement is reversed.
func TestACaseOfTheDayBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manualAfter("stl-1", fakebank.Attempt{Execute: fakebank.ExecuteLate, LateBy: 25 * time.Hour, AfterStatus: 500})
	seen, err := w.operator.Open(t.Context(), "stl-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.decide(w.newOperator(), "stl-1", verdict(settle.DecideRejected)); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(30 * time.Hour)
	w.step("stl-1", settle.InstructionManual)
	_, made, err := w.operator.Decide(t.Context(), seen, verdict(settle.DecideConfirmed))
	if wantObjection(t, err); made {
		t.Error("decided")
	}
	all := w.snapshot()
	if in := instruction(t, all, "stl-1"); in.State != settle.InstructionManual || len(all.Reversals) != 1 {
		t.Errorf("%s, %d reversals", in.State, len(all.Reversals))
	}
}

// slowBank answers a question when meanwhile has returned.
type slowBank struct {
	settle.Bank

	meanwhile func()
}

func (b slowBank) Status(ctx context.Context, r settle.StatusRequest) settle.StatusResult {
	b.meanwhile()
	return b.Bank.Status(ctx, r)
}

// TestADecisionAndAStepAtOnce: a step asks the bank, and takes so long that another
// one comes and people decide about what that has seen. The first records nothing
// over what they decided.
func TestADecisionAndAStepAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manual("stl-1")
	if _, _, err := w.decide(w.operator, "stl-1", verdict(settle.DecideConfirmed)); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(30 * time.Hour)
	v := verdict(settle.DecideRejected)
	slow := *w.stepper
	slow.Bank = slowBank{w.stepper.Bank, func() {
		_, _, err := w.decide(w.operator, "stl-1", v)
		wantObjection(t, err) // the slow step holds the lease
		w.clock.Advance(2 * time.Minute)
		w.seesRejected("stl-1")
		if after, made, err := w.decide(w.operator, "stl-1", v); err != nil || !made || after.State != settle.InstructionRejected {
			t.Errorf("%s by %q, %t, %v", after.State, after.Owner, made, err)
		}
	}}
	if state, err := slow.Step(t.Context(), "stl-1"); !errors.Is(err, settle.ErrLeaseLost) {
		t.Errorf("the slow step: %s, %v", state, err)
	}
	all := w.snapshot()
	if in := instruction(t, all, "stl-1"); in.State != settle.InstructionRejected || len(all.Reversals) != 1 {
		t.Errorf("%s, %d reversals", in.State, len(all.Reversals))
	}
}

// seesRejected makes a step to which the bank says rejected of a transfer that was
// confirmed, which is for people.
func (w *world) seesRejected(id string) {
	w.t.Helper()
	now := w.clock.Now()
	for _, change := range []func(in settle.Instruction) (settle.Change, error){
		func(in settle.Instruction) (settle.Change, error) {
			return w.stepper.Policy.Claim(in, "another step", now)
		},
		func(in settle.Instruction) (settle.Change, error) {
			said := settle.Statuses{Current: settle.StatusResult{Reading: settle.StatusRejected}}
			return w.stepper.Policy.Asked(in, said, settle.Span{Began: now, Ended: now})
		},
	} {
		if _, err := w.stepper.Store.Change(w.t.Context(), id, change); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestADecisionWhoseAnswerWasLost was made, and the reconciler went on from it: the
// same command says so, whether it is still running or given again.
func TestADecisionWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manual("stl-1")
	w.bank.ScriptCreditor("c-stl-1", fakebank.Plan{})
	w.clock.Advance(5 * time.Hour)
	o := w.newOperator()
	o.Store = lostAnswer{o.Store, func() { w.step("stl-1", settle.InstructionAccepted) }}
	after, made, err := w.decide(o, "stl-1", verdict(settle.DecideResend))
	if err != nil || !made || after.State != settle.InstructionAccepted {
		t.Errorf("while it runs: %s, %t, %v", after.State, made, err)
	}
	after, made, err = w.decide(w.operator, "stl-1", verdict(settle.DecideResend))
	if err != nil || made || after.State != settle.InstructionAccepted {
		t.Errorf("given again: %s, %t, %v", after.State, made, err)
	}
	other := verdict(settle.DecideResend)
	other.Note = "another letter"
	_, _, err = w.decide(w.operator, "stl-1", other)
	wantObjection(t, err)
	w.snapshot()
	if ledger := w.bank.Ledger(); len(ledger) != 1 {
		t.Errorf("the bank's ledger %+v", ledger)
	}
}

// lostAnswer is a store that runs a change again after its commit, as it does where
// the answer was lost, when meanwhile has returned.
type lostAnswer struct {
	settle.InstructionStore

	meanwhile func()
}

func (s lostAnswer) Change(ctx context.Context, id string, decide func(settle.Instruction) (settle.Change, error)) (settle.Change, error) {
	if change, err := s.InstructionStore.Change(ctx, id, decide); err != nil {
		return change, err
	}
	s.meanwhile()
	return s.InstructionStore.Change(ctx, id, decide)
}

// TestResendUnderANewKey follows a payout that the bank lost for good: one transfer,
// under the second key, while the first is asked about each time.
func TestResendUnderANewKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manual("stl-1")
	_, _, err := w.decide(w.operator, "stl-1", verdict(settle.DecideResend))
	wantObjection(t, err) // the key's lifetime has not passed
	w.clock.Advance(5 * time.Hour)
	without := verdict(settle.DecideResend)
	without.WithoutBank = true
	unreachable := w.newOperator()
	unreachable.Bank = nil
	_, _, err = w.decide(unreachable, "stl-1", without)
	wantObjection(t, err)

	after, made, err := w.decide(w.operator, "stl-1", verdict(settle.DecideResend))
	second := settle.KeyOfGeneration("stl-1", 2)
	if err != nil || !made || after.State != settle.InstructionUncertain || after.Transfer.Key != second {
		t.Fatalf("%+v, %t, %v", after, made, err)
	}
	in := instruction(t, w.snapshot(), "stl-1")
	if in.Transfer.Key != second || in.Sends != 0 || len(in.Superseded) != 1 || in.Superseded[0].Key != settle.InstructionKey("stl-1") {
		t.Fatalf("stored %+v", in)
	}
	if backlog, err := w.stepper.Store.Backlog(t.Context()); err != nil || !backlog.UncertainSince.Equal(in.Superseded[0].At) {
		t.Errorf("backlog %+v, %v; want it uncertain since the new key", backlog, err)
	}

	w.bank.ScriptCreditor("c-stl-1", fakebank.Plan{})
	w.step("stl-1", settle.InstructionAccepted)
	w.clock.Advance(time.Minute)
	w.step("stl-1", settle.InstructionConfirmed)
	w.snapshot()
	ledger := w.bank.Ledger()
	if len(ledger) != 1 || ledger[0].Key != second.String() {
		t.Errorf("the bank's ledger %+v, want one transfer under %s", ledger, second)
	}
}

// TestAnOldKeyThatWakesUp: the bank executes the first request after all, when the
// payout was to be sent again: it is not.
func TestAnOldKeyThatWakesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manualAfter("stl-1", fakebank.Attempt{Execute: fakebank.ExecuteLate, LateBy: 25*time.Hour + 10*time.Minute, AfterStatus: 500})
	w.clock.Advance(5 * time.Hour)
	if _, _, err := w.decide(w.operator, "stl-1", verdict(settle.DecideResend)); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(15 * time.Minute)
	w.step("stl-1", settle.InstructionManual)
	in := instruction(t, w.snapshot(), "stl-1")
	if ledger := w.bank.Ledger(); in.Sends != 0 || len(ledger) != 1 || ledger[0].Key != settle.InstructionKey("stl-1").String() {
		t.Errorf("sent %d times under the new key; the bank's ledger %+v", in.Sends, ledger)
	}
	// Nor can it be reversed, or sent again, while that key is alive.
	for _, d := range []settle.Decision{settle.DecideRejected, settle.DecideResend} {
		_, _, err := w.decide(w.operator, "stl-1", verdict(d))
		wantObjection(t, err)
	}
	// It was paid, by the first key.
	if after, _, err := w.decide(w.operator, "stl-1", verdict(settle.DecideConfirmed)); err != nil || after.State != settle.InstructionConfirmed || !after.NextCheckAt.IsZero() {
		t.Errorf("%+v, %v", after, err)
	}
	w.snapshot()
}

// TestAKeyThatARestoreForgot: the second key was used, and the database was restored
// to a time before it; nothing but the bank knows.
func TestAKeyThatARestoreForgot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manual("stl-1")
	w.bank.ScriptCreditor("c-stl-1", fakebank.Plan{})
	transfer := instruction(t, w.snapshot(), "stl-1").Transfer
	transfer.Key = settle.KeyOfGeneration("stl-1", 2)
	body, err := w.operator.Bank.Compose(settle.Payout{SettlementID: "stl-1", AccountID: "a", AmountCents: 5000, Currency: "USD", CreditorAccount: "c-stl-1"}, transfer.Key)
	if err != nil {
		t.Fatal(err)
	}
	if sent := w.operator.Bank.Send(t.Context(), settle.SendRequest{Transfer: transfer, Body: body}); sent.Class != settle.SendAccepted {
		t.Fatalf("sent: %+v", sent)
	}
	w.clock.Advance(5 * time.Hour)
	for _, d := range []settle.Decision{settle.DecideRejected, settle.DecideResend} {
		_, made, err := w.decide(w.operator, "stl-1", verdict(d))
		if wantObjection(t, err); made || !strings.Contains(err.Error(), "key 2 says") {
			t.Errorf("%s: %t, %v", d, made, err)
		}
	}
	w.snapshot()
}

// TestAMovementIsReversedOnce: the bank rejected, then seemed to have executed. What
// was reversed stays reversed, once.
func TestAMovementIsReversedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.manual("stl-1")
	if _, _, err := w.decide(w.operator, "stl-1", verdict(settle.DecideRejected)); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(30 * time.Hour)
	now := w.clock.Now()
	for _, decide := range []func(in settle.Instruction) (settle.Change, error){
		func(in settle.Instruction) (settle.Change, error) {
			return w.stepper.Policy.Claim(in, "a step", now)
		},
		func(in settle.Instruction) (settle.Change, error) {
			said := settle.Statuses{Current: settle.StatusResult{Reading: settle.StatusConfirmed}}
			return w.stepper.Policy.Asked(in, said, settle.Span{Began: now, Ended: now})
		},
	} {
		if _, err := w.stepper.Store.Change(t.Context(), "stl-1", decide); err != nil {
			t.Fatal(err)
		}
	}
	if in := instruction(t, w.snapshot(), "stl-1"); in.State != settle.InstructionManual {
		t.Fatalf("%s, want manual", in.State)
	}
	for _, d := range []settle.Decision{settle.DecideConfirmed, settle.DecideResend} {
		_, _, err := w.decide(w.operator, "stl-1", verdict(d))
		wantObjection(t, err)
	}
	if after, made, err := w.decide(w.operator, "stl-1", verdict(settle.DecideRejected)); err != nil || !made || after.State != settle.InstructionRejected {
		t.Fatalf("%s, %t, %v", after.State, made, err)
	}
	if all := w.snapshot(); len(all.Reversals) != 1 {
		t.Errorf("%d reversals", len(all.Reversals))
	}
}

// TestAStepInTheOperatorsRole shows it to the comparison with the role's grants.
func TestAStepInTheOperatorsRole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.bank.ScriptCreditor("c-1", fakebank.Plan{Life: []fakebank.Change{{Status: fakebank.Returned}}})
	w.deliver(w.message(`{"settlement_id":"stl-1","account_id":"a","amount_cents":1,"creditor_account":"c-1"}`), settle.OutcomeApplied)
	stepper := *w.stepper
	stepper.Store = w.operator.Store
	done, err := w.operator.Step(t.Context(), &stepper, "stl-1")
	if !errors.Is(err, settle.ErrNotDue) || operate.WhyNotDue(done.After, w.clock.Now()) == "" || len(done.Events) != 0 {
		t.Errorf("before it is due: %+v, %v", done, err)
	}
	w.clock.Advance(time.Minute)
	done, err = w.operator.Step(t.Context(), &stepper, "stl-1")
	if err != nil || done.Before.State != settle.InstructionAccepted || done.After.State != settle.InstructionReturned || len(done.Events) != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if why := operate.WhyNotDue(done.Before, w.clock.Now()); why != "" {
		t.Errorf("it was due: %s", why)
	}
	w.snapshot()
}
