package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/storetest"
	"github.com/settleonce/settleonce/schema"
)

// world is a test's database, and the store that fills it.
type world struct {
	t     *testing.T
	store *spannerstore.Store
	Reader
}

func newWorld(t *testing.T) *world {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	name := emulatortest.Database(t, statements)
	client, err := spanner.NewClientWithConfig(t.Context(), name, spanner.ClientConfig{DisableNativeMetrics: true}, emulatortest.Spanner(t).ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	store, err := spannerstore.Open(t.Context(), spannerstore.Config{Database: name, Emulator: true, Options: emulatortest.Spanner(t).ClientOptions()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return &world{t: t, store: store, Reader: Reader{Client: client}}
}

// settle settles a message and returns the settlement's commit timestamp.
func (w *world) settle(message string) time.Time {
	w.t.Helper()
	result, err := w.store.Settle(w.t.Context(), storetest.NewSettlement(w.t, message))
	if err != nil {
		w.t.Fatal(err)
	}
	return result.AppliedAt
}

func (w *world) apply(rows ...*spanner.Mutation) time.Time {
	w.t.Helper()
	at, err := w.Client.Apply(w.t.Context(), rows)
	if err != nil {
		w.t.Fatal(err)
	}
	return at
}

// ids collects a list.
func ids(t *testing.T, found iter.Seq2[Entry, error], id func(Entry) string) []string {
	t.Helper()
	all := []string{}
	for e, err := range found {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, id(e))
	}
	return all
}

func conflictID(e Entry) string {
	return e.Conflict.SettlementID + " " + strings.Join(e.Conflict.Fields, ",")
}
func movementID(e Entry) string { return e.Movement.SettlementID }

// TestListIsInOrderAcrossPages lists rows of many shards, many with the same commit
// timestamp.
func TestListIsInOrderAcrossPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var rows []*spanner.Mutation
	for i := range 40 {
		id := fmt.Sprintf("stl-%02d", i)
		rows = append(rows, movementRow(id))
		for hash := range 1 + i%3 {
			rows = append(rows, conflictRow(id, fmt.Sprintf("v1:%d", hash), time.Unix(int64(i/10), 0)))
		}
	}
	w.apply(rows...)
	for _, page := range []int{1, 2, 7, 1000} {
		w.page = page
		var at []time.Time
		seen := map[string]int{}
		for e, err := range w.Conflicts(t.Context(), Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, e.Conflict.SeenAt)
			seen[e.Conflict.SettlementID+string(e.Conflict.PayloadHash)]++
		}
		if len(at) != 79 || len(seen) != 79 {
			t.Errorf("pages of %d: %d entries, %d of them different; want 79", page, len(at), len(seen))
		}
		if !slices.IsSortedFunc(at, func(a, b time.Time) int { return b.Compare(a) }) {
			t.Errorf("pages of %d: not the newest first: %v", page, at)
		}
		if found := ids(t, w.Conflicts(t.Context(), Filter{Limit: 30}), conflictID); len(found) != 30 {
			t.Errorf("pages of %d: %d conflicts, want 30", page, len(found))
		}
		// All movements have the same time: only the key tells where a page ended.
		if found := ids(t, w.Movements(t.Context(), Filter{}), movementID); len(found) != 40 || len(unique(found)) != 40 {
			t.Errorf("pages of %d: %d movements, %d different", page, len(found), len(unique(found)))
		}
	}
}

// TestListVisitsEveryShard lists conflicts whose settlement IDs are in all shards.
func TestListVisitsEveryShard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const conflicts = 400
	var rows []*spanner.Mutation
	for i := range conflicts {
		id := fmt.Sprintf("stl-%d", i)
		rows = append(rows, movementRow(id), conflictRow(id, "v1:0", time.Unix(int64(i), 0)))
	}
	w.apply(rows...)
	shards := 0
	err := w.Client.Single().Query(t.Context(), spanner.NewStatement("SELECT DISTINCT open_shard FROM settlement_conflicts")).Do(func(*spanner.Row) error {
		shards++
		return nil
	})
	if err != nil || shards != spannerstore.Shards {
		t.Fatalf("conflicts in %d shards, %v; want %d", shards, err, spannerstore.Shards)
	}
	if listed := ids(t, w.Conflicts(t.Context(), Filter{}), conflictID); len(listed) != conflicts || len(unique(listed)) != conflicts {
		t.Errorf("%d conflicts listed, %d different; want %d", len(listed), len(unique(listed)), conflicts)
	}
}

