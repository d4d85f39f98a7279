package transfer

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

var (
	sendObservations   = []observation{sawUncertain, sawNotSent, sawAccepted, sawRefused, sawHeld, sawRetryLater, sawOtherTransfer}
	decided            = []observation{sawDecidedConfirmed, sawDecidedRejected, sawDecidedReturned}
	statusObservations = []observation{sawUnknown, sawNotFound, sawPending, sawConfirmed, sawRejected, sawReturned, sawMismatch, sawAttention}
	states             = []State{
		StateUncertain, StateAccepted, StateConfirmed, StateRejected, StateReturned, StateManual,
	}
)

var (
	noon   = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	policy = Policy{KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second, SendTimeout: 20 * time.Second}
)

// sent is an instruction that was sent at noon.
func sent(state State) Instruction {
	in := *NewInstruction(payout.Payout{SettlementID: "stl-8472", AmountCents: 1, Currency: "USD", CreditorAccount: "c"}, nil, noon)
	in.CreatedAt = noon
	policy.countSend(&in, noon)
	hold(&in, "owner", noon)
	in.State = state
	if state.Final() {
		in.FinalAt = noon
	}
	if state == StateAccepted {
		in.AcceptedAt = noon
	}
	return in
}

// sentAt and askedAt are exchanges without a duration.
func sentAt(in Instruction, r SendResult, now time.Time) (Change, error) {
	return policy.AfterSend(in, r, Interval{now, now})
}

func askedAt(in Instruction, r StatusResult, now time.Time) (Change, error) {
	return policy.AfterStatus(in, r, Interval{now, now})
}

// A status request that began during the send proves nothing. The lag counts from the
// end of the first not-found to the beginning of the second.
func TestNotFoundIntervalUsesTheLaterEnd(t *testing.T) {
	t.Parallel()
	in := sent(StateUncertain)
	interval := func(from, to int) Interval {
		return Interval{noon.Add(time.Duration(from) * time.Second), noon.Add(time.Duration(to) * time.Second)}
	}
	for _, test := range []struct {
		took   Interval
		resend bool
	}{{interval(34, 44), false}, {interval(50, 60), false}, {interval(74, 80), false}, {interval(75, 80), true}} {
		change, err := policy.AfterStatus(in, StatusResult{Reading: StatusNotFound}, test.took)
		if err != nil || (change.Follow == PlanSend) != test.resend {
			t.Errorf("asked %v to %v after the send: %v, follow %d", test.took.Began.Sub(noon), test.took.Ended.Sub(noon), err, change.Follow)
		}
		in = change.Next
	}
}

func TestKeyLifetimeEndsDuringAStatusRequest(t *testing.T) {
	t.Parallel()
	in := sent(StateUncertain)
	in.NotFoundSince = noon.Add(time.Hour)
	change, err := policy.AfterStatus(in, StatusResult{Reading: StatusNotFound}, Interval{in.ResendNotAfter.Add(-time.Second), in.ResendNotAfter})
	if err != nil || change.Next.State != StateManual {
		t.Errorf("%+v, %v; want manual", change, err)
	}
}

func TestNotFoundCountsFromTheLatestStartOfAnAbandonedSend(t *testing.T) {
	t.Parallel()
	taken, err := policy.Claim(sent(StateUncertain), "second", noon.Add(lease))
	if want := noon.Add(lease - policy.SendTimeout); err != nil || !taken.Next.LastSentAt.Equal(want) {
		t.Errorf("last sent at %v, %v; want %v", taken.Next.LastSentAt, err, want)
	}
}

func TestNotFoundWithRetryAfterDelaysTheResend(t *testing.T) {
	t.Parallel()
	in := sent(StateUncertain)
	in.NotFoundSince = noon.Add(40 * time.Second)
	now := noon.Add(2 * time.Minute)
	change, err := askedAt(in, StatusResult{Reading: StatusNotFound, Answer: BankAnswer{RetryAfter: time.Hour}}, now)
	if err != nil || change.Follow != PlanNothing || change.Next.NextCheckAt.Before(now.Add(time.Hour)) {
		t.Fatalf("%+v, %v; want to wait", change, err)
	}
	if plan := planFor(change.Next, change.Next.NextCheckAt); plan != PlanSend {
		t.Errorf("plan %d, want to send", plan)
	}
}

