package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// long is a time at which the bank has forgotten a key that was sent at noon.
var long = noon.Add(policy.KeyLifetime + 3*time.Hour)

// manual is a manual instruction that was sent at noon.
func manual() Instruction {
	in := sent(StateManual)
	in.LeaseUntil, in.NextCheckAt, in.Version = time.Time{}, time.Time{}, 5
	return in
}

func ruling(d Decision, said ...StatusReading) Ruling {
	r := Ruling{ID: "ruling", Decision: d, By: "Ines", Second: "Bert", Note: "letter of the bank, 2026-11-30", Version: 5, Took: Interval{long, long}}
	for i, reading := range said {
		status := StatusResult{Reading: reading, Answer: BankAnswer{HTTPStatus: 200}}
		if i == 0 {
			r.Said.Current = status
		} else {
			r.Said.Superseded = append(r.Said.Superseded, status)
		}
	}
	if d != "" {
		for range maxSuperseded {
			r.Said.Later = append(r.Said.Later, StatusResult{Reading: StatusNotFound})
		}
	}
	if d == DecideResend {
		r.Body = []byte("new body")
	}
	return r
}

// allowed is the new state for every decision and every bank status; empty means that
// the decision is refused.
var allowed = map[Decision]map[StatusReading]State{
	DecideConfirmed: {
		StatusUnknown: "", StatusNotFound: StateConfirmed, StatusPending: StateConfirmed, StatusConfirmed: StateConfirmed,
		StatusRejected: "", StatusReturned: "", StatusManual: StateConfirmed, StatusAttention: StateConfirmed,
	},
	DecideRejected: {
		StatusUnknown: "", StatusNotFound: StateRejected, StatusPending: "", StatusConfirmed: "",
		StatusRejected: StateRejected, StatusReturned: StateReturned, StatusManual: "", StatusAttention: StateRejected,
	},
	DecideResend: {
		StatusUnknown: "", StatusNotFound: StateUncertain, StatusPending: "", StatusConfirmed: "",
		StatusRejected: StateUncertain, StatusReturned: "", StatusManual: "", StatusAttention: "",
	},
}

func TestDecideAgainstEveryBankStatus(t *testing.T) {
	t.Parallel()
	for decision, readings := range allowed {
		for reading, to := range readings {
			change, err := policy.Decide(manual(), ruling(decision, reading))
			if to == "" {
				wantRefused(t, fmt.Sprintf("%s, bank %s", decision, reading), change, err)
				continue
			}
			if err != nil || change.Next.State != to || !change.Write || change.Reverse != to.reverses() {
				t.Errorf("%s, bank %s: %+v, %v; want %s", decision, reading, change, err, to)
			}
			if change.Next.Owner != "ruling" || change.Next.Version != 6 || !change.Next.LeaseUntil.IsZero() || change.Level < slog.LevelWarn {
				t.Errorf("%s, bank %s: owner %q, version %d, lease until %v, level %v",
					decision, reading, change.Next.Owner, change.Next.Version, change.Next.LeaseUntil, change.Level)
			}
		}
	}
}

func wantRefused(t *testing.T, name string, change Change, err error) {
	t.Helper()
	refused, is := errors.AsType[*Refused](err)
	if !is || refused.Why == "" || refused.Do == "" {
		t.Errorf("%s: error %v, want a refusal", name, err)
	}
	if diff := cmp.Diff(Change{}, change); diff != "" {
		t.Errorf("%s: a change beside a refusal:\n%s", name, diff)
	}
}

// The daily status check would make the instruction manual again.
func TestDecisionAgainstTheBankStopsChecks(t *testing.T) {
	t.Parallel()
	for reading, watched := range map[StatusReading]bool{
		StatusConfirmed: true, StatusNotFound: true, StatusPending: true, StatusManual: false, StatusAttention: false,
	} {
		change, err := policy.Decide(manual(), ruling(DecideConfirmed, reading))
		if err != nil || !change.Next.NextCheckAt.IsZero() != watched {
			t.Errorf("bank %s: %v, next check %v", reading, err, change.Next.NextCheckAt)
		}
		if watched && planFor(change.Next, long.Add(30*time.Hour)) != PlanAsk {
			t.Errorf("bank %s: no status check after a day", reading)
		}
	}
}

