package snapshot_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/snapshot"
	"github.com/settleonce/settleonce/internal/test/memstore"
	"github.com/settleonce/settleonce/internal/test/storetest"
)

const payout = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR","creditor_account":"cp-19"}`

// settled returns everything of one settlement: an uncertain bank instruction and
// a conflict.
func settled(t *testing.T) snapshot.Snapshot {
	t.Helper()
	store := memstore.New(time.Now)
	for _, message := range []string{payout, strings.Replace(payout, "4731", "4732", 1)} {
		if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, message)); err != nil {
			t.Fatal(err)
		}
	}
	return store.Snapshot()
}

// TestRulesThatADatabaseKeeps are those that no write can break in the schema.
func TestRulesThatADatabaseKeeps(t *testing.T) {
	t.Parallel()
	const parent, once = snapshot.RuleParent, snapshot.RuleOnce
	for _, tt := range []struct {
		name string
		make func(*snapshot.Snapshot)
		want []snapshot.Rule
	}{
		{"nothing", func(*snapshot.Snapshot) {}, nil},
		{"no movement", func(s *snapshot.Snapshot) { s.Movements = nil }, []snapshot.Rule{parent, parent, parent, parent}},
		{"a reversal alone", func(s *snapshot.Snapshot) {
			*s = snapshot.Snapshot{Reversals: []snapshot.Reversal{{SettlementID: "stl-8472"}}}
		}, []snapshot.Rule{parent}},
		{"events without instruction", func(s *snapshot.Snapshot) { s.Instructions = nil }, []snapshot.Rule{snapshot.RuleInstructionWanted, parent}},
		{"moved twice", func(s *snapshot.Snapshot) { s.Movements = append(s.Movements, s.Movements[0]) }, []snapshot.Rule{once}},
		{"two receipts", func(s *snapshot.Snapshot) { s.Receipts = append(s.Receipts, s.Receipts[0]) }, []snapshot.Rule{once}},
		{"two instructions", func(s *snapshot.Snapshot) { s.Instructions = append(s.Instructions, s.Instructions[0]) }, []snapshot.Rule{once}},
		{"a movement that no message says", func(s *snapshot.Snapshot) {
			m := &s.Movements[0]
			m.AccountID = "not an account"
			p, _ := m.Payout()
			m.PayloadHash = p.Hash()
			s.Receipts[0].PayloadHash, s.Conflicts = m.PayloadHash, nil
		}, []snapshot.Rule{snapshot.RuleMovementFields}},
		{"a currency that there is not", func(s *snapshot.Snapshot) {
			m := &s.Movements[0]
			m.Currency = "EUX"
			p, _ := m.Payout()
			p.CurrencyDefaulted = true
			m.PayloadHash = p.Hash()
			s.Receipts[0].PayloadHash, s.Conflicts = m.PayloadHash, nil
			s.Instructions[0].Transfer.Currency = "EUX"
		}, []snapshot.Rule{snapshot.RuleMovementFields}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all := settled(t)
			tt.make(&all)
			var got []snapshot.Rule
			for _, v := range (snapshot.Terms{}).Settlement(all) {
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

func TestReceiptThatHasExpired(t *testing.T) {
	t.Parallel()
	plain := settled(t)
	plain.Movements[0].CreditorAccount, plain.Instructions, plain.Events, plain.Conflicts, plain.Receipts = "", nil, nil, nil, nil
	p, _ := plain.Movements[0].Payout()
	plain.Movements[0].PayloadHash = p.Hash()
	open := settled(t)
	open.Receipts = nil
	for _, tt := range []struct {
		name  string
		of    snapshot.Snapshot
		gone  bool
		wrong bool
	}{
		{"final, past retention", plain, true, false},
		{"final, within retention", plain, false, true},
		{"open, however old", open, true, true},
	} {
		terms := snapshot.Terms{ReceiptGone: func(final time.Time) bool {
			if !final.Equal(plain.Movements[0].RecordedAt) {
				t.Errorf("%s: final at %v, want %v", tt.name, final, plain.Movements[0].RecordedAt)
			}
			return tt.gone
		}}
		found := terms.Settlement(tt.of)
		if (len(found) > 0) != tt.wrong || tt.wrong && found[0].Rule != snapshot.RuleReceiptMissing {
			t.Errorf("%s: %v", tt.name, found)
		}
	}
}

// TestResendWindow compares with the lifetimes that are known.
func TestResendWindow(t *testing.T) {
	t.Parallel()
	all := settled(t)
	in, now := &all.Instructions[0], time.Now()
	in.Sends, in.FirstSentAt, in.LastSentAt, in.ResendNotAfter = 1, now, now, now.Add(settle.ResendWindow(24*time.Hour))
	for _, tt := range []struct {
		lifetimes []time.Duration
		wrong     bool
	}{
		{nil, false},
		{[]time.Duration{24 * time.Hour}, false},
		{[]time.Duration{time.Hour, 24 * time.Hour}, false},
		{[]time.Duration{time.Hour}, true},
	} {
		if found := (snapshot.Terms{KeyLifetimes: tt.lifetimes}).Settlement(all); (len(found) > 0) != tt.wrong {
			t.Errorf("lifetimes %v: %v", tt.lifetimes, found)
		}
	}
}
