package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/crash"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

func mustParse(t *testing.T) []sampleMessage {
	t.Helper()
	messages, err := parseSample(sampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if n := publications(messages); n < 20 {
		t.Fatalf("%d messages", n)
	}
	return messages
}

func TestSampleShowsEveryKindOfBankPayout(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range mustParse(t) {
		if len(m.States) > 0 {
			got = append(got, fmt.Sprintf("%s, sends %d", arrows(m.States), m.Sends))
		}
	}
	want := []string{
		"uncertain → accepted → confirmed, sends 1", "uncertain → confirmed, sends 1", "uncertain → rejected, sends 1",
		"uncertain → accepted → confirmed, sends 2", "uncertain → accepted → confirmed → returned, sends 1",
		"uncertain → accepted → manual, sends 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("states %q; want %q", got, want)
	}
}

func TestDemo(t *testing.T) {
	t.Parallel()
	cmd, stderr := startLocal(t, nil, "demo")
	out, err := cmd.Output()
	if code := exitCode(t, err); code != 0 {
		t.Errorf("exit code %d", code)
	}
	wantReport(t, string(out))
	var line struct {
		Severity     string `json:"severity"`
		SettlementID string `json:"settlement_id"`
		To           string `json:"to_state"`
	}
	if err := json.Unmarshal(stderr.Bytes(), &line); err != nil || line.Severity != "ERROR" || line.SettlementID != "stl-8485" || line.To != "manual" {
		t.Errorf("standard error is not the one line about stl-8485: %v\n%s", err, stderr)
	}
}

// wantReport checks the report of the sample.
func wantReport(t *testing.T, out string) {
	t.Helper()
	if !strings.HasPrefix(out, "ledger: Spanner emulator (") || !strings.Contains(out, "\ntopic:  Pub/Sub emulator (") {
		t.Error("the report does not begin with the emulators")
	}
	for line := range strings.Lines(out) {
		if width := utf8.RuneCountInString(line) - 1; width > 100 {
			t.Errorf("%d columns: %s", width, line)
		}
	}
	deliveries, _, _ := strings.Cut(out, "Ledger: movements")
	for _, m := range mustParse(t) {
		_, rows, _ := strings.Cut(deliveries, "\n"+m.Name+" ")
		want := append([]settle.Outcome{m.Expect}, slices.Repeat([]settle.Outcome{later(m)}, m.Publish*(1+m.DropAnswers)-1)...)
		for i, row := range strings.SplitN(rows, "\n", len(want)+1)[:len(want)] {
			if i > 0 && !strings.HasPrefix(row, "  ") || !strings.Contains(row, string(want[i])) || !strings.Contains(row, detail(m.Fields, m.Reason, m.Member)) {
				t.Errorf("delivery %d of %q: %q; want %s", i+1, m.Name, row, want[i])
			}
		}
		if states := arrows(m.States); states != "" && !strings.Contains(out, m.settlementID()+"    "+states+" ") {
			t.Errorf("the report lacks %s of %s", states, m.settlementID())
		}
	}
	for _, want := range []string{
		"\nstl-8474    reserve-tokyo             150000 JPY  ",
		"  invalid_field amount_cents; known  ", "+3 days    5  3 confirmed, 1 rejected, 1 returned\n",
		"uncertain → rejected                             1   -305.00 EUR\n", "stl-8484    cp-sent-back     1250.00 USD  RETURNED\n",
		"\nstl-8485 needs a decision: ", "\nok: 39 messages, ", "\nok: 14 movements, ", " status checks: no violation\n", "\nok: 6 bank instructions, ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log("\n" + out)
	}
}

// later returns the outcome of all deliveries but the first.
func later(m sampleMessage) settle.Outcome {
	if m.Expect == settle.OutcomeApplied {
		return settle.OutcomeDuplicate
	}
	return m.Expect
}

func TestReportOfDifferencesIsAnError(t *testing.T) {
	t.Parallel()
	sys := &system{
		spanner: &emulator.Spanner{Process: &emulator.Process{Source: "a"}}, pubsub: &emulator.PubSub{Process: &emulator.Process{Source: "b"}},
	}
	messages, seen := healthy()
	var sound, wrong strings.Builder
	if err := report(&sound, sys, messages, seen); err != nil || !strings.Contains(sound.String(), "\nok: ") {
		t.Errorf("%v without a difference:\n%s", err, sound.String())
	}
	seen.books.Conflicts = append(seen.books.Conflicts, seen.books.Conflicts[0])
	if err := report(&wrong, sys, messages, seen); !errors.Is(err, errDisagree) || strings.Contains(wrong.String(), "\nok: ") ||
		!strings.Contains(wrong.String(), "\nwrong: ledger: conflict of ") {
		t.Errorf("%v with a difference:\n%s", err, wrong.String())
	}
}

// healthy returns a sample and a result of it without differences.
func healthy() ([]sampleMessage, result) {
	const id, hash, other = "stl-1", payout.Hash("v1:a"), payout.Hash("v1:b")
	at, uncertain, confirmed := time.Unix(1, 0), transfer.StateUncertain, transfer.StateConfirmed
	data := `{"settlement_id":"stl-1","account_id":"a","amount_cents":5,"currency":"EUR","creditor_account":"cp-1","reference":"r"}`
	messages := []sampleMessage{
		{Name: "fresh", Data: []byte(data), Publish: 2, Expect: "applied", States: []transfer.State{uncertain, confirmed}, Sends: 1},
		{Name: "changed", Publish: 1, Expect: "conflict", Fields: []string{"amount_cents"}},
		{Name: "malformed", Publish: 1, Expect: "quarantined", Reason: "not_json"},
	}
	settled := answer{Result: settle.Result{Outcome: "applied", SettlementID: id, PayloadHash: hash, AppliedAt: at, Instruction: uncertain}}
	changed := answer{Result: settle.Result{Outcome: "conflict", SettlementID: id, PayloadHash: other, AppliedAt: at, Fields: []string{"amount_cents"}}}
	malformed := answer{Result: settle.Result{Outcome: "quarantined", Refusal: &payout.Refusal{Reason: "not_json"}}}
	again := settled
	again.Outcome, again.Instruction = "duplicate", ""
	known := changed
	known.Known = true
	key := transfer.InstructionKey(id)
	return messages, result{
		deliveries: []delivery{
			{publication{0, 0}, "1", 0, 200, settled, 0},
			{publication{0, 1}, "2", 0, 200, again, 0},
			{publication{1, 0}, "3", 0, 200, changed, 0},
			{publication{1, 0}, "3", 1, 200, known, 0},
			{publication{2, 0}, "4", 0, 200, malformed, 0},
		},
		runs: []reconciliation{{Reconciled: transfer.Reconciled{Due: 1}}},
		books: crash.State{
			Snapshot: audit.Snapshot{
				Movements: []settle.Movement{{
					SettlementID: id, AccountID: "a", AmountCents: 5, Currency: "EUR", CreditorAccount: "cp-1", Reference: "r", PayloadHash: hash, RecordedAt: at,
				}},
				Conflicts:   []spannerstore.ConflictRow{{SettlementID: id, PayloadHash: other, Fields: []string{"amount_cents"}}},
				Quarantined: []spannerstore.QuarantineRow{{MessageID: "4", Reason: "not_json"}},
				Instructions: []transfer.Instruction{{
					SettlementID: id, State: confirmed, Sends: 1,
					Transfer: transfer.Transfer{Key: key, AmountCents: 5, Currency: "EUR", CreditorAccount: "cp-1"},
				}},
				Events: []spannerstore.EventRow{
					{SettlementID: id, Event: transfer.Event{To: uncertain}},
					{SettlementID: id, Event: transfer.Event{From: uncertain, To: confirmed}},
				},
			},
			Ledger: []fakebank.Transfer{{
				Settlement: id, Key: key.String(), AmountMinor: 5, Currency: "EUR", DebtorAccount: "a", CreditorAccount: "cp-1", Remittance: "r", Status: fakebank.Settled,
			}},
		},
	}
}

func TestCheckFindsDifferences(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*result){
		"": func(*result) {},
		`"fresh", delivery 1: answered 500 applied; the sample expects 200 applied`:                  func(r *result) { r.deliveries[0].status = 500 },
		`"fresh": 1 deliveries; the sample expects at least 2`:                                       func(r *result) { r.deliveries = r.deliveries[1:] },
		`ledger: no movement of "stl-1"`:                                                             func(r *result) { r.books.Movements, r.books.Ledger = nil, nil },
		`ledger: the movement is {SettlementID:stl-1 AccountID:a AmountCents:6 `:                     func(r *result) { r.books.Movements[0].AmountCents++ },
		`"changed", delivery 1: answered with "reference"; the sample expects "amount_cents"`:        func(r *result) { r.deliveries[2].answer.Fields = []string{"reference"} },
		`"malformed", delivery 1: answered with "empty_data"; the sample expects "not_json"`:         func(r *result) { r.deliveries[4].answer.Refusal.Reason = "empty_data" },
		`ledger: 2 movements; the sample expects 1`:                                                  func(r *result) { r.books.Movements = append(r.books.Movements, settle.Movement{}) },
		`recorded at 1970-01-01 00:00:02 +0000 UTC, but the answer duplicate names it`:               func(r *result) { r.deliveries[1].answer.AppliedAt = time.Unix(2, 0) },
		`recorded at 1970-01-01 00:00:01 +0000 UTC, but the answer duplicate names it`:               func(r *result) { r.deliveries[1].answer.PayloadHash = "v1:b" },
		`, but the answer conflict names it`:                                                         func(r *result) { r.deliveries[2].answer.AppliedAt = time.Unix(2, 0) },
		`v1:a, recorded at 1970-01-01 00:00:01 +0000 UTC has 1 rows, and 0 answers recorded it`:      func(r *result) { r.deliveries[0].answer.Outcome = "duplicate" },
		`ledger: conflict of "stl-1", v1:b, in [amount_cents] has 0 rows, and 1 answers recorded it`: func(r *result) { r.books.Conflicts[0].Fields = []string{"reference"} },
		`ledger: conflict of "stl-1", v1:b, in [amount_cents] has 1 rows, and 2 answers recorded it`: func(r *result) { r.deliveries[3].answer.Known = false },
		`ledger: no conflict of "stl-1", v1:b, in [reference], but an answer knows it`:               func(r *result) { r.deliveries[3].answer.Fields = []string{"reference"} },
		`ledger: message 4 in quarantine for not_json has 0 rows, and 1 answers recorded it`:         func(r *result) { r.books.Quarantined = nil },
		`ledger: message 4 in quarantine for not_json has 1 rows, and 0 answers recorded it`:         func(r *result) { r.deliveries[4].answer.Known = true },
		`ledger: 0 bank instructions; the sample expects 1`:                                          func(r *result) { r.books.Instructions = nil },
		`with 2 sends; the sample expects uncertain → confirmed with 1`:                              func(r *result) { r.books.Instructions[0].Sends++ },
		`went uncertain with 1 sends; the sample expects uncertain → confirmed with 1`:               func(r *result) { r.books.Events = r.books.Events[:1] },
		`"stl-1": answered rejected, a state that its bank instruction never had`:                    func(r *result) { r.deliveries[0].answer.Instruction = transfer.StateRejected },
		`reconciler, run 1: of 1 due, 1 failed and 0 were left`:                                      func(r *result) { r.runs[0].Failed = 1 },
		`verify: `: func(r *result) {
			r.findings = []audit.Finding{{Violation: audit.Violation{Rule: audit.RuleOnce, SettlementID: "stl-1"}}}
		},
		`verify: 1 of 1 status checks were not answered`:              func(r *result) { r.verified = audit.Summary{Asked: 1, Unanswered: 1} },
		`bank: settlement "stl-1": the bank instruction is confirmed`: func(r *result) { r.books.Ledger = nil },
		`bank: settlement "stl-1": the movement is `:                  func(r *result) { r.books.Ledger[0].AmountMinor++ },
		`bank: the bank's ledger has `: func(r *result) {
			r.books.Ledger = append(r.books.Ledger, fakebank.Transfer{Key: "stray"})
		},
		`bank: key executed twice`: func(r *result) { r.violations = []string{"key executed twice"} },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			messages, seen := healthy()
			change(&seen)
			faults := check(messages, seen)
			if want == "" && len(faults) > 0 || !strings.Contains(strings.Join(faults, "\n"), want) {
				t.Errorf("faults %q; want %q", faults, want)
			}
		})
	}
}
