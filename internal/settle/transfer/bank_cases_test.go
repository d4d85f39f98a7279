package transfer_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

// scriptedBank gives its answers in order and repeats the last ones.
type scriptedBank struct {
	sends    []transfer.SendClass
	readings []transfer.StatusReading
	sent     []transfer.SendRequest
	asked    int
	composed int
}

// Compose returns different bytes each time, like a later version of the program. The
// stepper has to send the stored bytes.
func (b *scriptedBank) Compose(p payout.Payout, _ uuid.UUID) ([]byte, error) {
	b.composed++
	return fmt.Appendf(nil, "%s, composed %d", p.SettlementID, b.composed), nil
}

func (b *scriptedBank) Send(_ context.Context, r transfer.SendRequest) transfer.SendResult {
	b.sent = append(b.sent, r)
	return transfer.SendResult{Class: b.sends[min(len(b.sent), len(b.sends))-1]}
}

func (b *scriptedBank) Status(context.Context, transfer.StatusRequest) transfer.StatusResult {
	b.asked++
	return transfer.StatusResult{Reading: b.readings[min(b.asked, len(b.readings))-1]}
}

// history delivers a payout, then advances the clock to each next check until none is
// due, at most limit times. It returns the states, one for each change of state, and the
// store's content. It checks the store's invariants after each step.
func history(t *testing.T, bank *scriptedBank, limit int) ([]transfer.State, audit.Snapshot) {
	t.Helper()
	now := noon
	clock := func() time.Time { return now }
	store := memstore.New(clock)
	banking := &transfer.Stepper{
		Store: store, Bank: bank, NewID: uuid.NewString, Now: clock, Log: slog.New(slog.DiscardHandler),
		Policy: transfer.Policy{KeyLifetime: 24 * time.Hour, VisibilityLag: 15 * time.Second, SendTimeout: 20 * time.Second, StatusTimeout: 10 * time.Second},
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
	var states []transfer.State
	for _, e := range all.Events {
		if e.Event.To != e.Event.From {
			states = append(states, e.Event.To)
		}
	}
	return states, all
}

func wantStates(t *testing.T, got []transfer.State, want ...transfer.State) {
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

func TestTimedOutSendThatSucceededIsConfirmed(t *testing.T) {
	t.Parallel()
	bank := &scriptedBank{sends: []transfer.SendClass{transfer.SendUncertain}, readings: []transfer.StatusReading{transfer.StatusUnknown, transfer.StatusConfirmed}}
	states, all := history(t, bank, 50)
	wantStates(t, states, transfer.StateUncertain, transfer.StateConfirmed)
	if len(bank.sent) != 1 || len(all.Reversals) != 0 {
		t.Errorf("%d sends, reversals %+v", len(bank.sent), all.Reversals)
	}
}

// The bank drops keys after 24 hours. A resend after that pays twice.
func TestForgottenKeyIsNeverResent(t *testing.T) {
	t.Parallel()
	unknownForADay := make([]transfer.StatusReading, 9)
	bank := &scriptedBank{sends: []transfer.SendClass{transfer.SendUncertain}, readings: append(unknownForADay, transfer.StatusNotFound)}
	states, all := history(t, bank, 50)
	wantStates(t, states, transfer.StateUncertain, transfer.StateManual)
	if len(bank.sent) != 1 || len(all.Reversals) != 0 {
		t.Errorf("%d sends, reversals %+v", len(bank.sent), all.Reversals)
	}
}

func TestPendingTransferBecomesManualAfterSevenDays(t *testing.T) {
	t.Parallel()
	bank := &scriptedBank{sends: []transfer.SendClass{transfer.SendAccepted}, readings: []transfer.StatusReading{transfer.StatusPending}}
	states, all := history(t, bank, 200)
	wantStates(t, states, transfer.StateUncertain, transfer.StateAccepted, transfer.StateManual)
	if bank.asked < 24 || len(all.Reversals) != 0 {
		t.Errorf("asked %d times, reversals %+v", bank.asked, all.Reversals)
	}
}

func TestLateStatusKeepsFinalStates(t *testing.T) {
	t.Parallel()
	late := []transfer.StatusReading{transfer.StatusConfirmed, transfer.StatusPending, transfer.StatusUnknown, transfer.StatusNotFound, transfer.StatusConfirmed}
	states, _ := history(t, &scriptedBank{sends: []transfer.SendClass{transfer.SendAccepted}, readings: late}, 50)
	wantStates(t, states, transfer.StateUncertain, transfer.StateAccepted, transfer.StateConfirmed)
	late = []transfer.StatusReading{transfer.StatusPending, transfer.StatusNotFound, transfer.StatusReturned, transfer.StatusRejected}
	states, all := history(t, &scriptedBank{sends: []transfer.SendClass{transfer.SendRejected}, readings: late}, 50)
	wantStates(t, states, transfer.StateUncertain, transfer.StateRejected)
	if len(all.Reversals) != 1 {
		t.Errorf("reversals %+v", all.Reversals)
	}
}

func TestReturnedTransferIsReversed(t *testing.T) {
	t.Parallel()
	bank := &scriptedBank{sends: []transfer.SendClass{transfer.SendAccepted}, readings: []transfer.StatusReading{
		transfer.StatusConfirmed, transfer.StatusConfirmed, transfer.StatusConfirmed, transfer.StatusReturned,
	}}
	states, all := history(t, bank, 50)
	wantStates(t, states, transfer.StateUncertain, transfer.StateAccepted, transfer.StateConfirmed, transfer.StateReturned)
	if len(all.Reversals) != 1 || all.Reversals[0].AmountCents != 1 || all.Reversals[0].Reason != "returned" {
		t.Errorf("reversals %+v", all.Reversals)
	}
}

func TestEveryResendHasTheSameKeyAndBytes(t *testing.T) {
	t.Parallel()
	bank := &scriptedBank{sends: []transfer.SendClass{transfer.SendUncertain}, readings: []transfer.StatusReading{transfer.StatusNotFound}}
	states, _ := history(t, bank, 100)
	wantStates(t, states, transfer.StateUncertain, transfer.StateManual)
	if len(bank.sent) != 4 {
		t.Errorf("%d sends, want 4", len(bank.sent))
	}
	for i, r := range bank.sent {
		if r.Key.String() != "bcb7c10c-019a-5ca0-b0b1-23cf6e23a1a6" || string(r.Body) != "stl-8472, composed 1" || r.EarlierMayHaveReached != (i > 0) {
			t.Errorf("send %d: %+v", i+1, r)
		}
	}
}

func TestConfirmedAfterRejectedIsManual(t *testing.T) {
	t.Parallel()
	bank := &scriptedBank{sends: []transfer.SendClass{transfer.SendRejected}, readings: []transfer.StatusReading{transfer.StatusConfirmed}}
	states, all := history(t, bank, 50)
	wantStates(t, states, transfer.StateUncertain, transfer.StateRejected, transfer.StateManual)
	if len(all.Reversals) != 1 {
		t.Errorf("reversals %+v", all.Reversals)
	}
}
