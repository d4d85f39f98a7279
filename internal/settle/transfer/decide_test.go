package transfer

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// long is a time at which the bank has forgotten a key that was sent at noon.
var long = noon.Add(policy.KeyLifetime + 3*time.Hour)

// manual is a manual instruction that was sent at noon.
func manual() Instruction {
	in := sent(StateManual)
	in.LeaseUntil, in.NextCheckAt, in.Version = time.Time{}, time.Time{}, 5
	return in
}

func ruling(d Decision, said StatusReading) Ruling {
	return Ruling{
		ID: "ruling", Decision: d, By: "Ines", Second: "Bert", Note: "letter of the bank, 2026-11-30", Version: 5, Took: Interval{long, long},
		Said: StatusResult{Reading: said, Answer: BankAnswer{HTTPStatus: 200}},
	}
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
	for _, test := range []struct {
		name    string
		d       Decision
		said    StatusReading
		change  func(r *Ruling)
		refused bool
	}{
		{"confirmed, and reversed", DecideConfirmed, StatusConfirmed, func(r *Ruling) { r.Reversed = true }, true},
		{"rejected during the send", DecideRejected, StatusNotFound, func(r *Ruling) { r.Took = Interval{noon.Add(34 * time.Second), noon.Add(time.Minute)} }, true},
		{"rejected after the send", DecideRejected, StatusNotFound, func(r *Ruling) { r.Took = Interval{noon.Add(35 * time.Second), noon.Add(time.Minute)} }, false},
		{"confirmed without the bank", DecideConfirmed, StatusUnknown, func(r *Ruling) { r.WithoutBank = true }, false},
		{"rejected without the bank", DecideRejected, StatusUnknown, func(r *Ruling) { r.WithoutBank = true }, false},
		{"rejected without the bank, which answers", DecideRejected, StatusConfirmed, func(r *Ruling) { r.WithoutBank = true }, true},
	} {
		r := ruling(test.d, test.said)
		test.change(&r)
		change, err := policy.Decide(manual(), r)
		if test.refused {
			wantRefused(t, test.name, change, err)
		} else if err != nil {
			t.Errorf("%s: %v", test.name, err)
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