func unique(all []string) []string {
	all = slices.Clone(all)
	slices.Sort(all)
	return slices.Compact(all)
}

func movementRow(id string) *spanner.Mutation {
	return spanner.InsertMap("ledger_movements", map[string]any{
		"settlement_id": id, "account_id": "a", "amount_cents": 1, "currency": "EUR", "payload_hash": "v1:0", "recorded_at": spanner.CommitTimestamp,
	})
}

func conflictRow(id, hash string, at time.Time) *spanner.Mutation {
	return spanner.InsertMap("settlement_conflicts", map[string]any{
		"settlement_id": id, "payload_hash": hash, "fields": []string{"amount_cents"}, "payload": []byte("not a payout"), "message_id": "m", "seen_at": at,
	})
}

func TestFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle(`{"settlement_id":"a","account_id":"x","amount_cents":1,"currency":"EUR"}`)
	second := w.settle(`{"settlement_id":"b","account_id":"y","amount_cents":1,"currency":"EUR","creditor_account":"c"}`)
	third := w.settle(`{"settlement_id":"c","account_id":"x","amount_cents":1,"currency":"EUR"}`)
	w.settle(`{"settlement_id":"a","account_id":"x","amount_cents":2,"currency":"EUR"}`)
	w.settle(`{"settlement_id":"b","account_id":"z","amount_cents":1,"currency":"EUR","creditor_account":"c"}`)
	for _, tt := range []struct {
		filter Filter
		want   []string
	}{
		{Filter{}, []string{"c", "b", "a"}},
		{Filter{Since: second}, []string{"c", "b"}},
		{Filter{Until: second}, []string{"a"}},
		{Filter{Since: second, Until: third}, []string{"b"}},
		{Filter{AccountID: "x"}, []string{"c", "a"}},
		{Filter{State: StateNone}, []string{"c", "a"}},
		{Filter{State: "uncertain"}, []string{"b"}},
		{Filter{Limit: 2}, []string{"c", "b"}},
		{Filter{AccountID: "x", State: "uncertain"}, []string{}},
	} {
		if diff := cmp.Diff(tt.want, ids(t, w.Movements(t.Context(), tt.filter), movementID)); diff != "" {
			t.Errorf("movements %+v (-want +got):\n%s", tt.filter, diff)
		}
	}
	for _, tt := range []struct {
		filter Filter
		want   []string
	}{
		{Filter{}, []string{"b account_id", "a amount_cents"}},
		{Filter{Reason: "amount_cents"}, []string{"a amount_cents"}},
		{Filter{AccountID: "y"}, []string{"b account_id"}},
		{Filter{AccountID: "z"}, []string{}}, // nothing moved there
		{Filter{State: StateResolved}, []string{}},
		{Filter{State: StateAll, Limit: 1}, []string{"b account_id"}},
	} {
		if diff := cmp.Diff(tt.want, ids(t, w.Conflicts(t.Context(), tt.filter), conflictID)); diff != "" {
			t.Errorf("conflicts %+v (-want +got):\n%s", tt.filter, diff)
		}
	}
}

// TestReadsAreOfTheBound reads at a timestamp before a conflict.
func TestReadsAreOfTheBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := w.settle(`{"settlement_id":"a","account_id":"x","amount_cents":1,"currency":"EUR"}`)
	w.settle(`{"settlement_id":"a","account_id":"x","amount_cents":2,"currency":"EUR"}`)
	w.Bound = spanner.ReadTimestamp(at)
	s, err := w.Settlement(t.Context(), "a")
	if err != nil || len(s.Conflicts) != 0 || !s.ReadAt.Equal(at) {
		t.Errorf("%d conflicts at %v, %v; want none at %v", len(s.Conflicts), s.ReadAt, err, at)
	}
	if found := ids(t, w.Conflicts(t.Context(), Filter{}), conflictID); len(found) != 0 {
		t.Errorf("conflicts %q", found)
	}
	report, err := w.Report(t.Context(), "x", at, at.Add(time.Hour))
	if err != nil || !report.ReadAt.Equal(at) || len(report.Lines) != 1 {
		t.Errorf("report %+v, %v", report, err)
	}
}

