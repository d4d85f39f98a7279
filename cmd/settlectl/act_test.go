package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// act runs the program as the operator does, with the fixture's bank.
func (f *fixture) act(in io.Reader, args ...string) outcome {
	f.t.Helper()
	return settlectlAt(f.t, f.clock.Now, in, f.operatorEnv(), args...)
}

// operatorEnv is the environment of the operator, with the fixture's bank.
func (f *fixture) operatorEnv() map[string]string {
	env := f.env()
	maps.Copy(env, map[string]string{"BANK_URL": f.gate.URL, "BANK_TOKEN": fixtureToken, "DEFAULT_CURRENCY": "USD"})
	return env
}

// refusal runs a refused command, and checks that it changed no row.
func (f *fixture) refusal(code int, words string, args ...string) outcome {
	f.t.Helper()
	before := f.state()
	got := f.act(nil, args...)
	if got.code != code || !strings.Contains(got.errOut, words) {
		f.t.Errorf("%s: exit code %d, %q; want %d and %q", strings.Join(args, " "), got.code, got.errOut, code, words)
	}
	if after := f.state(); after != before {
		f.t.Errorf("%s: refused, but changed %s to %s", strings.Join(args, " "), before, after)
	}
	return got
}

// absent runs a command about an unknown settlement, which has to fail like show.
func (f *fixture) absent(args ...string) {
	f.t.Helper()
	got, want := f.refusal(term.ExitNotFound, "", args...), f.run("show", "stl-none").errOut
	if !strings.Contains(want, "letter case matters") || got.errOut != want {
		f.t.Errorf("%s: %q; want %q", strings.Join(args, " "), got.errOut, want)
	}
}

// state returns all columns that the operator's commands change.
func (f *fixture) state() string {
	f.t.Helper()
	var b strings.Builder
	for _, sql := range []string{
		`SELECT settlement_id, state, version FROM bank_instructions ORDER BY settlement_id`,
		`SELECT settlement_id, reason FROM ledger_reversals ORDER BY settlement_id`,
		`SELECT settlement_id, payload_hash, resolved_by, note FROM settlement_conflicts ORDER BY settlement_id, payload_hash`,
		`SELECT message_key, released_by FROM quarantined_messages ORDER BY message_key`,
	} {
		f.query(sql, &b)
	}
	return b.String()
}

// sound fails if the rows violate a rule.
func (f *fixture) sound() {
	f.t.Helper()
	all, err := audit.Read(f.t.Context(), f.client)
	if err != nil {
		f.t.Fatal(err)
	}
	if found := all.Violations(true); len(found) > 0 {
		f.t.Errorf("violations: %q", found)
	}
}

// unstable matches the IDs of the bank and of Pub/Sub, which differ between runs.
var unstable = regexp.MustCompile(`transfer [0-9a-f-]{36}|"bank_transfer_id":"[^"]+"|as message \d+|"published_as":"\d+"`)

// wantGolden compares an outcome with a file, and its exit code.
func wantGolden(t *testing.T, name string, got outcome, code int) {
	t.Helper()
	if got.code != code {
		t.Errorf("%s: exit code %d, want %d; %s", name, got.code, code, got.errOut)
	}
	wantTame(t, got.out)
	golden(t, name, unstable.ReplaceAllString(got.out, "UNSTABLE")+got.errOut)
}

func TestResolve(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fillLedger()
	by := []string{"--by", "ines@example.com", "--note", "the producer sent a draft; it is mended"}
	with := func(args ...string) []string { return append(append([]string{"resolve", "conflict"}, args...), by...) }
	f.absent(with("stl-none")...)
	f.refusal(term.ExitNo, "has no conflict", with(stlApplied)...)
	f.refusal(term.ExitNo, "no conflict with payload hash", with(stlConflict, "--hash", "v1:0")...)
	f.refusal(term.ExitError, "--by is", "resolve", "conflict", stlConflict, "--by", " ", "--note", "n")
	wantGolden(t, "resolve.txt", f.act(nil, with(stlConflict)...), term.ExitOK)
	wantGolden(t, "resolve.json", f.act(nil, append(with(stlConflict), "--json")...), term.ExitOK) // again
	f.refusal(term.ExitNo, `resolved by "ines@example.com"`, "resolve", "conflict", stlConflict, "--by", "bert", "--note", "n")

	f.deliver(`{"settlement_id":"stl-8475","account_id":"reserve-fees","amount_cents":97,"reference":"fee 11"}`, settle.OutcomeConflict)
	wantGolden(t, "resolve_several.txt", f.refusal(term.ExitNo, "name one by --hash", with(stlConflicts)...), term.ExitNo)
	// Another conflict arrived between the lost answer and the second run.
	f.deliver(`{"settlement_id":"stl-8474","account_id":"reserve-fees","amount_cents":96}`, settle.OutcomeConflict)
	wantGolden(t, "resolve_another.txt", f.refusal(term.ExitNo, "name one by --hash", with(stlConflict)...), term.ExitNo)
	f.sound()
}