func TestDecideRefusesInvalidRulings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(in *Instruction, r *Ruling)
	}{
		{"no name", func(_ *Instruction, r *Ruling) { r.By = "" }},
		{"no second name", func(_ *Instruction, r *Ruling) { r.Second = " " }},
		{"one person", func(_ *Instruction, r *Ruling) { r.Second = "Ines" }},
		{"one person in other letters", func(_ *Instruction, r *Ruling) { r.Second = "iNES" }},
		{"one person with spaces", func(_ *Instruction, r *Ruling) { r.Second = " In es" }},
		{"one person with an invisible character", func(_ *Instruction, r *Ruling) { r.Second = "Ines\u200b" }},
		{"a name that is too long", func(_ *Instruction, r *Ruling) { r.Second = strings.Repeat("b", 129) }},
		{"no note", func(_ *Instruction, r *Ruling) { r.Note = "" }},
		{"a note that is too long", func(_ *Instruction, r *Ruling) { r.Note = strings.Repeat("n", 1001) }},
		{"a note of two lines", func(_ *Instruction, r *Ruling) { r.Note = "a\nb" }},
		{"unknown decision", func(_ *Instruction, r *Ruling) { r.Decision = "returned" }},
		{"no decision", func(_ *Instruction, r *Ruling) { r.Decision = "" }},
		{"decided by others", func(in *Instruction, _ *Ruling) { in.Version = 6 }},
		{"about a later version", func(_ *Instruction, r *Ruling) { r.Version = 6 }},
		{"leased", func(in *Instruction, _ *Ruling) { in.LeaseUntil = long.Add(time.Nanosecond) }},
		{"a superseded key without status", func(in *Instruction, _ *Ruling) { in.Superseded = make([]SupersededKey, 1) }},
	} {
		for decision := range allowed {
			in, r := manual(), ruling(decision, StatusNotFound)
			test.change(&in, &r)
			change, err := policy.Decide(in, r)
			wantRefused(t, test.name+", "+string(decision), change, err)
		}
	}
	for _, state := range states {
		if state == StateManual {
			continue
		}
		for decision := range allowed {
			in := manual()
			in.State = state
			change, err := policy.Decide(in, ruling(decision, StatusNotFound))
			wantRefused(t, string(state)+", "+string(decision), change, err)
		}
	}
}

