package crash

import (
	"strings"
	"testing"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/fakebank"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

func TestRecorderAllowsNothingAfterTheFatalPoint(t *testing.T) {
	t.Parallel()
	kills := 0
	r := &Recorder{fatal: Point{Call: "Commit", At: faultproxy.Answered, N: 2}}
	r.OnKill(func() { kills++ })
	for i, step := range []struct {
		call  string
		at    faultproxy.Stage
		allow bool
	}{
		{"Commit", faultproxy.Requested, true},
		{"Commit", faultproxy.Answered, true},
		{"GET", faultproxy.Answered, true},
		{"Commit", faultproxy.Requested, true},
		{"Commit", faultproxy.Answered, false},
		{"Commit", faultproxy.Requested, false},
		{"GET", faultproxy.Requested, false},
	} {
		if got := r.Allow(step.call, step.at); got != step.allow {
			t.Errorf("step %d, %s: allowed %t, want %t", i, step.call, got, step.allow)
		}
	}
	recorded, killed := r.Points()
	if !killed || kills != 1 || len(recorded) != 5 || recorded[4].String() != "just after Commit 2 was answered" {
		t.Errorf("killed %t, %d times, recorded %v", killed, kills, recorded)
	}
}

func TestCompareBank(t *testing.T) {
	t.Parallel()
	const id = "stl-1"
	key := transfer.InstructionKey(id)
	settled := func(key string) fakebank.Transfer {
		return fakebank.Transfer{ID: "of " + key, Key: key, Settlement: id, AmountMinor: 1, Currency: "EUR", Status: fakebank.Settled}
	}
	current, unknown := settled(key.String()), settled("another")
	for _, test := range []struct {
		name   string
		state  transfer.State
		sends  int64
		ledger []fakebank.Transfer
		want   string // in the only difference; empty: there is none
	}{
		{"nothing executed", transfer.StateUncertain, 1, nil, ""},
		{"executed", transfer.StateConfirmed, 1, []fakebank.Transfer{current}, ""},
		{"executed twice", transfer.StateConfirmed, 1, []fakebank.Transfer{current, current}, "the bank instruction is confirmed"},
		{"reversed and executed", transfer.StateRejected, 1, []fakebank.Transfer{current}, "the bank instruction is rejected"},
		{"sent and not counted", transfer.StateUncertain, 0, nil, "sent 1 times and counted 0"},
		{"unknown key", transfer.StateUncertain, 1, []fakebank.Transfer{unknown}, "no bank instruction has its key"},
	} {
		s := State{
			Snapshot: audit.Snapshot{
				Movements: []settle.Movement{{SettlementID: id, AmountCents: 1, Currency: "EUR"}},
				Instructions: []transfer.Instruction{{
					SettlementID: id, Transfer: transfer.Transfer{Key: key}, State: test.state, Sends: test.sends,
				}},
			},
			Ledger: test.ledger, Requests: map[string]fakebank.Requests{key.String(): {Posts: 1}},
		}
		found := s.CompareBank()
		if test.want == "" && len(found) > 0 || test.want != "" && (len(found) != 1 || !strings.Contains(found[0], test.want)) {
			t.Errorf("%s: %q, want %q", test.name, found, test.want)
		}
	}
}