func TestEveryObservationHasATransition(t *testing.T) {
	t.Parallel()
	asked := map[State]bool{StateUncertain: true, StateAccepted: true, StateConfirmed: true, StateRejected: true}
	for _, state := range states {
		for _, saw := range sendObservations {
			if _, ok := policy.transition(sent(state), saw, Interval{noon, noon}); ok != (state == StateUncertain) {
				t.Errorf("%s after a send, observation %d: transition %t", state, saw, ok)
			}
		}
		for _, saw := range statusObservations {
			if _, ok := policy.transition(sent(state), saw, Interval{noon, noon}); ok != asked[state] {
				t.Errorf("%s after a status request, observation %d: transition %t", state, saw, ok)
			}
		}
		for _, saw := range decided {
			if _, ok := policy.transition(sent(state), saw, Interval{noon, noon}); ok != (state == StateManual) {
				t.Errorf("%s after a decision, observation %d: transition %t", state, saw, ok)
			}
		}
	}
}

// TestTransitionsMatchTheStateContract compares the table with the comments of the
// states.
func TestTransitionsMatchTheStateContract(t *testing.T) {
	t.Parallel()
	reached := map[State]map[State]bool{}
	for _, row := range transitions {
		if reached[row.from] == nil {
			reached[row.from] = map[State]bool{}
		}
		reached[row.from][row.to] = true
		if row.to == StateConfirmed && row.from != StateConfirmed && row.on != sawConfirmed && row.on != sawDecidedConfirmed {
			t.Errorf("%s becomes confirmed without the status API or a decision", row.from)
		}
		if row.to.reverses() && row.to != row.from && (row.on == sawNotFound || row.on == sawUnknown || row.on == sawUncertain) {
			t.Errorf("%s is reversed after observation %d, which proves nothing", row.from, row.on)
		}
		if row.resend && (row.from != StateUncertain || row.on != sawNotFound || row.guard == nil) {
			t.Errorf("resend from %s after observation %d", row.from, row.on)
		}
		if row.critical && row.to != StateManual {
			t.Errorf("critical, but %s becomes %s", row.from, row.to)
		}
	}
	set := func(states ...State) map[State]bool {
		m := map[State]bool{}
		for _, s := range states {
			m[s] = true
		}
		return m
	}
	want := map[State]map[State]bool{
		StateUncertain: set(StateUncertain, StateAccepted, StateConfirmed, StateRejected, StateReturned, StateManual),
		StateAccepted:  set(StateAccepted, StateConfirmed, StateRejected, StateReturned, StateManual),
		StateConfirmed: set(StateConfirmed, StateReturned, StateManual),
		StateRejected:  set(StateRejected, StateManual),
		StateManual:    set(StateConfirmed, StateRejected, StateReturned),
	}
	if diff := cmp.Diff(want, reached); diff != "" {
		t.Errorf("states reached (-want +got):\n%s", diff)
	}
}

func TestResendNeedsTwoNotFounds(t *testing.T) {
	t.Parallel()
	allowed := func() (Instruction, time.Time) {
		in := sent(StateUncertain)
		in.NotFoundSince = noon.Add(40 * time.Second)
		return in, noon.Add(2 * time.Minute)
	}
	for _, test := range []struct {
		name   string
		change func(in *Instruction, now *time.Time)
		resend bool
		to     State
	}{
		{"all conditions hold", func(*Instruction, *time.Time) {}, true, StateUncertain},
		{"not found once", func(in *Instruction, _ *time.Time) { in.NotFoundSince = time.Time{} }, false, StateUncertain},
		{"not found twice within the lag", func(in *Instruction, now *time.Time) { in.NotFoundSince = now.Add(-14 * time.Second) }, false, StateUncertain},
		{"not found twice at the lag", func(in *Instruction, now *time.Time) { in.NotFoundSince = now.Add(-15 * time.Second) }, true, StateUncertain},
		{"send possibly in progress", func(in *Instruction, now *time.Time) { in.LastSentAt = now.Add(-34 * time.Second) }, false, StateUncertain},
		{"the third resend", func(in *Instruction, _ *time.Time) { in.Sends = 3 }, true, StateUncertain},
		{"a fourth resend", func(in *Instruction, _ *time.Time) { in.Sends = 4 }, false, StateUncertain},
		{"just before the end of the resend window", func(in *Instruction, now *time.Time) { *now = in.ResendNotAfter.Add(-time.Nanosecond) }, true, StateUncertain},
		{"at the end of the resend window", func(in *Instruction, now *time.Time) { *now = in.ResendNotAfter }, false, StateManual},
		{"accepted before", func(in *Instruction, _ *time.Time) { in.State = StateAccepted }, false, StateManual},
	} {
		in, now := allowed()
		test.change(&in, &now)
		change, err := askedAt(in, StatusResult{Reading: StatusNotFound}, now)
		if err != nil {
			t.Fatal(err)
		}
		if resend := change.Follow == PlanSend; resend != test.resend || change.Next.State != test.to {
			t.Errorf("%s: resend %t to %s, want %t to %s", test.name, resend, change.Next.State, test.resend, test.to)
		}
		if test.resend && (change.Next.Sends != in.Sends+1 || !change.Next.LastSentAt.Equal(now) || !change.Next.FirstSentAt.Equal(noon) || change.Next.Owner != in.Owner) {
			t.Errorf("%s: next %+v", test.name, change.Next)
		}
		if change.Reverse {
			t.Errorf("%s: reversed the movement", test.name)
		}
	}
}