func TestDecideRefusesPerDecision(t *testing.T) {
	t.Parallel()
	early := func(_ *Instruction, r *Ruling) {
		r.Took = Interval{noon.Add(policy.KeyLifetime), noon.Add(policy.KeyLifetime)}
	}
	for _, test := range []struct {
		name    string
		d       Decision
		said    []StatusReading
		change  func(in *Instruction, r *Ruling)
		refused bool
	}{
		{"confirmed, and reversed", DecideConfirmed, []StatusReading{StatusConfirmed}, func(_ *Instruction, r *Ruling) { r.Reversed = true }, true},
		{"rejected during the send", DecideRejected, []StatusReading{StatusNotFound}, func(_ *Instruction, r *Ruling) { r.Took = Interval{noon.Add(34 * time.Second), noon.Add(time.Minute)} }, true},
		{"rejected after the send", DecideRejected, []StatusReading{StatusNotFound}, func(_ *Instruction, r *Ruling) { r.Took = Interval{noon.Add(35 * time.Second), noon.Add(time.Minute)} }, false},
		{"confirmed without the bank", DecideConfirmed, []StatusReading{StatusUnknown}, func(_ *Instruction, r *Ruling) { r.WithoutBank = true }, false},
		{"rejected without the bank", DecideRejected, []StatusReading{StatusUnknown}, func(_ *Instruction, r *Ruling) { r.WithoutBank = true }, false},
		{"rejected without the bank, which answers", DecideRejected, []StatusReading{StatusConfirmed}, func(_ *Instruction, r *Ruling) { r.WithoutBank = true }, true},
		{"resent without the bank", DecideResend, []StatusReading{StatusUnknown}, func(_ *Instruction, r *Ruling) { r.WithoutBank = true }, true},
		{"resent while the bank remembers the key", DecideResend, []StatusReading{StatusNotFound}, early, true},
		{"resent while the bank says rejected of the key", DecideResend, []StatusReading{StatusRejected}, early, false},
		{"resent just before the key is forgotten", DecideResend, []StatusReading{StatusNotFound}, func(_ *Instruction, r *Ruling) {
			r.Took.Began = noon.Add(policy.KeyLifetime + policy.lag() - time.Nanosecond)
		}, true},
		{"resent when the key is forgotten", DecideResend, []StatusReading{StatusNotFound}, func(_ *Instruction, r *Ruling) { r.Took.Began = noon.Add(policy.KeyLifetime + policy.lag()) }, false},
		{"resent soon after the latest send", DecideResend, []StatusReading{StatusNotFound}, func(in *Instruction, _ *Ruling) { in.LastSentAt = long.Add(-time.Hour) }, true},
		{"resent though never sent", DecideResend, []StatusReading{StatusNotFound}, func(in *Instruction, r *Ruling) {
			early(in, r)
			in.Sends = 0
		}, false},
		{"resent after it was accepted", DecideResend, []StatusReading{StatusNotFound}, func(in *Instruction, _ *Ruling) { in.AcceptedAt = noon }, true},
		{"resent after it was accepted, and rejected", DecideResend, []StatusReading{StatusRejected}, func(in *Instruction, _ *Ruling) { in.AcceptedAt = noon }, false},
		{"resent after it was final", DecideResend, []StatusReading{StatusRejected}, func(in *Instruction, _ *Ruling) { in.FinalAt = noon }, true},
		{"resent after it was reversed", DecideResend, []StatusReading{StatusRejected}, func(_ *Instruction, r *Ruling) { r.Reversed = true }, true},
		{"resent without a body", DecideResend, []StatusReading{StatusNotFound}, func(_ *Instruction, r *Ruling) { r.Body = nil }, true},
		{"resent a fourth time", DecideResend, []StatusReading{StatusNotFound, StatusNotFound, StatusNotFound, StatusNotFound}, func(in *Instruction, _ *Ruling) {
			in.Superseded = make([]SupersededKey, 3)
		}, true},
		{"resent a third time", DecideResend, []StatusReading{StatusNotFound, StatusNotFound, StatusNotFound}, superseded(2), false},
		{"confirmed by a superseded key", DecideConfirmed, []StatusReading{StatusRejected, StatusConfirmed}, superseded(1), false},
		{"confirmed by a superseded key while the present one is pending", DecideConfirmed, []StatusReading{StatusPending, StatusConfirmed}, superseded(1), true},
		{"confirmed by the present key while a superseded one is pending", DecideConfirmed, []StatusReading{StatusConfirmed, StatusPending}, superseded(1), true},
		{"confirmed while two keys are pending", DecideConfirmed, []StatusReading{StatusPending, StatusPending}, superseded(1), true},
		{"confirmed under two keys", DecideConfirmed, []StatusReading{StatusConfirmed, StatusConfirmed}, superseded(1), true},
		{"confirmed after one of two was sent back", DecideConfirmed, []StatusReading{StatusReturned, StatusConfirmed}, superseded(1), false},
		{"confirmed while a key of before a restore is executed", DecideConfirmed, []StatusReading{StatusConfirmed}, ofLaterKey(0, StatusConfirmed), true},
		{"confirmed while a key of before a restore is pending", DecideConfirmed, []StatusReading{StatusConfirmed}, ofLaterKey(0, StatusPending), true},
		{"confirmed by a key of before a restore", DecideConfirmed, []StatusReading{StatusNotFound}, ofLaterKey(0, StatusConfirmed), false},
		{"rejected while a superseded key is executed", DecideRejected, []StatusReading{StatusNotFound, StatusConfirmed}, superseded(1), true},
		{"rejected while a superseded key is pending", DecideRejected, []StatusReading{StatusNotFound, StatusPending}, superseded(1), true},
		{"rejected while a superseded key is unknown", DecideRejected, []StatusReading{StatusNotFound, StatusUnknown}, superseded(1), true},
		{"resent while a superseded key is returned", DecideResend, []StatusReading{StatusNotFound, StatusReturned}, superseded(1), true},
		{"resent while a superseded key is rejected", DecideResend, []StatusReading{StatusNotFound, StatusRejected}, superseded(1), false},
	} {
		in, r := manual(), ruling(test.d, test.said...)
		test.change(&in, &r)
		change, err := policy.Decide(in, r)
		if test.refused {
			wantRefused(t, test.name, change, err)
		} else if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// ofLaterKey sets the bank's status of a later key.
func ofLaterKey(i int, reading StatusReading) func(in *Instruction, r *Ruling) {
	return func(_ *Instruction, r *Ruling) { r.Said.Later[i].Reading = reading }
}

// After a restore the row may have lost its latest keys, which the bank still knows.
func TestDecideRefusesKeysUsedBeforeARestore(t *testing.T) {
	t.Parallel()
	for _, d := range []Decision{DecideRejected, DecideResend} {
		for reading := range allowed[d] {
			for i := range maxSuperseded {
				in, r := manual(), ruling(d, StatusNotFound)
				r.Said.Later[i].Reading = reading
				harmless := reading == StatusNotFound || reading == StatusRejected && d == DecideRejected
				if change, err := policy.Decide(in, r); !harmless {
					wantRefused(t, fmt.Sprintf("%s, key %d is %s", d, i+2, reading), change, err)
				} else if err != nil {
					t.Errorf("%s: %v", d, err)
				}
			}
		}
		in, r := manual(), ruling(d, StatusNotFound)
		r.Said.Later = nil
		change, err := policy.Decide(in, r)
		wantRefused(t, string(d)+", not asked about later keys", change, err)
	}
	r := ruling(DecideRejected, StatusUnknown)
	r.WithoutBank, r.Said.Later = true, nil
	if _, err := policy.Decide(manual(), r); err != nil {
		t.Errorf("without the bank: %v", err)
	}
	in := manual()
	superseded(3)(&in, nil)
	if keys := in.LaterKeys(); len(keys) != 0 {
		t.Errorf("after the last key: %v", keys)
	}
	in = manual()
	if keys := in.LaterKeys(); len(keys) != 3 || keys[0] != in.NextKey() || keys[2] != KeyOfGeneration("stl-8472", 4) {
		t.Errorf("after the first key: %v", keys)
	}
}

func superseded(n int) func(in *Instruction, r *Ruling) {
	return func(in *Instruction, _ *Ruling) {
		for i := range n {
			in.Superseded = append(in.Superseded, SupersededKey{Key: KeyOfGeneration(in.SettlementID, i+1), At: noon})
		}
		in.Transfer.Key = KeyOfGeneration(in.SettlementID, n+1)
	}
}

// settlectl can run with a shorter configured key lifetime than the function.
func TestDecideUsesTheKeyLifetimeOfTheFirstSend(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * time.Hour
	in := manual()
	in.LastSentAt, in.ResendNotAfter = noon.Add(100*time.Hour), noon.Add(ResendWindow(week))
	forgotten := in.LastSentAt.Add(week + policy.lag())
	for at, allowed := range map[time.Time]bool{in.LastSentAt.Add(policy.KeyLifetime + policy.lag()): false, forgotten.Add(-1): false, forgotten: true} {
		r := ruling(DecideResend, StatusNotFound)
		r.Took = Interval{at, at}
		if change, err := policy.Decide(in, r); !allowed {
			wantRefused(t, at.Format(time.RFC3339), change, err)
		} else if err != nil {
			t.Errorf("%v: %v", at, err)
		}
	}
}

func TestDecideReversesAMovementOnce(t *testing.T) {
	t.Parallel()
	in := manual()
	in.FinalAt = noon
	for _, reading := range []StatusReading{StatusRejected, StatusReturned} {
		r := ruling(DecideRejected, reading)
		r.Reversed = true
		change, err := policy.Decide(in, r)
		if err != nil || change.Next.State != StateRejected || change.Reverse {
			t.Errorf("bank %s: %+v, %v", reading, change, err)
		}
	}
}

func TestDecideRecognisesItsOwnCommit(t *testing.T) {
	t.Parallel()
	r := ruling(DecideRejected, StatusRejected)
	made, err := policy.Decide(manual(), r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := policy.Decide(made.Next, r)
	if err != nil || again.Write || again.Next.State != StateRejected {
		t.Errorf("%+v, %v; want nothing to write", again, err)
	}
	r.ID = "another"
	change, err := policy.Decide(made.Next, r)
	wantRefused(t, "another ruling", change, err)
}

func TestDecisionEventHoldsTheProof(t *testing.T) {
	t.Parallel()
	r := ruling(DecideConfirmed, StatusUnknown)
	r.WithoutBank = true
	change, err := policy.Decide(manual(), r)
	want := &Event{
		From: StateManual, To: StateConfirmed, Cause: CauseDecided, HTTPStatus: 200,
		Detail: `confirmed, decided by "Ines" and "Bert": "letter of the bank, 2026-11-30"; the bank's status: unknown`,
	}
	if diff := cmp.Diff(want, change.Event); err != nil || diff != "" {
		t.Errorf("%v; event (-want +got):\n%s", err, diff)
	}
}

func TestResendUnderANewKeyResetsTheInstruction(t *testing.T) {
	t.Parallel()
	in := manual()
	in.Sends, in.TransferID, in.BankStatus, in.NotFoundSince, in.Body = 4, "t", "RJCT", noon, []byte("body")
	in.AcceptedAt, in.SendDeferred, in.Checks = noon, true, 3
	change, err := policy.Decide(in, ruling(DecideResend, StatusRejected))
	if err != nil {
		t.Fatal(err)
	}
	want := Instruction{
		SettlementID: "stl-8472", Body: []byte("new body"), State: StateUncertain, Version: 6, Owner: "ruling",
		Transfer:   Transfer{Key: KeyOfGeneration("stl-8472", 2), AmountCents: 1, Currency: "USD", CreditorAccount: "c"},
		Superseded: []SupersededKey{{Key: InstructionKey("stl-8472"), At: long}}, CreatedAt: noon, NextCheckAt: long,
	}
	if diff := cmp.Diff(want, change.Next); diff != "" {
		t.Errorf("next (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&in, change.Supersedes); diff != "" {
		t.Errorf("superseded (-want +got):\n%s", diff)
	}
}

func TestKeysOfGenerations(t *testing.T) {
	t.Parallel()
	if KeyOfGeneration("stl-8472", 1) != InstructionKey("stl-8472") {
		t.Error("the first key is not InstructionKey")
	}
	// The algorithm is fixed: a different key is a second transfer.
	if got := KeyOfGeneration("stl-8472", 2).String(); got != "eef9dd6c-3ad8-5ebe-98e5-23d58044b9af" {
		t.Errorf("second key %s", got)
	}
	seen := map[uuid.UUID]bool{}
	for _, id := range []string{"a", "a:2", "a-2", "a2"} {
		for n := range 4 {
			key := KeyOfGeneration(id, n+1)
			if seen[key] || key.Version() != 5 {
				t.Errorf("key %d of %s: %s", n+1, id, key)
			}
			seen[key] = true
		}
	}
}

// resent is an instruction under its second key before the first send.
func resent(t *testing.T) Instruction {
	t.Helper()
	change, err := policy.Decide(manual(), ruling(DecideResend, StatusNotFound))
	if err != nil {
		t.Fatal(err)
	}
	return change.Next
}

func says(readings ...StatusReading) Statuses { return ruling("", readings...).Said }

func TestSendUnderANewKeyAsksAboutSupersededKeys(t *testing.T) {
	t.Parallel()
	in := resent(t)
	deferred := in
	deferred.Sends, deferred.SendDeferred, deferred.ResendNotAfter = 1, true, long.Add(time.Hour)
	for name, in := range map[string]Instruction{"never sent": in, "retry deferred": deferred} {
		if plan := planFor(in, long); plan != PlanAsk {
			t.Errorf("%s: plan %d, want to ask", name, plan)
		}
	}
	for _, test := range []struct {
		old    StatusReading
		to     State
		follow Plan
		level  slog.Level
	}{
		{StatusNotFound, StateUncertain, PlanSend, slog.LevelInfo},
		{StatusRejected, StateUncertain, PlanSend, slog.LevelInfo},
		{StatusReturned, StateUncertain, PlanSend, slog.LevelInfo},
		{StatusUnknown, StateUncertain, PlanNothing, slog.LevelInfo},
		{StatusPending, StateManual, PlanNothing, LevelCritical},
		{StatusConfirmed, StateManual, PlanNothing, LevelCritical},
		{StatusManual, StateManual, PlanNothing, LevelCritical},
		{StatusAttention, StateManual, PlanNothing, LevelCritical},
	} {
		change, err := policy.AfterStatus(in, says(StatusNotFound, test.old), Interval{long, long})
		if err != nil || change.Next.State != test.to || change.Follow != test.follow || change.Level != test.level {
			t.Errorf("the old key is %s: to %s, follow %d, %v, %v", test.old, change.Next.State, change.Follow, change.Level, err)
		}
		if test.follow == PlanSend && (change.Next.Sends != 1 || !change.Next.FirstSentAt.Equal(long)) {
			t.Errorf("the old key is %s: %+v", test.old, change.Next)
		}
	}
}

func TestTransferUnderASupersededKeyIsManual(t *testing.T) {
	t.Parallel()
	for _, state := range []State{StateUncertain, StateAccepted, StateConfirmed, StateRejected} {
		in := sent(state)
		superseded(1)(&in, nil)
		change, err := policy.AfterStatus(in, says(StatusConfirmed, StatusConfirmed), Interval{long, long})
		if err != nil || change.Next.State != StateManual || change.Level != LevelCritical || change.Reverse {
			t.Errorf("%s: %+v, %v", state, change, err)
		}
		if !strings.Contains(change.Event.Detail, "key 1 is confirmed; the present key is confirmed") {
			t.Errorf("%s: detail %q", state, change.Event.Detail)
		}
	}
}

// The bank can still execute a transfer under the superseded key.
func TestNoReversalWhileASupersededKeyIsUnknown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		state   State
		reading StatusReading
		known   State
	}{
		{StateUncertain, StatusRejected, StateRejected},
		{StateUncertain, StatusReturned, StateReturned},
		{StateAccepted, StatusRejected, StateRejected},
		{StateAccepted, StatusReturned, StateReturned},
		{StateConfirmed, StatusReturned, StateReturned},
	} {
		in := sent(test.state)
		superseded(1)(&in, nil)
		later := Interval{noon.Add(time.Hour), noon.Add(time.Hour)}
		for name, said := range map[string]Statuses{"unknown": says(test.reading, StatusUnknown), "not asked about": says(test.reading)} {
			change, err := policy.AfterStatus(in, said, later)
			if err != nil || change.Reverse || change.Next.State != test.state || change.Next.NextCheckAt.IsZero() {
				t.Errorf("%s, %s, the old key %s: %s, reverse %t, next check %v, %v",
					test.state, test.reading, name, change.Next.State, change.Reverse, change.Next.NextCheckAt, err)
			} else if want := "superseded key 1; the present key is " + test.reading.String(); !strings.Contains(change.Event.Detail, want) {
				t.Errorf("%s: detail %q without %q", test.state, change.Event.Detail, want)
			}
		}
		change, err := policy.AfterStatus(in, says(test.reading, StatusNotFound), later)
		if err != nil || !change.Reverse || change.Next.State != test.known {
			t.Errorf("%s, %s, the old key not found: %s, reverse %t, %v", test.state, test.reading, change.Next.State, change.Reverse, err)
		}
	}
	in := sent(StateConfirmed)
	superseded(1)(&in, nil)
	change, err := policy.AfterStatus(in, says(StatusRejected, StatusUnknown), Interval{long, long})
	if err != nil || change.Next.State != StateManual || change.Level != LevelCritical {
		t.Errorf("confirmed, then rejected: %s, %v, %v; want manual and CRITICAL for an unknown old key", change.Next.State, change.Level, err)
	}
}

func TestSevenDaysCountFromTheNewKey(t *testing.T) {
	t.Parallel()
	in := resent(t)
	for after, want := range map[time.Duration]State{giveUpAfter - 1: StateUncertain, giveUpAfter: StateManual} {
		change, err := policy.AfterStatus(in, says(StatusUnknown, StatusUnknown), Interval{long.Add(after), long.Add(after)})
		if err != nil || change.Next.State != want {
			t.Errorf("after %v: %s, %v; want %s", after, change.Next.State, err, want)
		}
	}
}

// statusBank has one status for each key.
type statusBank struct {
	Bank
	mu   sync.Mutex
	says map[uuid.UUID]StatusReading
	seen []uuid.UUID
}

func (b *statusBank) Status(_ context.Context, r StatusRequest) StatusResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, r.Key)
	reading, known := b.says[r.Key]
	if !known {
		panic("asked about another key")
	}
	return StatusResult{Reading: reading}
}

