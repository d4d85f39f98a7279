package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// verified is the JSON of verify.
type verified struct {
	findings []findingLine
	summary  summaryLine
}

func parseVerified(t *testing.T, got outcome) verified {
	t.Helper()
	var v verified
	for line := range strings.Lines(got.out) {
		if strings.Contains(line, `"type":"summary"`) {
			v.summary = parse[summaryLine](t, line)
			continue
		}
		v.findings = append(v.findings, parse[findingLine](t, line))
	}
	if v.summary.Type == "" {
		t.Fatalf("no summary in %q; standard error %q", got.out, got.errOut)
	}
	return v
}

// newHealthyFixture has every kind of case and no violation. The missing receipt is past
// its retention.
func newHealthyFixture(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t).fill()
	f.apply(spanner.UpdateMap("ledger_movements", map[string]any{
		"settlement_id": stlExpired, "recorded_at": time.Now().Add(-101 * 24 * time.Hour),
	}))
	return f
}

// corruption is a direct write that violates a rule.
type corruption struct {
	name string
	id   string // of the settlement; empty: a quarantined message
	sql  string // the write, of one row
	rule audit.Rule
	// more are the other rules that it violates.
	more []audit.Rule
}

var corruptions = []corruption{
	{"amount of a movement", stlApplied, `UPDATE ledger_movements SET amount_cents = amount_cents + 1 WHERE settlement_id = @id`, audit.RuleMovementHash, nil},
	{"account of a movement", stlApplied, `UPDATE ledger_movements SET account_id = 'mine' WHERE settlement_id = @id`, audit.RuleMovementHash, nil},
	{"creditor of a movement", stlConfirmed, `UPDATE ledger_movements SET creditor_account = 'mine' WHERE settlement_id = @id`, audit.RuleMovementHash, nil},
	{
		"creditor of a movement taken away", stlConfirmed, `UPDATE ledger_movements SET creditor_account = NULL WHERE settlement_id = @id`,
		audit.RuleInstructionWanted,
		[]audit.Rule{audit.RuleMovementHash},
	},
	{
		"unknown hash version", stlApplied, `UPDATE ledger_movements SET payload_hash = 'v9:00' WHERE settlement_id = @id`,
		audit.RuleMovementHash,
		[]audit.Rule{audit.RuleReceiptHash},
	},
	{"receipt deleted early", stlApplied, `DELETE FROM settlement_receipts WHERE settlement_id = @id`, audit.RuleReceiptMissing, nil},
	{"receipt of an open instruction deleted", stlUncertain, `DELETE FROM settlement_receipts WHERE settlement_id = @id`, audit.RuleReceiptMissing, nil},
	{"hash of a receipt", stlApplied, `UPDATE settlement_receipts SET payload_hash = 'v1:00' WHERE settlement_id = @id`, audit.RuleReceiptHash, nil},
	{"time of a receipt", stlApplied, `UPDATE settlement_receipts SET applied_at = TIMESTAMP_SUB(applied_at, INTERVAL 1 SECOND) WHERE settlement_id = @id`, audit.RuleReceiptCommit, nil},
	{"status of a receipt", stlApplied, `UPDATE settlement_receipts SET result_status = 'pending' WHERE settlement_id = @id`, audit.RuleReceiptFields, nil},
	{"metadata of a receipt", stlApplied, `UPDATE settlement_receipts SET metadata = '[1]' WHERE settlement_id = @id`, audit.RuleReceiptFields, nil},
	{"idempotency key of another settlement", stlUncertain, `UPDATE bank_instructions SET idempotency_key = '00000000-0000-5000-8000-000000000000' WHERE settlement_id = @id`, audit.RuleInstructionTransfer, nil},
	{"idempotency key that is none", stlUncertain, `UPDATE bank_instructions SET idempotency_key = 'key' WHERE settlement_id = @id`, audit.RuleInstructionTransfer, nil},
	{"amount in a request body", stlUncertain, `UPDATE bank_instructions SET request_body = CAST(REPLACE(CAST(request_body AS STRING), '47310', '47311') AS BYTES) WHERE settlement_id = @id`, audit.RuleInstructionBody, nil},
	{"request body that is no JSON", stlUncertain, `UPDATE bank_instructions SET request_body = b'{' WHERE settlement_id = @id`, audit.RuleInstructionBody, nil},
	{"state of an instruction", stlAccepted, `UPDATE bank_instructions SET state = 'confirmed' WHERE settlement_id = @id`, audit.RuleInstructionState, nil},
	{"version of an instruction", stlAccepted, `UPDATE bank_instructions SET version = version + 1 WHERE settlement_id = @id`, audit.RuleInstructionState, nil},
	{"accepted and never final", stlConfirmed, `UPDATE bank_instructions SET final_at = NULL WHERE settlement_id = @id`, audit.RuleInstructionTimes, nil},
	{"accepted without an event", stlUncertain, `UPDATE bank_instructions SET accepted_at = CURRENT_TIMESTAMP() WHERE settlement_id = @id`, audit.RuleInstructionTimes, nil},
	{"open and never looked at again", stlUncertain, `UPDATE bank_instructions SET next_check_at = NULL WHERE settlement_id = @id`, audit.RuleInstructionCheck, nil},
	{"more sends than events", stlUncertain, `UPDATE bank_instructions SET sends = 3 WHERE settlement_id = @id`, audit.RuleSends, nil},
	{"a send that is not counted", stlConfirmed, `UPDATE bank_instructions SET sends = 0 WHERE settlement_id = @id`, audit.RuleSends, nil},
	{"a longer life of the key", stlUncertain, `UPDATE bank_instructions SET resend_not_after = TIMESTAMP_ADD(resend_not_after, INTERVAL 1 HOUR) WHERE settlement_id = @id`, audit.RuleResendWindow, nil},
	{"a key without an end", stlUncertain, `UPDATE bank_instructions SET resend_not_after = NULL WHERE settlement_id = @id`, audit.RuleResendWindow, nil},
	{"sent before the first send", stlUncertain, `UPDATE bank_instructions SET last_sent_at = TIMESTAMP_SUB(first_sent_at, INTERVAL 1 HOUR) WHERE settlement_id = @id`, audit.RuleResendWindow, nil},
	{"uncertain since nothing", stlUncertain, `UPDATE bank_instructions SET uncertain_since = NULL WHERE settlement_id = @id`, audit.RuleUncertainSince, nil},
	{"uncertain for ever", stlConfirmed, `UPDATE bank_instructions SET uncertain_since = created_at WHERE settlement_id = @id`, audit.RuleUncertainSince, nil},
	{"event in the middle deleted", stlConfirmed, `DELETE FROM bank_instruction_events WHERE settlement_id = @id AND version = 2`, audit.RuleEventChain, []audit.Rule{audit.RuleInstructionTimes}},
	{"event from another state", stlConfirmed, `UPDATE bank_instruction_events SET from_state = 'manual' WHERE settlement_id = @id AND version = 3`, audit.RuleEventChain, nil},
	{"event that the state machine does not know", stlConfirmed, `UPDATE bank_instruction_events SET cause = 'send answered' WHERE settlement_id = @id AND version = 3`, audit.RuleEventTransition, nil},
	{
		"last event deleted", stlConfirmed, `DELETE FROM bank_instruction_events WHERE settlement_id = @id AND version = 3`,
		audit.RuleInstructionState,
		[]audit.Rule{audit.RuleInstructionTimes},
	},
	{"reversal deleted", stlRejected, `DELETE FROM ledger_reversals WHERE settlement_id = @id`, audit.RuleReversalMissing, nil},
	{
		"reversal of a confirmed transfer", stlConfirmed,
		`INSERT INTO ledger_reversals (settlement_id, amount_cents, reason, recorded_at) VALUES (@id, 310000, 'rejected', PENDING_COMMIT_TIMESTAMP())`, audit.RuleReversalUnfounded, nil,
	},
	{
		"reversal without any bank", stlApplied,
		`INSERT INTO ledger_reversals (settlement_id, amount_cents, reason, recorded_at) VALUES (@id, 4731, 'returned', PENDING_COMMIT_TIMESTAMP())`, audit.RuleReversalUnfounded, nil,
	},
	{"reason of a reversal", stlRejected, `UPDATE ledger_reversals SET reason = 'returned' WHERE settlement_id = @id`, audit.RuleReversalUnfounded, nil},
	{"amount of a reversal", stlReturned, `UPDATE ledger_reversals SET amount_cents = amount_cents - 1 WHERE settlement_id = @id`, audit.RuleReversalAmount, nil},
	{"members of a conflict", stlConflict, `UPDATE settlement_conflicts SET fields = ['reference'] WHERE settlement_id = @id`, audit.RuleConflictFields, nil},
	{"members of a conflict taken away", stlConflict, `UPDATE settlement_conflicts SET fields = [] WHERE settlement_id = @id`, audit.RuleConflictFields, nil},
	{"payload of a conflict", stlConflict, `UPDATE settlement_conflicts SET payload = CAST(REPLACE(CAST(payload AS STRING), '2600', '2601') AS BYTES) WHERE settlement_id = @id`, audit.RuleConflictHash, nil},
	{"payload of a conflict that is none", stlConflict, `UPDATE settlement_conflicts SET payload = b'{}' WHERE settlement_id = @id`, audit.RuleConflictPayload, nil},
	{"conflict seen before the settlement", stlConflict, `UPDATE settlement_conflicts SET seen_at = TIMESTAMP '2020-01-01T00:00:00Z' WHERE settlement_id = @id`, audit.RuleConflictTime, nil},
	{"conflict closed by no person", stlConflict, `UPDATE settlement_conflicts SET resolved_at = CURRENT_TIMESTAMP() WHERE settlement_id = @id`, audit.RuleConflictResolution, nil},
	{"conflict closed at no time", stlConflict, `UPDATE settlement_conflicts SET resolved_by = 'ines@example.com' WHERE settlement_id = @id`, audit.RuleConflictResolution, nil},
	{"data of a quarantined message", "", `UPDATE quarantined_messages SET data = b'not Json' WHERE data = b'not JSON'`, audit.RuleQuarantineIdentity, nil},
	{"reason of a quarantined message", "", `UPDATE quarantined_messages SET reason = 'empty_data' WHERE data = b'not JSON'`, audit.RuleQuarantineReason, nil},
	{"quarantined message that expires", "", `UPDATE quarantined_messages SET expire_from = CURRENT_TIMESTAMP() WHERE data = b'not JSON'`, audit.RuleQuarantineRelease, nil},
	{"quarantined message released by no person", "", `UPDATE quarantined_messages SET released_at = CURRENT_TIMESTAMP() WHERE data = b'not JSON'`, audit.RuleQuarantineRelease, nil},
}