func TestResendNotAfterIsFourFifthsOfTheKeysLife(t *testing.T) {
	t.Parallel()
	if got, want := sent(StateUncertain).ResendNotAfter, noon.Add(19*time.Hour+12*time.Minute); !got.Equal(want) {
		t.Errorf("resend_not_after %v, want %v", got, want)
	}
}

// The bank never gives a clear answer.
func TestStatusCheckIntervals(t *testing.T) {
	t.Parallel()
	in, now := sent(StateUncertain), noon
	change, err := sentAt(in, SendResult{}, now)
	if err != nil {
		t.Fatal(err)
	}
	if wait := change.Next.NextCheckAt.Sub(now); wait != 15*time.Second {
		t.Errorf("first check after %v", wait)
	}
	for n := 0; change.Next.State == StateUncertain; n++ {
		now = change.Next.NextCheckAt
		if change, err = askedAt(change.Next, StatusResult{}, now); err != nil {
			t.Fatal(err)
		}
		if change.Next.State == StateManual {
			break
		}
		want := pace[min(n, len(pace)-1)]
		if wait := change.Next.NextCheckAt.Sub(now); wait < want*4/5 || wait > want*6/5 {
			t.Errorf("check %d after %v, want %v ± a fifth", n+2, wait, want)
		}
	}
	if now.Before(noon.Add(7*24*time.Hour)) || now.After(noon.Add(9*24*time.Hour)) || !change.Next.NextCheckAt.IsZero() {
		t.Errorf("manual %v after the send, next check %v", now.Sub(noon), change.Next.NextCheckAt)
	}
}

func TestRetryAfterDelaysTheNextCheck(t *testing.T) {
	t.Parallel()
	answer := BankAnswer{RetryAfter: 3 * time.Hour}
	for name, ask := range map[string]func() (Change, error){
		"send": func() (Change, error) {
			return sentAt(sent(StateUncertain), SendResult{Class: SendRetryLater, Answer: answer}, noon)
		},
		"503": func() (Change, error) {
			return sentAt(sent(StateUncertain), SendResult{Answer: answer}, noon)
		},
		"status": func() (Change, error) {
			return askedAt(sent(StateAccepted), StatusResult{Answer: answer}, noon)
		},
	} {
		change, err := ask()
		if err != nil || change.Next.NextCheckAt.Before(noon.Add(3*time.Hour)) {
			t.Errorf("%s: %v, next check after %v", name, err, change.Next.NextCheckAt.Sub(noon))
		}
	}
}

func TestUnsentSendsAreNotCounted(t *testing.T) {
	t.Parallel()
	first := sent(StateUncertain)
	change, err := sentAt(first, SendResult{Class: SendNotSent}, noon)
	if err != nil || change.Next.Sends != 0 || !change.Next.FirstSentAt.IsZero() || !change.Next.ResendNotAfter.IsZero() {
		t.Errorf("not sent: %v, %+v", err, change.Next)
	}
	if plan := planFor(change.Next, change.Next.NextCheckAt); plan != PlanSend {
		t.Errorf("not sent: plan %d, want to send without asking", plan)
	}
	resent := first
	resent.Sends, resent.LastSentAt = 2, noon.Add(time.Hour)
	change, err = sentAt(resent, SendResult{Class: SendNotSent}, noon)
	if err != nil || change.Next.Sends != 1 || change.Next.FirstSentAt.IsZero() {
		t.Errorf("resend not sent: %v, %+v", err, change.Next)
	}
	if plan := planFor(change.Next, change.Next.NextCheckAt); plan != PlanAsk {
		t.Errorf("resend not sent: plan %d, want to ask", plan)
	}
}

