package crash

import (
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/fakebank"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

// TestAWireIsCutAtTheFatalMoment: what comes later is lost, whoever sends it.
func TestAWireIsCutAtTheFatalMoment(t *testing.T) {
	t.Parallel()
	kills := 0
	w := &Wire{fatal: Moment{What: "Commit", At: faultproxy.Answered, N: 2}}
	w.Leads(func() { kills++ })
	for i, pass := range []bool{true, true, true, true, false, false, false} {
		what := []string{"Commit", "Commit", "GET", "Commit", "Commit", "Commit", "GET"}[i]
		at := []faultproxy.Stage{faultproxy.Requested, faultproxy.Answered, faultproxy.Answered, faultproxy.Requested, faultproxy.Answered, faultproxy.Requested, faultproxy.Requested}[i]
		if got := w.Pass(what, at); got != pass {
			t.Errorf("%d, %s: passes %t, want %t", i, Moment{What: what, At: at}, got, pass)
		}
	}
	seen, killed := w.All()
	if !killed || kills != 1 || len(seen) != 5 || seen[4].String() != "just after Commit 2 was answered" {
		t.Errorf("killed %t, %d times, seen %v", killed, kills, seen)
	}
}

// TestBooksKnowEveryKey: an instruction that was sent again under a new key is one
// transfer at most, whichever of its keys it has.
func TestBooksKnowEveryKey(t *testing.T) {
	t.Parallel()
	const id = "stl-1"
	paid := func(key, status string) fakebank.Transfer {
		return fakebank.Transfer{ID: "of " + key, Key: key, Settlement: id, AmountMinor: 1, Currency: "EUR", Status: status}
	}
	first, second := transfer.InstructionKey(id), transfer.KeyOfGeneration(id, 2)
	for _, test := range []struct {
		name   string
		state  transfer.State
		sends  int64
		ledger []fakebank.Transfer
		want   string // in the only disagreement; empty: there is none
	}{
		{"nothing sent", transfer.StateUncertain, 1, nil, ""},
		{"paid under the new key", transfer.StateConfirmed, 1, []fakebank.Transfer{paid(second.String(), fakebank.Settled)}, ""},
		{"paid under the old key", transfer.StateConfirmed, 1, []fakebank.Transfer{paid(first.String(), fakebank.Settled)}, ""},
		{"paid under both", transfer.StateConfirmed, 1, []fakebank.Transfer{paid(first.String(), fakebank.Settled), paid(second.String(), fakebank.Settled)}, "the instruction is confirmed"},
		{"reversed and paid under the old key", transfer.StateRejected, 1, []fakebank.Transfer{paid(first.String(), fakebank.Settled)}, "the instruction is rejected"},
		{"sent and not counted", transfer.StateUncertain, 0, nil, "sent 1 times and counted 0"},
		{"of nobody", transfer.StateUncertain, 1, []fakebank.Transfer{paid("another", fakebank.Settled)}, "there is no such instruction"},
	} {
		b := Books{
			Snapshot: audit.Snapshot{
				Movements: []settle.Movement{{SettlementID: id, AmountCents: 1, Currency: "EUR"}},
				Instructions: []transfer.Instruction{{
					SettlementID: id, Transfer: transfer.Transfer{Key: second}, State: test.state, Sends: test.sends,
					Superseded: []transfer.SupersededKey{{Key: first, At: time.Unix(1, 0)}},
				}},
			},
			Ledger: test.ledger, Requests: map[string]fakebank.Requests{second.String(): {Posts: 1}},
		}
		found := b.Disagreements()
		if test.want == "" && len(found) > 0 || test.want != "" && (len(found) != 1 || !strings.Contains(found[0], test.want)) {
			t.Errorf("%s: %q, want %q", test.name, found, test.want)
		}
	}
}