// TestVerifyFindsEveryCorruption plants one corruption at a time in a database with every
// kind of case. verify has to find it and nothing else.
func TestVerifyFindsEveryCorruption(t *testing.T) {
	t.Parallel()
	f := newHealthyFixture(t)
	healthy := parseVerified(t, f.verify(term.ExitOK))
	if len(healthy.findings) > 0 || healthy.summary.Settlements == 0 || healthy.summary.Quarantined == 0 {
		t.Fatalf("healthy: %+v", healthy)
	}
	f.findEach(corruptions)

	resent := newResentFixture(t)
	if healthy := parseVerified(t, resent.verify(term.ExitOK)); len(healthy.findings) > 0 {
		t.Fatalf("healthy: %+v", healthy)
	}
	resent.findEach(resentCorruptions)
	planted := map[audit.Rule]bool{}
	for _, c := range slices.Concat(corruptions, resentCorruptions) {
		planted[c.rule] = true
	}
	for _, rule := range audit.Rules() {
		if elsewhere := notPlanted[rule]; !planted[rule] && elsewhere == "" || planted[rule] && elsewhere != "" {
			t.Errorf("rule %s: planted %t, or else %q", rule, planted[rule], elsewhere)
		}
	}
}

// findEach plants one corruption at a time.
func (f *fixture) findEach(all []corruption) {
	f.t.Helper()
	whole := f.save()
	for _, c := range all {
		f.plant(c.name, c.sql, c.id)
		got := parseVerified(f.t, f.verify(term.ExitError))
		if strings.HasPrefix(c.sql, "INSERT") {
			f.apply(spanner.Delete("ledger_reversals", spanner.Key{key(c.id)}))
		}
		f.apply(whole...)
		c.check(f.t, got)
	}
	if again := parseVerified(f.t, f.verify(term.ExitOK)); len(again.findings) > 0 {
		f.t.Errorf("healthy again: %+v", again.findings)
	}
}