// TestSettlementThatWasChangedByHand reads a movement with another payload hash, and a
// conflict whose message is no payout.
func TestSettlementThatWasChangedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle(`{"settlement_id":"a","account_id":"x","amount_cents":1,"currency":"EUR"}`)
	w.apply(spanner.UpdateMap("ledger_movements", map[string]any{"settlement_id": "a", "amount_cents": 2}), conflictRow("a", "v1:1", time.Now()))
	s, err := w.Settlement(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if s.Intact || s.Next[0].By != ByPerson || s.Next[0].Command != "settlectl verify" {
		t.Errorf("movement %+v, next %+v", s.Movement, s.Next)
	}
	if len(s.Conflicts) != 1 || s.Conflicts[0].Fault == "" || s.Conflicts[0].Members[2].Message != nil {
		t.Errorf("conflict %+v", s.Conflicts)
	}
}

func TestMoreConflictsThanAreShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle(`{"settlement_id":"a","account_id":"x","amount_cents":1,"currency":"EUR"}`)
	var rows []*spanner.Mutation
	for i := range maxConflicts + 1 {
		rows = append(rows, conflictRow("a", fmt.Sprintf("v1:%d", i), time.Unix(int64(i), 0)))
	}
	w.apply(rows...)
	s, err := w.Settlement(t.Context(), "a")
	if err != nil || len(s.Conflicts) != maxConflicts || !s.MoreConflicts || !s.Conflicts[0].SeenAt.Equal(time.Unix(maxConflicts, 0)) {
		t.Errorf("%d conflicts, more %t, %v", len(s.Conflicts), s.MoreConflicts, err)
	}
}

func TestNoSettlement(t *testing.T) {
	t.Parallel()
	if _, err := newWorld(t).Settlement(t.Context(), "stl-8472"); !errors.Is(err, ErrNoSettlement) {
		t.Errorf("error %v", err)
	}
}

