package settle_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/snapshot"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

// scriptedBank answers sends and questions in order, the last ones for ever.
type scriptedBank struct {
	sends    []settle.SendClass
	readings []settle.StatusReading
	sent     []settle.SendRequest
	asked    int
	composed int
}

// Compose makes other bytes each time, as the next version of the program can:
// what is sent has to be what was stored.
func (b *scriptedBank) Compose(p settle.Payout, _ uuid.UUID) ([]byte, error) {
	b.composed++
	return fmt.Appendf(nil, "%s, composed %d", p.SettlementID, b.composed), nil
}

func (b *scriptedBank) Send(_ context.Context, r settle.SendRequest) settle.SendResult {
	b.sent = append(b.sent, r)
	return settle.SendResult{Class: b.sends[min(len(b.sent), len(b.sends))-1]}
}

func (b *scriptedBank) Status(context.Context, settle.StatusRequest) settle.StatusResult {
	b.asked++
	return settle.StatusResult{Reading: b.readings[min(b.asked, len(b.readings))-1]}
}

// history delivers a payout and lets time pass, question by question, until
// nothing is due any more or limit questions were asked. It returns the states,
// one for each change of state, and the store's content, checked after each step.
func history(t *testing.T, bank *scriptedBank, limit int) ([]settle.InstructionState, snapshot.Snapshot) {
	t.Helper()
	now := noon
	clock := func() time.Time { return now }
	store := memstore.New(clock)
	banking := &settle.Stepper{
		Store: store, Bank: bank, NewID: uuid.NewString, Now: clock, Log: slog.New(slog.DiscardHandler),
		Policy: settle.Policy{KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second, SendTimeout: 20 * time.Second, StatusTimeout: 10 * time.Second},
	}
	service := &settle.Service{Store: store, Banking: banking, DefaultCurrency: "USD", NewID: uuid.NewString, Now: clock}
	if _, err := service.Deliver(t.Context(), message(wantsBank)); err != nil {
		t.Fatal(err)
	}
	for range limit {
		in := store.Snapshot().Instructions[0]
		if in.NextCheckAt.IsZero() {
			break
		}
		now = in.NextCheckAt
		if _, err := banking.Step(t.Context(), "stl-8472"); err != nil {
			t.Fatal(err)
		}
		for _, violation := range store.Snapshot().Violations(false) {
			t.Error(violation)
		}
	}
	all := store.Snapshot()
	var states []settle.InstructionState
	for _, e := range all.Events {
		if e.Event.To != e.Event.From {
			states = append(states, e.Event.To)
		}
	}
	return states, all
}

func wantStates(t *testing.T, got []settle.InstructionState, want ...settle.InstructionState) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("states %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("states %v, want %v", got, want)
		}
	}
}

// A time-out was taken for an error and was a success.
func TestATimeoutThatWasASuccessIsConfirmed(t *testing.T) {
	t.Parallel()
	bank := &scriptedBank{sends: []settle.SendClass{settle.SendUncertain}, readings: []settle.StatusReading{settle.StatusUnknown, settle.StatusConfirmed}}
	states, all := history(t, bank, 50)
	wantStates(t, states, settle.InstructionUncertain, settle.InstructionConfirmed)
	if len(bank.sent) != 1 || len(all.Reversals) != 0 {
		t.Errorf("%d sends, reversals %+v", len(bank.sent), all.Reversals)
	}
}

// Every error meant failed, the key was pruned after 24 hours, and the retry was
// a second payout.
func TestAKeyThatTheBankMayHaveForgottenIsNeverSentAgain(t *testing.T) {
	t.Parallel()
	unknownForADay := make([]settle.StatusReading, 9)
	bank := &scriptedBank{sends: []settle.SendClass{settle.SendUncertain}, readings: append(unknownForADay, settle.StatusNotFound)}
	states, all := history(t, bank, 50)
	wantStates(t, states, settle.InstructionUncertain, settle.InstructionManual)
	if len(bank.sent) != 1 || len(all.Reversals) != 0 {
		t.Errorf("%d sends, reversals %+v", len(bank.sent), all.Reversals)
	}
}