func TestDecide(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fillLedger()
	f.fillBank()
	f.fillManual()
	f.clock.Advance(23 * time.Hour)
	by := []string{"--by", "ines@example.com", "--second", "bert@example.com", "--note", "letter of the bank, ref 4711"}
	with := func(args ...string) []string { return append(append([]string{"decide"}, args...), by...) }

	f.refusal(term.ExitNo, "are one person", "decide", stlForgotten, "--rejected", "--by", "Ines B", "--second", "inesb ", "--note", "n")
	f.absent(with("stl-none", "--rejected")...)
	f.refusal(term.ExitNo, "has no bank instruction", with(stlApplied, "--rejected")...)
	if got := settlectlAt(t, f.clock.Now, nil, f.env(), with(stlForgotten, "--rejected")...); got.code != term.ExitError || !strings.Contains(got.errOut, "BANK_URL is not set") {
		t.Errorf("without a bank: %+v", got)
	}
	// Refused by the state.
	for _, id := range []string{stlConfirmed, stlRejected, stlReturned, stlAccepted, stlUncertain} {
		f.refusal(term.ExitNo, "people decide only about a manual one", with(id, "--confirmed")...)
	}
	// Refused by the bank's answer.
	wantGolden(t, "decide_refused.txt", f.refusal(term.ExitNo, "another transfer under the key, or more than one", with(stlTwice, "--rejected")...), term.ExitNo)
	wantGolden(t, "decide_refused.json", f.refusal(term.ExitNo, "another transfer under the key, or more than one", append(with(stlTwice, "--rejected"), "--json")...), term.ExitNo)
	f.refusal(term.ExitNo, "bank's status is unknown", with(stlImpatience, "--rejected")...)

	// Recorded.
	dry := f.refusal(term.ExitOK, "", append(with(stlForgotten, "--rejected"), "--dry-run")...)
	wantGolden(t, "decide_dry_run.txt", dry, term.ExitOK)
	wantGolden(t, "decide_rejected.txt", f.act(nil, with(stlForgotten, "--rejected")...), term.ExitOK)
	wantGolden(t, "decide_rejected_again.json", f.act(nil, append(with(stlForgotten, "--rejected"), "--json")...), term.ExitOK)
	f.refusal(term.ExitNo, "the instruction is rejected", with(stlForgotten, "--confirmed")...)
	wantGolden(t, "decide_confirmed.txt", f.act(nil, with(stlTwice, "--confirmed")...), term.ExitOK)
	wantGolden(t, "decide_without_bank.txt", f.act(nil, with(stlImpatience, "--confirmed", "--without-bank")...), term.ExitOK)
	f.clock.Advance(2 * time.Hour)
	f.deliver(payoutJSON("stl-8497", "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	f.sound()
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fillLedger()
	f.fillBank()
	f.script("stl-8489", lostPlan)
	f.deliver(payoutJSON("stl-8489", "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	f.step("stl-8489", 20*time.Hour, transfer.StateManual)
	f.absent("reconcile", "stl-none")
	f.refusal(term.ExitNo, "has no bank instruction", "reconcile", stlApplied)
	f.refusal(term.ExitNo, "it is manual", "reconcile", "stl-8489")
	f.refusal(term.ExitNo, "it is returned", "reconcile", stlReturned)
	wantGolden(t, "reconcile_not_due.txt", f.refusal(term.ExitNo, "it is due at ", "reconcile", stlUncertain), term.ExitNo)
	f.clock.Advance(time.Hour)
	wantGolden(t, "reconcile.txt", f.act(nil, "reconcile", stlUncertain), term.ExitOK)
	wantGolden(t, "reconcile_due.json", f.act(nil, "reconcile", "--due", "--json"), term.ExitOK)
	wantGolden(t, "reconcile_due.txt", f.act(nil, "reconcile", "--due"), term.ExitOK)
	f.sound()
}

// TestReconcileFailsForAManualInstruction, because no alert reads the log of settlectl.
func TestReconcileFailsForAManualInstruction(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.script(stlForgotten, lostPlan)
	f.script(stlTwice, fakebank.Plan{StepsRest: fakebank.Step{Say: fakebank.SayTwice}})
	f.deliver(payoutJSON(stlForgotten, "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	f.clock.Advance(20 * time.Hour)
	wantGolden(t, "reconcile_manual.txt", f.act(nil, "reconcile", stlForgotten), term.ExitNo)
	f.deliver(payoutJSON(stlTwice, "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	f.clock.Advance(time.Minute)
	wantGolden(t, "reconcile_due_manual.txt", f.act(nil, "reconcile", "--due"), term.ExitNo)

	f.script("stl-8490", fakebank.Plan{StepsRest: fakebank.Step{Say: fakebank.SayTwice}})
	f.deliver(payoutJSON("stl-8490", "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	f.clock.Advance(time.Minute)
	wantGolden(t, "reconcile_critical.json", f.act(nil, "reconcile", "stl-8490", "--json"), term.ExitNo)
	f.sound()
}

// TestRelease sets PUBSUB_EMULATOR_HOST of this process, so it is not parallel.
func TestRelease(t *testing.T) {
	topic := newTestTopic(t)
	f := newFixture(t)
	f.fillQuarantine()
	f.service.DefaultCurrency = ""
	for range 3 {
		f.deliver(`{"settlement_id":"stl-8488","account_id":"reserve-claims","amount_cents":7}`, settle.OutcomeQuarantined)
	}
	var latest strings.Builder
	f.query(`SELECT MAX(message_id) FROM quarantined_messages WHERE message_id LIKE '70%'`, &latest)
	last := regexp.MustCompile(`70\d+`).FindString(latest.String())
	by := []string{"--by", "ines@example.com", "--topic", topic.name}
	with := func(args ...string) []string { return append(append([]string{"release"}, args...), by...) }
	edited := filepath.Join(t.TempDir(), "edited.json")
	writeFile(t, edited, `{"settlement_id":"stl-8499","account_id":"reserve-claims","amount_cents":"1"}`)

	f.refusal(term.ExitNotFound, "no such message", with("7000000000000099")...)
	f.refusal(term.ExitError, "is no terminal to ask on", with("--all", "--reason", "missing_field")...)
	nowhere := f.refusal(term.ExitError, "publish to "+topic.name+"-none", "release", last, "--by", "ines", "--topic", topic.name+"-none")
	if strings.Contains(nowhere.errOut, "database") {
		t.Errorf("a missing topic is reported as a database error: %s", nowhere.errOut)
	}
	f.refusal(term.ExitNo, "refused again: not_json; have", with("7000000000000001")...)
	f.refusal(term.ExitNo, "is no payout", with("7000000000000001", "--edit", edited, "--note", "Ada agreed")...)
	f.refusal(term.ExitNo, "no Pub/Sub message", with("m\x1b[2J-1")...)
	topic.receive(t, 0)

	wantGolden(t, "release_dry_run.txt", f.refusal(term.ExitOK, "", with(last, "--dry-run")...), term.ExitOK)
	wantGolden(t, "release.txt", f.act(nil, with(last)...), term.ExitOK)
	wantGolden(t, "release_again.txt", f.refusal(term.ExitNo, "was released by", with(last)...), term.ExitNo)
	writeFile(t, edited, `{"settlement_id":"stl-8499","account_id":"reserve-claims","amount_cents":1}`)
	wantGolden(t, "release_edited.json", f.act(nil, with("7000000000000001", "--edit", edited, "--note", "Ada agreed", "--json")...), term.ExitOK)
	wantGolden(t, "release_all_dry_run.txt", f.refusal(term.ExitNo, "1 message stays in quarantine: the function would refuse it again", with("--all", "--reason", "missing_field", "--dry-run")...), term.ExitNo)
	if got := f.actAsked("", with("--all", "--reason", "missing_field", "--dry-run")...); !strings.Contains(got.errOut, "released 2, refused 1") {
		t.Errorf("the bar: %q", got.errOut)
	}
	if got := f.actAsked("n\n", with("--all", "--reason", "missing_field")...); got.code != term.ExitNo || !strings.Contains(got.errOut, "no message was released") {
		t.Errorf("answered no: %+v", got)
	}
	wantGolden(t, "release_all.json", f.actAsked("y\n", append(with("--all", "--reason", "missing_field"), "--json")...), term.ExitNo)
	for _, data := range receiveReleased(t, topic, 4) {
		f.service.DefaultCurrency = "USD"
		result, err := f.service.Deliver(t.Context(), settle.Delivery{Message: f.message(data)})
		if err != nil || result.Outcome != settle.OutcomeApplied && result.Outcome != settle.OutcomeDuplicate {
			t.Errorf("released %s: %v, %v", data, result.Outcome, err)
		}
	}
	f.sound()
}

// TestConcurrentReleaseWarns, because the command does not know the other's message.
func TestConcurrentReleaseWarns(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	f := releaseFlags{release: ledger.Release{By: "ines", Edited: []byte("{}")}}
	err := printFacts(streamsOf(nil, &out, nil, nil), f.releasedFacts(ledger.Released{Message: ledger.Message{QuarantineRow: spannerstore.QuarantineRow{ReleasedBy: "bert"}}, PublishedAs: "7", Edited: true}))
	words := strings.Join(strings.Fields(out.String()), " ")
	if err != nil || !strings.Contains(words, "by bert at the same time: two messages were published") || strings.Contains(words, "settled once") {
		t.Errorf("%v: %s", err, words)
	}
}

// receiveReleased pulls count messages, each of which has to have the attribute of a
// released message.
func receiveReleased(t *testing.T, topic testTopic, count int) (data []string) {
	t.Helper()
	for _, m := range topic.pull(t, count) {
		if len(m.GetAttributes()[ledger.ReleasedAttribute]) != 64 {
			t.Errorf("message %s lacks the attribute: %v", m.GetMessageId(), m.GetAttributes())
		}
		data = append(data, string(m.GetData()))
	}
	if len(data) != count {
		t.Errorf("%d messages, want %d", len(data), count)
	}
	return data
}

// actAsked answers the program's question on a terminal. An empty answer is for a
// command that draws a bar instead.
func (f *fixture) actAsked(answer string, args ...string) outcome {
	f.t.Helper()
	terminal := 0
	if answer == "" {
		terminal = 100
	}
	var out, errOut strings.Builder
	env := f.env()
	env["DEFAULT_CURRENCY"] = "USD"
	s := streamsOf(strings.NewReader(answer), &out, &errOut, env)
	s.now, s.InTerminal, s.ErrColumns = f.clock.Now, true, terminal
	code := run(f.t.Context(), args, s)
	return outcome{code: code, out: out.String(), errOut: errOut.String()}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var (
	lostPlan     = fakebank.Plan{Rest: lost}
	executedPlan = fakebank.Plan{}
)

// query writes the rows of a query.
func (f *fixture) query(sql string, to *strings.Builder) {
	f.t.Helper()
	err := f.client.Single().Query(f.t.Context(), spanner.NewStatement(sql)).Do(func(row *spanner.Row) error {
		_, err := to.WriteString(row.String() + "\n")
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func TestNameOfMessage(t *testing.T) {
	t.Parallel()
	for want, k := range map[string]ledger.Message{
		"7 from payouts-push": {Key: "00ff", QuarantineRow: spannerstore.QuarantineRow{MessageID: "7", Subscription: "projects/p/subscriptions/payouts-push"}},
		"7 from other":        {Key: "00ee", QuarantineRow: spannerstore.QuarantineRow{MessageID: "7", Subscription: "other"}},
		"00dd":                {Key: "00dd", QuarantineRow: spannerstore.QuarantineRow{Subscription: "projects/p/subscriptions/payouts-push"}},
	} {
		if got := nameOf(k); got != want {
			t.Errorf("%+v: %q, want %q", k, got, want)
		}
	}
}
