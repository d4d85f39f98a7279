package audit_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/memstore"
	"github.com/settleonce/settleonce/internal/test/storetest"
)

const payoutJSON = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR","creditor_account":"cp-19"}`

// settled returns a settlement with an uncertain bank instruction and a conflict.
func settled(t *testing.T) audit.Snapshot {
	t.Helper()
	store := memstore.New(time.Now)
	for _, message := range []string{payoutJSON, strings.Replace(payoutJSON, "4731", "4732", 1)} {
		if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, message)); err != nil {
			t.Fatal(err)
		}
	}
	return store.Snapshot()
}

// TestRulesThatTheSchemaKeeps has rows that the schema rules out.
func TestRulesThatTheSchemaKeeps(t *testing.T) {
	t.Parallel()
	const parent, once = audit.RuleParent, audit.RuleOnce
	for _, tt := range []struct {
		name string
		make func(*audit.Snapshot)
		want []audit.Rule
	}{
		{"nothing", func(*audit.Snapshot) {}, nil},
		{"no movement", func(s *audit.Snapshot) { s.Movements = nil }, []audit.Rule{parent, parent, parent, parent}},
		{"a reversal alone", func(s *audit.Snapshot) {
			*s = audit.Snapshot{Reversals: []spannerstore.ReversalRow{{SettlementID: "stl-8472"}}}
		}, []audit.Rule{parent}},
		{"events without instruction", func(s *audit.Snapshot) { s.Instructions = nil }, []audit.Rule{audit.RuleInstructionWanted, parent}},
		{"moved twice", func(s *audit.Snapshot) { s.Movements = append(s.Movements, s.Movements[0]) }, []audit.Rule{once}},
		{"two receipts", func(s *audit.Snapshot) { s.Receipts = append(s.Receipts, s.Receipts[0]) }, []audit.Rule{once}},
		{"two instructions", func(s *audit.Snapshot) { s.Instructions = append(s.Instructions, s.Instructions[0]) }, []audit.Rule{once}},
		{"a movement that no message can express", func(s *audit.Snapshot) {
			m := &s.Movements[0]
			m.AccountID = "not an account"
			p, _ := m.Payout()
			m.PayloadHash = p.Hash()
			s.Receipts[0].PayloadHash, s.Conflicts = m.PayloadHash, nil
		}, []audit.Rule{audit.RuleMovementFields}},
		{"an unknown currency", func(s *audit.Snapshot) {
			m := &s.Movements[0]
			m.Currency = "EUX"
			p, _ := m.Payout()
			p.CurrencyDefaulted = true
			m.PayloadHash = p.Hash()
			s.Receipts[0].PayloadHash, s.Conflicts = m.PayloadHash, nil
			s.Instructions[0].Transfer.Currency = "EUX"
		}, []audit.Rule{audit.RuleMovementFields}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all := settled(t)
			tt.make(&all)
			var got []audit.Rule
			for _, v := range (audit.Terms{}).Settlement("stl-8472", all) {
				got = append(got, v.Rule)
				if v.SettlementID != "stl-8472" {
					t.Errorf("violation of settlement %q", v.SettlementID)
				}
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			if lines := all.Violations(false); len(lines) < len(tt.want) {
				t.Errorf("the whole state's violations are %q", lines)
			}
		})
	}
}

// TestReceiptThatHasExpired: the retention counts from the settling, also of a payout
// whose bank instruction is open.
func TestReceiptThatHasExpired(t *testing.T) {
	t.Parallel()
	all := settled(t)
	all.Receipts = nil
	for _, gone := range []bool{true, false} {
		terms := audit.Terms{ReceiptGone: func(recorded time.Time) bool {
			if !recorded.Equal(all.Movements[0].RecordedAt) {
				t.Errorf("recorded at %v, want %v", recorded, all.Movements[0].RecordedAt)
			}
			return gone
		}}
		found := terms.Settlement("stl-8472", all)
		if (len(found) > 0) == gone || !gone && found[0].Rule != audit.RuleReceiptMissing {
			t.Errorf("past the retention %t: %v", gone, found)
		}
	}
}

func TestResendWindow(t *testing.T) {
	t.Parallel()
	all := settled(t)
	in, now := &all.Instructions[0], time.Now()
	in.Sends, in.FirstSentAt, in.LastSentAt, in.ResendNotAfter = 1, now, now, now.Add(transfer.ResendWindow(24*time.Hour))
	for _, tt := range []struct {
		lifetimes []time.Duration
		wrong     bool
	}{
		{nil, false},
		{[]time.Duration{24 * time.Hour}, false},
		{[]time.Duration{time.Hour, 24 * time.Hour}, false},
		{[]time.Duration{time.Hour}, true},
	} {
		if found := (audit.Terms{KeyLifetimes: tt.lifetimes}).Settlement("stl-8472", all); (len(found) > 0) != tt.wrong {
			t.Errorf("lifetimes %v: %v", tt.lifetimes, found)
		}
	}
}