// An old pending payment was marked failed without asking.
func TestAnOldPendingTransferIsAskedAboutAndThenManual(t *testing.T) {
	t.Parallel()
	bank := &scriptedBank{sends: []settle.SendClass{settle.SendAccepted}, readings: []settle.StatusReading{settle.StatusPending}}
	states, all := history(t, bank, 200)
	wantStates(t, states, settle.InstructionUncertain, settle.InstructionAccepted, settle.InstructionManual)
	if bank.asked < 24 || len(all.Reversals) != 0 {
		t.Errorf("asked %d times, reversals %+v", bank.asked, all.Reversals)
	}
}

// A late status took a final state back.
func TestALateStatusTakesNoFinalStateBack(t *testing.T) {
	t.Parallel()
	late := []settle.StatusReading{settle.StatusConfirmed, settle.StatusPending, settle.StatusUnknown, settle.StatusNotFound, settle.StatusConfirmed}
	states, _ := history(t, &scriptedBank{sends: []settle.SendClass{settle.SendAccepted}, readings: late}, 50)
	wantStates(t, states, settle.InstructionUncertain, settle.InstructionAccepted, settle.InstructionConfirmed)
	late = []settle.StatusReading{settle.StatusPending, settle.StatusNotFound, settle.StatusReturned, settle.StatusRejected}
	states, all := history(t, &scriptedBank{sends: []settle.SendClass{settle.SendRejected}, readings: late}, 50)
	wantStates(t, states, settle.InstructionUncertain, settle.InstructionRejected)
	if len(all.Reversals) != 1 {
		t.Errorf("reversals %+v", all.Reversals)
	}
}

// A returned transfer was still "completed".
func TestAReturnedTransferIsReversed(t *testing.T) {
	t.Parallel()
	bank := &scriptedBank{sends: []settle.SendClass{settle.SendAccepted}, readings: []settle.StatusReading{
		settle.StatusConfirmed, settle.StatusConfirmed, settle.StatusConfirmed, settle.StatusReturned,
	}}
	states, all := history(t, bank, 50)
	wantStates(t, states, settle.InstructionUncertain, settle.InstructionAccepted, settle.InstructionConfirmed, settle.InstructionReturned)
	if len(all.Reversals) != 1 || all.Reversals[0].AmountCents != 1 || all.Reversals[0].Reason != "returned" {
		t.Errorf("reversals %+v", all.Reversals)
	}
}

// SDKs made a new key or another body for each retry.
func TestEveryResendHasTheSameKeyAndBytes(t *testing.T) {
	t.Parallel()
	bank := &scriptedBank{sends: []settle.SendClass{settle.SendUncertain}, readings: []settle.StatusReading{settle.StatusNotFound}}
	states, _ := history(t, bank, 100)
	wantStates(t, states, settle.InstructionUncertain, settle.InstructionManual)
	if len(bank.sent) != 4 {
		t.Errorf("%d sends, want the first and three more", len(bank.sent))
	}
	for i, r := range bank.sent {
		if r.Key.String() != "bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6" || string(r.Body) != "stl-8472, composed 1" || r.EarlierMayHaveReached != (i > 0) {
			t.Errorf("send %d: %+v", i+1, r)
		}
	}
}

// A bank that executes what it had rejected is a case for a person, at once.
func TestConfirmedAfterRejectedIsManual(t *testing.T) {
	t.Parallel()
	bank := &scriptedBank{sends: []settle.SendClass{settle.SendRejected}, readings: []settle.StatusReading{settle.StatusConfirmed}}
	states, all := history(t, bank, 50)
	wantStates(t, states, settle.InstructionUncertain, settle.InstructionRejected, settle.InstructionManual)
	if len(all.Reversals) != 1 {
		t.Errorf("reversals %+v", all.Reversals)
	}
}