func TestRetryLaterResendsWithoutAsking(t *testing.T) {
	t.Parallel()
	change, err := sentAt(sent(StateUncertain), SendResult{Class: SendRetryLater}, noon)
	if err != nil || change.Next.Sends != 1 || !change.Next.FirstSentAt.Equal(noon) {
		t.Fatalf("%v, %+v; want the send to stay counted", err, change.Next)
	}
	next := change.Next
	if plan := planFor(next, next.NextCheckAt); plan != PlanSend {
		t.Errorf("plan %d, want to send without asking", plan)
	}
	forgotten := next
	forgotten.NextCheckAt = next.ResendNotAfter
	if plan := planFor(forgotten, next.ResendNotAfter); plan != PlanAsk {
		t.Errorf("the key may be forgotten: plan %d, want to ask", plan)
	}
	often := next
	often.Sends = 1 + maxResends
	if plan := planFor(often, next.NextCheckAt); plan != PlanAsk {
		t.Errorf("after %d sends: plan %d, want to ask", often.Sends, plan)
	}
	held, err := policy.Claim(next, "second", next.NextCheckAt)
	if err != nil || held.Next.SendDeferred || held.Next.Sends != 2 {
		t.Errorf("claimed %+v, %v", held.Next, err)
	}
}

func TestNotFoundDuringASendIsIgnored(t *testing.T) {
	t.Parallel()
	for after, remembered := range map[time.Duration]bool{34 * time.Second: false, 35 * time.Second: true} {
		change, err := askedAt(sent(StateUncertain), StatusResult{Reading: StatusNotFound}, noon.Add(after))
		if err != nil || !change.Next.NotFoundSince.IsZero() != remembered {
			t.Errorf("after %v: %v, not found since %v", after, err, change.Next.NotFoundSince)
		}
	}
}

func TestLogLevelOfChanges(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func() (Change, error)
		want   slog.Level
	}{
		{"accepted", func() (Change, error) {
			return sentAt(sent(StateUncertain), SendResult{Class: SendAccepted}, noon)
		}, slog.LevelInfo},
		{"held", func() (Change, error) {
			return sentAt(sent(StateUncertain), SendResult{Class: SendHeld}, noon)
		}, slog.LevelError},
		{"unknown word", func() (Change, error) {
			return askedAt(sent(StateAccepted), StatusResult{Reading: StatusPending, Answer: BankAnswer{Detail: "unknown word"}}, noon)
		}, slog.LevelWarn},
		{"attention", func() (Change, error) {
			return askedAt(sent(StateAccepted), StatusResult{Reading: StatusAttention}, noon)
		}, slog.LevelError},
		{"another transfer", func() (Change, error) {
			return askedAt(sent(StateAccepted), StatusResult{Reading: StatusManual}, noon)
		}, LevelCritical},
		{"executed after rejected", func() (Change, error) {
			return askedAt(sent(StateRejected), StatusResult{Reading: StatusConfirmed}, noon)
		}, LevelCritical},
	} {
		if change, err := test.change(); err != nil || change.Level != test.want {
			t.Errorf("%s: %v, %v; want %v", test.name, change.Level, err, test.want)
		}
	}
}

func TestCheckIntervalsGrowWithAge(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		state State
		age   time.Duration
		want  time.Duration
	}{
		{StateAccepted, time.Hour, time.Hour},
		{StateAccepted, 25 * time.Hour, 6 * time.Hour},
		{StateAccepted, 5*24*time.Hour + time.Minute, 24 * time.Hour},
		{StateConfirmed, time.Hour, 24 * time.Hour},
		{StateConfirmed, 10*24*time.Hour - time.Minute, 24 * time.Hour},
		{StateConfirmed, 10 * 24 * time.Hour, 0},
		{StateRejected, time.Hour, 24 * time.Hour},
	} {
		now := noon.Add(test.age)
		change, err := askedAt(sent(test.state), StatusResult{}, now)
		if err != nil {
			t.Fatal(err)
		}
		if test.want == 0 {
			if !change.Next.NextCheckAt.IsZero() {
				t.Errorf("%s after %v: asked again at %v", test.state, test.age, change.Next.NextCheckAt)
			}
			continue
		}
		if wait := change.Next.NextCheckAt.Sub(now); wait < test.want*4/5 || wait > test.want*6/5 {
			t.Errorf("%s after %v: asked again after %v, want %v", test.state, test.age, wait, test.want)
		}
	}
}

func TestClaimedInstructionIsDueWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	in := *NewInstruction(payout.Payout{SettlementID: "stl-8472"}, nil, noon)
	in.CreatedAt = noon
	held, err := policy.Claim(in, "first", noon)
	if err != nil || held.Follow != PlanSend {
		t.Fatalf("%+v, %v", held, err)
	}
	if _, err := policy.Claim(held.Next, "second", noon.Add(lease-time.Nanosecond)); err == nil {
		t.Error("claimed under another's lease")
	}
	taken, err := policy.Claim(held.Next, "second", noon.Add(lease))
	if err != nil || taken.Follow != PlanAsk || taken.Event != nil || taken.Next.Version != held.Next.Version {
		t.Errorf("taken over: %+v, %v; want to ask under a lease", taken, err)
	}
}

// An operator can make an instruction due before its lease ends. The lease still holds.
func TestClaimRespectsTheLeaseOfADueInstruction(t *testing.T) {
	t.Parallel()
	in := sent(StateUncertain)
	in.NextCheckAt = noon
	if held, err := policy.Claim(in, "second", noon.Add(lease-time.Nanosecond)); !errors.Is(err, ErrNotDue) {
		t.Errorf("claimed under another's lease: %+v, %v", held, err)
	}
	if held, err := policy.Claim(in, "second", noon.Add(lease)); err != nil || held.Follow != PlanAsk {
		t.Errorf("the lease has ended: %+v, %v; want to ask", held, err)
	}
}

// Neither the owner nor the version alone proves that the step still holds the
// instruction.
func TestApplyIfHeldNeedsOwnerAndVersion(t *testing.T) {
	t.Parallel()
	held := sent(StateUncertain)
	held.Version = 5
	seen, err := sentAt(held, SendResult{Class: SendAccepted}, noon)
	if err != nil || seen.Next.Version != 6 {
		t.Fatalf("%+v, %v", seen, err)
	}
	for _, test := range []struct {
		name    string
		owner   string
		version int64
		write   bool
		err     error
	}{
		{"unchanged", "owner", 5, true, nil},
		{"own change after a lost answer", "owner", 6, false, nil},
		{"leased to another step", "other", 5, false, ErrLeaseLost},
		{"changed by another step", "other", 6, false, ErrLeaseLost},
		{"changed twice by another step", "other", 7, false, ErrLeaseLost},
		{"a later version", "owner", 7, false, ErrLeaseLost},
		{"an earlier version", "owner", 4, false, ErrLeaseLost},
	} {
		stored := held
		stored.Owner, stored.Version = test.owner, test.version
		if change, err := applyIfHeld(stored, held, seen); !errors.Is(err, test.err) || change.Write != test.write {
			t.Errorf("%s: write %t, %v; want %t, %v", test.name, change.Write, err, test.write, test.err)
		}
	}
}

func TestJitterIsAFifthAtMost(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for checks := range int64(100) {
		got := jitter(time.Hour, Instruction{SettlementID: "stl-8472", Checks: checks})
		if got < 48*time.Minute || got > 72*time.Minute {
			t.Errorf("%v", got)
		}
		seen[got] = true
	}
	if len(seen) < 90 {
		t.Errorf("only %d different waits of 100", len(seen))
	}
}

// A resend with a different configured key lifetime, such as settlectl's, does not change
// the window.
func TestResendWindowIsFixedByTheFirstSend(t *testing.T) {
	t.Parallel()
	for _, life := range []time.Duration{policy.KeyLifetime / 2, policy.KeyLifetime * 2} {
		in := sent(StateUncertain)
		in.NotFoundSince, in.LeaseUntil = noon.Add(time.Minute), time.Time{}
		other := policy
		other.KeyLifetime = life
		at := noon.Add(time.Hour)
		change, err := other.AfterStatus(in, StatusResult{Reading: StatusNotFound}, Interval{at, at})
		if err != nil || change.Follow != PlanSend || !change.Next.ResendNotAfter.Equal(in.ResendNotAfter) || !change.Next.FirstSentAt.Equal(noon) {
			t.Errorf("resent with key lifetime %v: %v, first at %v, not after %v", life, err, change.Next.FirstSentAt, change.Next.ResendNotAfter)
		}
	}
}