// check wants the corruption as the only finding.
func (c corruption) check(t *testing.T, got verified) {
	t.Helper()
	var rules []audit.Rule
	for _, finding := range got.findings {
		rules = append(rules, finding.Rule)
		if finding.SettlementID != c.id || finding.Type != "violation" || finding.Found == "" || finding.Want == "" || finding.Remedy == "" ||
			(finding.Message == "") == (c.id == "") {
			t.Errorf("%s: finding %+v", c.name, finding)
		}
	}
	slices.Sort(rules)
	want := append([]audit.Rule{c.rule}, c.more...)
	slices.Sort(want)
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("%s: rules (-want +got):\n%s\n%+v", c.name, diff, got.findings)
	}
	if got.summary.Violations != int64(len(want)) {
		t.Errorf("%s: %d violations in the summary, want %d", c.name, got.summary.Violations, len(want))
	}
}

// newResentFixture has a payout that was resent under a new key, and then executed.
func newResentFixture(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	f.script(stlForgotten, lostPlan)
	f.deliver(payoutJSON(stlForgotten, "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	f.step(stlForgotten, 20*time.Hour, transfer.StateManual)
	f.clock.Advance(25 * time.Hour)
	got := f.act(nil, "decide", stlForgotten, "--resend-new-key", "--by", "ines", "--second", "bert", "--note", "letter of the bank, ref 4711")
	if got.code != term.ExitOK {
		t.Fatalf("decide: exit code %d, %s", got.code, got.errOut)
	}
	f.script(stlForgotten, executedPlan)
	f.step(stlForgotten, 0, transfer.StateAccepted)
	return f
}

// resentCorruptions are for newResentFixture.
var resentCorruptions = []corruption{
	{"superseded key of no settlement", stlForgotten, `UPDATE bank_superseded_keys SET idempotency_key = 'key' WHERE settlement_id = @id`, audit.RuleSupersededKeys, nil},
	{"superseded key forgotten", stlForgotten, `DELETE FROM bank_superseded_keys WHERE settlement_id = @id`, audit.RuleSupersededKeys, nil},
	{
		"the old key again", stlForgotten,
		`UPDATE bank_instructions SET idempotency_key = (SELECT k.idempotency_key FROM bank_superseded_keys AS k WHERE k.settlement_id = @id) WHERE settlement_id = @id`,
		audit.RuleInstructionTransfer, nil,
	},
	{"the sends under the old key counted", stlForgotten, `UPDATE bank_instructions SET sends = 2 WHERE settlement_id = @id`, audit.RuleSends, nil},
}

// notPlanted are the rules that the schema enforces, and where they are tested.
var notPlanted = map[audit.Rule]string{
	audit.RuleParent:         "internal/audit: interleaving forbids it",
	audit.RuleOnce:           "internal/audit: the primary key forbids it",
	audit.RuleMovementFields: "internal/audit: the hash is broken with it",
	audit.RuleKey:            "internal/audit: the schema derives the key",
	audit.RuleBank:           "TestVerifyAsksTheBank",
}

// verify runs verify and checks the exit code.
func (f *fixture) verify(code int, args ...string) outcome {
	f.t.Helper()
	got := f.run(append([]string{"verify", "--output=json", "--key-lifetime=24h"}, args...)...)
	if got.code != code {
		f.t.Fatalf("exit code %d, want %d; standard output %s, standard error %s", got.code, code, got.out, got.errOut)
	}
	return got
}

// plant writes one row.
func (f *fixture) plant(name, sql, id string) {
	f.t.Helper()
	_, err := f.client.ReadWriteTransaction(f.t.Context(), func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		n, err := tx.Update(ctx, spanner.Statement{SQL: sql, Params: map[string]any{"id": id}})
		if err == nil && n != 1 {
			err = fmt.Errorf("%d rows", n)
		}
		return err
	})
	if err != nil {
		f.t.Fatalf("plant %s: %v", name, err)
	}
}

// storedTables are all tables, parents first.
var storedTables = []string{
	"ledger_movements", "settlement_receipts", "ledger_reversals", "bank_instructions", "bank_superseded_keys", "bank_instruction_events", "settlement_conflicts", "quarantined_messages",
}

// derived are the generated columns.
var derived = []string{"settlement_key", "message_key", "due_shard", "open_shard", "manual_shard"}

// save returns mutations that restore every row.
func (f *fixture) save() (rows []*spanner.Mutation) {
	f.t.Helper()
	for _, table := range storedTables {
		err := f.client.Single().Query(f.t.Context(), spanner.NewStatement("SELECT * FROM "+table)).Do(func(row *spanner.Row) error {
			columns := map[string]any{}
			for i, name := range row.ColumnNames() {
				var value spanner.GenericColumnValue
				if err := row.Column(i, &value); err != nil {
					return err
				}
				if !slices.Contains(derived, name) {
					columns[name] = value
				}
			}
			rows = append(rows, spanner.InsertOrUpdateMap(table, columns))
			return nil
		})
		if err != nil {
			f.t.Fatal(err)
		}
	}
	return rows
}

// verifyWithBank asks the fixture's bank too.
func (f *fixture) verifyWithBank(code int) verified {
	f.t.Helper()
	got := f.act(nil, "verify", "--bank", "--bank-rate=10000", "--output=json")
	if got.code != code {
		f.t.Fatalf("exit code %d, want %d; standard output %s, standard error %s", got.code, code, got.out, got.errOut)
	}
	return parseVerified(f.t, got)
}

func TestVerifyAsksTheBank(t *testing.T) {
	t.Parallel()
	f := newHealthyFixture(t)
	// The bank answers requests about one instruction with an error.
	if incomplete := f.verifyWithBank(term.ExitError).summary; incomplete.Unanswered != 1 || incomplete.Violations != 0 {
		t.Errorf("%d questions, %d unanswered, %d violations", incomplete.Asked, incomplete.Unanswered, incomplete.Violations)
	}
	f.script(stlImpatience, fakebank.Plan{})
	pending := map[string]bool{}
	healthy := f.verifyWithBank(term.ExitOK)
	for _, finding := range healthy.findings {
		pending[finding.SettlementID] = true
		if finding.Type != "pending" || finding.Rule != audit.RuleBank {
			t.Errorf("healthy: %+v", finding)
		}
	}
	if !pending[stlUncertain] || !pending[stlTwice] || pending[stlConfirmed] || pending[stlRejected] || pending[stlReturned] || pending[stlAccepted] {
		t.Errorf("pending: %v", pending)
	}
	for id, status := range map[string]string{stlReturned: "ACSC", stlConfirmed: "RJCT"} {
		if err := f.bank.Settle(transfer.InstructionKey(id).String(), status); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]bool{}
	for _, finding := range f.verifyWithBank(term.ExitError).findings {
		if finding.Type == "violation" {
			found[finding.SettlementID] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{stlReturned: true, stlConfirmed: true}, found); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

// TestVerifyExplainsItsExitCode, which is the same for violations, for an incomplete run
// and for a usage error.
func TestVerifyExplainsItsExitCode(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	help := settlectl(t, nil, nil, "verify", "--help").out
	for want, args := range map[string][]string{
		"settlectl: verify: incomplete: ": {"verify", "--database=" + nowhere},
		"See 'settlectl verify --help'.":  {"verify", "--limit=-1"},
	} {
		got := f.run(args...)
		if got.code != term.ExitError || !strings.Contains(got.errOut, want) || strings.Contains(got.errOut, "violations") {
			t.Errorf("%q: exit code %d, standard error %q; want %q", args, got.code, got.errOut, want)
		}
		if !strings.Contains(help, want) {
			t.Errorf("the help does not explain %q", want)
		}
	}
	// A bank failure is reported although verify read every row.
	f.deliver(payoutJSON(stlUncertain, "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	env := f.operatorEnv()
	env["BANK_TOKEN"] = "wrong"
	got := settlectlAt(t, f.clock.Now, nil, env, "verify", "--bank")
	if want := "settlectl: verify: incomplete: the bank rejected our credentials"; got.code != term.ExitError || !strings.HasPrefix(got.errOut, want) {
		t.Errorf("exit code %d, standard error %q; want %q", got.code, got.errOut, want)
	}
}

// unsteady matches the parts of verify's output that differ between machines.
var unsteady = regexp.MustCompile(`peak memory \d+ MiB|"peak_memory_bytes":\d+`)

func TestVerifyGolden(t *testing.T) {
	t.Parallel()
	f := newHealthyFixture(t)
	run := func(name string, want outcome, args ...string) {
		got := f.run(append([]string{"verify"}, args...)...)
		if got.code != want.code || got.errOut != want.errOut {
			t.Errorf("%q: exit code %d, standard error %q; want %d and %q", args, got.code, got.errOut, want.code, want.errOut)
		}
		golden(t, name, unsteady.ReplaceAllString(got.out, "PEAK"))
		wantTame(t, got.out)
	}
	run("verify-healthy.table", outcome{})
	run("verify-healthy.json", outcome{}, "--json")
	broken := outcome{code: term.ExitError, errOut: "settlectl: verify: violations: 2\n"}
	f.plant("", `UPDATE settlement_receipts SET payload_hash = 'v1:00' WHERE settlement_id = @id`, stlApplied)
	f.plant("", `DELETE FROM ledger_reversals WHERE settlement_id = @id`, stlRejected)
	run("verify-violations.table", broken)
	run("verify-limited.table", broken, "--limit=0")
}