func TestStatusIsAskedForEveryKey(t *testing.T) {
	t.Parallel()
	in := manual()
	superseded(2)(&in, nil)
	bank := &statusBank{says: map[uuid.UUID]StatusReading{
		KeyOfGeneration("stl-8472", 1): StatusRejected, KeyOfGeneration("stl-8472", 2): StatusNotFound, KeyOfGeneration("stl-8472", 3): StatusPending,
	}}
	want := Statuses{Current: StatusResult{Reading: StatusPending}, Superseded: []StatusResult{{Reading: StatusRejected}, {Reading: StatusNotFound}}}
	if diff := cmp.Diff(want, AskStatuses(t.Context(), bank.Status, in)); diff != "" || len(bank.seen) != 3 {
		t.Errorf("asked %d times (-want +got):\n%s", len(bank.seen), diff)
	}
	bank.says[KeyOfGeneration("stl-8472", 4)] = StatusAttention
	want.Later = []StatusResult{{Reading: StatusAttention}}
	if diff := cmp.Diff(want, AskAllStatuses(t.Context(), bank.Status, in)); diff != "" || len(bank.seen) != 7 {
		t.Errorf("asked %d times in all (-want +got):\n%s", len(bank.seen), diff)
	}
	delete(bank.says, KeyOfGeneration("stl-8472", 1))
	defer func() {
		if recover() == nil {
			t.Error("a panic about an old key did not reach the caller")
		}
	}()
	AskStatuses(t.Context(), bank.Status, in)
}