// TestNextActionOfTheReconciler: settlectl's golden files cover the other actors.
func TestNextActionOfTheReconciler(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	due := now.Add(time.Minute)
	for _, tt := range []struct {
		name string
		in   transfer.Instruction
		last string // the latest event's detail
		want string
	}{
		{"never sent", transfer.Instruction{State: transfer.StateUncertain, NextCheckAt: due}, "", "send the transfer to the bank"},
		{"sent", transfer.Instruction{State: transfer.StateUncertain, Sends: 1, NextCheckAt: due}, "", "ask the bank again for the transfer's status"},
		{"not found too early", transfer.Instruction{State: transfer.StateUncertain, Sends: 1, NextCheckAt: due}, "not_found", "ask the bank again for the transfer's status; its not-found came too early to count: the send could still arrive, or not be visible yet"},
		{"not found once", transfer.Instruction{State: transfer.StateUncertain, Sends: 1, NextCheckAt: due, NotFoundSince: now}, "not_found", "ask the bank again for the transfer's status"},
		{"nothing learnt", transfer.Instruction{State: transfer.StateUncertain, Sends: 1, NextCheckAt: due}, "unknown; HTTP status 500", "ask the bank again for the transfer's status"},
		{"a step is at work", transfer.Instruction{State: transfer.StateUncertain, Sends: 1, NextCheckAt: due, LeaseUntil: due}, "", "a step is running; if it crashes: ask the bank again for the transfer's status"},
		{"a step died", transfer.Instruction{State: transfer.StateUncertain, Sends: 1, NextCheckAt: now, LeaseUntil: now}, "", "ask the bank again for the transfer's status"},
		{"final and no longer watched", transfer.Instruction{State: transfer.StateConfirmed, FinalAt: now}, "", ""},
		{"returned", transfer.Instruction{State: transfer.StateReturned}, "", ""},
	} {
		s := Settlement{
			Movement: settle.Movement{SettlementID: "a"}, Intact: true, Instruction: &tt.in, ReadAt: now,
			Events: []spannerstore.EventRow{{Event: transfer.Event{Cause: transfer.CauseCreated}}, {Event: transfer.Event{Cause: transfer.CauseStatus, Detail: tt.last}}},
		}
		got := s.next()
		want := Next{By: ByReconciler, Text: tt.want, At: &tt.in.NextCheckAt}
		if tt.want == "" {
			want = Next{By: ByNobody, Text: "nothing: final"}
		}
		if diff := cmp.Diff([]Next{want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestFollowTellsEachCommitOnce commits between the polls, and while a poll tells.
func TestFollowTellsEachCommitOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle(`{"settlement_id":"before","account_id":"x","amount_cents":1,"currency":"EUR"}`)
	since, err := w.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	book := func(id string) {
		w.settle(fmt.Sprintf(`{"settlement_id":%q,"account_id":"x","amount_cents":1,"currency":"EUR"}`, id))
	}
	polls := 0
	wait := func(context.Context) error {
		switch polls++; polls {
		case 1:
			book("one")
			book("two")
		case 2: // nothing happens
		case 3:
			book("three")
		case 5:
			cancel()
		}
		return nil
	}
	var told []string
	err = w.Follow(ctx, since, wait, func(c Change) error {
		id := c.Movement.SettlementID + c.Conflict.SettlementID
		told = append(told, c.Kind+" "+id)
		switch id {
		case "one":
			book("meanwhile")
		case "three":
			w.settle(`{"settlement_id":"before","account_id":"x","amount_cents":2,"currency":"EUR"}`)
		}
		return nil
	})
	want := []string{"movement one", "movement two", "movement meanwhile", "movement three", "conflict before"}
	if diff := cmp.Diff(want, told); diff != "" || err != nil {
		t.Errorf("%v; told (-want +got):\n%s", err, diff)
	}
}

func TestFollowReturnsTheErrorOfTell(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle(`{"settlement_id":"a","account_id":"x","amount_cents":1,"currency":"EUR"}`)
	full := errors.New("no space left")
	err := w.Follow(t.Context(), time.Unix(0, 0), func(context.Context) error { return nil }, func(Change) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
}

// TestReportIsExact has sums of more than 64 bits, and a reversal in another period
// than its movement.
func TestReportIsExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most = 1<<63 - 1
	day := func(d int) time.Time { return time.Date(2026, 11, d, 0, 0, 0, 0, time.UTC) }
	movement := func(id, account string, amount int64, currency string, at time.Time) *spanner.Mutation {
		return spanner.InsertMap("ledger_movements", map[string]any{
			"settlement_id": id, "account_id": account, "amount_cents": amount, "currency": currency, "payload_hash": "v1:0", "recorded_at": at,
		})
	}
	reversal := func(id string, amount int64, at time.Time) *spanner.Mutation {
		return spanner.InsertMap("ledger_reversals", map[string]any{"settlement_id": id, "amount_cents": amount, "reason": "returned", "recorded_at": at})
	}
	w.apply(
		movement("a", "x", most, "BHD", day(2)), movement("b", "x", most, "BHD", day(3)), movement("c", "x", most, "BHD", day(4)),
		movement("old", "x", 7, "JPY", day(1)), reversal("old", 7, day(3)),
		movement("first moment", "x", 10, "EUR", day(2)), movement("end", "x", 10, "EUR", day(5)), reversal("end", 10, day(5)),
		movement("other account", "y", 10, "EUR", day(3)), reversal("other account", 10, day(3)),
	)
	report, err := w.Report(t.Context(), "x", day(2), day(5))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range report.Totals {
		got = append(got, fmt.Sprintf("%s: %d %s - %d %s = %s", l.Currency, l.Movements, l.Moved.Major, l.Reversals, l.Reversed.Major, l.Net.Major))
	}
	want := []string{
		"BHD: 3 27670116110564327.421 - 0 0.000 = 27670116110564327.421",
		"EUR: 1 0.10 - 0 0.00 = 0.10",
		"JPY: 0 0 - 1 7 = -7",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
}

func TestAmountInMajorUnits(t *testing.T) {
	t.Parallel()
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	for _, tt := range []struct {
		minor *big.Int
		code  string
		want  string // empty: the exponent is unknown
	}{
		{nil, "EUR", "0.00"},
		{big.NewInt(0), "JPY", "0"},
		{big.NewInt(1), "EUR", "0.01"},
		{big.NewInt(-1), "EUR", "-0.01"},
		{big.NewInt(99), "EUR", "0.99"},
		{big.NewInt(100), "EUR", "1.00"},
		{big.NewInt(-12345), "BHD", "-12.345"},
		{big.NewInt(5), "BHD", "0.005"},
		{big.NewInt(12345), "JPY", "12345"},
		{big.NewInt(12345), "CLF", "1.2345"},
		{huge, "USD", "1234567890123456789012345678.90"},
		{big.NewInt(12345), "ZZZ", ""},
	} {
		if got := NewAmount(tt.minor, tt.code).Major; got != tt.want {
			t.Errorf("%v %s is %q, want %q", tt.minor, tt.code, got, tt.want)
		}
	}
	if got := Cents(12345, "ZZZ").String(); got != "12345 minor units of ZZZ" {
		t.Errorf("amount of an unknown currency: %s", got)
	}
}
