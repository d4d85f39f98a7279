package main

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/crash"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/fakebank"
	"github.com/settleonce/settleonce/schema"
)

// The settlements of [fixture.fill], one of each kind.
const (
	stlApplied    = "stl-8472" // USD by default, no bank
	stlDuplicate  = "stl-8473" // delivered twice
	stlConflict   = "stl-8474" // one open conflict, of two members, delivered twice
	stlConflicts  = "stl-8475" // two conflicts: one open, one resolved
	stlExpired    = "stl-8476" // its receipt has expired
	stlConfirmed  = "stl-8480"
	stlRejected   = "stl-8481" // reversed
	stlReturned   = "stl-8482" // reversed
	stlAccepted   = "stl-8483"
	stlUncertain  = "stl-8484" // not found once
	stlDeferred   = "stl-8485" // the bank asked to retry later
	stlHeld       = "stl-8486" // the bank rejected our credentials
	stlOther      = "stl-8490" // manual: the bank answered with another transfer
	stlForgotten  = "stl-8491" // manual: the bank may have forgotten the key
	stlImpatience = "stl-8492" // manual: no final answer in 7 days
	stlTwice      = "stl-8493" // manual: two transfers under the key
	stlBlocked    = "stl-8494" // manual: the bank's status is for a person
	stlVanished   = "stl-8495" // manual: the bank no longer knows the accepted transfer
)

// stlEverything has IDs of the maximum length, two conflicts, and an instruction that was
// sent twice, accepted, confirmed and returned.
var stlEverything = longID("stl-9000:")

func longID(begin string) string { return begin + strings.Repeat("0123456789", 13)[:128-len(begin)] }

const (
	fixtureToken        = "token"
	fixtureSubscription = "projects/p/subscriptions/payouts"
)

// fixture is a test's own database on the emulator, with the real service and a fake
// bank. Only the test makes steps and advances the clock of service and bank; commit
// timestamps are the emulator's.
type fixture struct {
	t        *testing.T
	database databaseFlags
	client   *spanner.Client // for direct reads and writes
	store    *spannerstore.Store
	bank     *fakebank.Bank
	gate     *crash.Gate // between the service and the bank
	clock    *fakebank.Clock
	stepper  *transfer.Stepper
	service  *settle.Service
	ids      atomic.Int64
}

// newFixture returns an empty fixture. Its clock starts at the present time.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{
		t: t, clock: fakebank.NewClock(time.Now().UTC().Truncate(time.Microsecond)),
		database: databaseFlags{name: emulatortest.Database(t, statements), emulator: emulatortest.Spanner(t).GRPC},
	}
	if f.client, err = f.database.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.client.Close)
	if f.store, err = spannerstore.Open(t.Context(), f.database.storeConfig()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.store.Close)
	f.bank = fakebank.New(t, f.clock.Now, fakebank.Options{Token: fixtureToken, SettlementOf: paidBy})
	f.gate = crash.NewGate(t, f.bank)
	profile := bank.GenericProfile()
	client, err := bank.New(bank.Config{BaseURL: f.gate.URL, Token: fixtureToken, Profile: profile, Now: f.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	f.stepper = &transfer.Stepper{
		Store: f.store, Bank: client, NewID: f.newID, Now: f.clock.Now, Log: slog.New(slog.DiscardHandler),
		Policy: transfer.Policy{
			KeyLifetime: profile.KeyLifetime, VisibilityLag: profile.VisibilityLag,
			SendTimeout: bank.DefaultSendTimeout, StatusTimeout: bank.DefaultStatusTimeout,
		},
	}
	f.service = &settle.Service{Store: f.store, Banking: f.stepper, DefaultCurrency: "USD", NewID: f.newID, Now: f.clock.Now}
	return f
}

// newID returns ascending IDs in the form of a UUID.
func (f *fixture) newID() string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", f.ids.Add(1)) }

// env is the environment of a program on this database.
func (f *fixture) env() map[string]string {
	return map[string]string{"SPANNER_DATABASE": f.database.name, "SPANNER_EMULATOR_HOST": f.database.emulator}
}

// run runs the program with the fixture's database and clock.
func (f *fixture) run(args ...string) outcome {
	f.t.Helper()
	return settlectlAt(f.t, f.clock.Now, nil, f.env(), args...)
}

// message returns a message with a new ID.
func (f *fixture) message(data string) settle.Message {
	return settle.Message{
		ID: fmt.Sprintf("%d", 7_000_000_000_000_000+f.ids.Add(1)), Subscription: fixtureSubscription, Source: fixtureSubscription,
		PublishTime: f.clock.Now().Add(-time.Second), Data: []byte(data),
	}
}

// deliver delivers a message once for each wanted outcome.
func (f *fixture) deliver(data string, want ...settle.Outcome) {
	f.t.Helper()
	message := f.message(data)
	for _, outcome := range want {
		f.handOver(settle.Delivery{Message: message}, outcome)
	}
}

func (f *fixture) handOver(d settle.Delivery, want settle.Outcome) {
	f.t.Helper()
	result, err := f.service.Deliver(f.t.Context(), d)
	if err != nil || result.Outcome != want {
		f.t.Fatalf("deliver %s: %v, %v; want %v", d.Message.Data, result.Outcome, err, want)
	}
}

// step makes a step of a settlement's instruction at a later time, without advancing the
// clock.
func (f *fixture) step(id string, later time.Duration, want transfer.State) {
	f.t.Helper()
	stepper := *f.stepper
	stepper.Now = func() time.Time { return f.stepper.Now().Add(later) }
	state, err := stepper.Step(f.t.Context(), id)
	if err != nil || state != want {
		f.t.Fatalf("step of %s: %q, %v; want %q", id, state, err, want)
	}
}

// apply writes rows directly.
func (f *fixture) apply(rows ...*spanner.Mutation) {
	f.t.Helper()
	if _, err := f.client.Apply(f.t.Context(), rows); err != nil {
		f.t.Fatal(err)
	}
}

// key returns the primary key of a settlement's rows.
func key(id string) []byte {
	sum := sha256.Sum256([]byte(id))
	return sum[:]
}

// payoutJSON is a payout message with a creditor of its own, by which tests script the
// bank.
func payoutJSON(id, account, amount, currency string) string {
	return fmt.Sprintf(`{"settlement_id":%q,"account_id":%q,"amount_cents":%s,"currency":%q,"creditor_account":%q,"reference":%q}`,
		id, account, amount, currency, creditor(id), "claim of "+id[:8])
}

func creditor(id string) string { return strings.Replace(id, "stl", "cp", 1) }

// paidBy returns the settlement of a transfer, by its creditor.
func paidBy(tr fakebank.Transfer) string {
	return strings.Replace(tr.CreditorAccount, "cp", "stl", 1)
}

// script sets the bank's plan for a settlement's transfer.
func (f *fixture) script(id string, plan fakebank.Plan) { f.bank.ScriptCreditor(creditor(id), plan) }

// lost is a send that the bank forgets and answers with an ambiguous error.
var lost = fakebank.Attempt{Execute: fakebank.ExecuteNever, AfterStatus: 500}

// fill adds every kind of case.
func (f *fixture) fill() *fixture {
	f.t.Helper()
	f.fillLedger()
	f.fillQuarantine()
	f.fillEverything()
	f.fillBank()
	f.fillManual()
	f.fillHeld()
	return f
}

func (f *fixture) fillLedger() {
	f.t.Helper()
	const applied, duplicate, conflict = settle.OutcomeApplied, settle.OutcomeDuplicate, settle.OutcomeConflict
	f.deliver(`{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"metadata":{"batch":"B-7","source":"\u001b[2Jclaims"}}`, applied)
	f.deliver(`{"settlement_id":"stl-8473","account_id":"reserve-claims","amount_cents":125000,"currency":"EUR"}`, applied, duplicate)
	f.deliver(`{"settlement_id":"stl-8474","account_id":"reserve-claims","amount_cents":2500,"currency":"EUR"}`, applied)
	f.deliver(`{"settlement_id":"stl-8474","account_id":"reserve-fees","amount_cents":2600,"currency":"EUR"}`, conflict, conflict)
	f.deliver(`{"settlement_id":"stl-8475","account_id":"reserve-fees","amount_cents":99,"reference":"fee 11"}`, applied)
	f.deliver(`{"settlement_id":"stl-8475","account_id":"reserve-fees","amount_cents":99,"currency":"USD","reference":"fee 11"}`, conflict)
	f.deliver(`{"settlement_id":"stl-8475","account_id":"reserve-fees","amount_cents":98,"reference":"fee \u202e11"}`, conflict)
	f.resolveConflict(stlConflicts, `{"settlement_id":"stl-8475","account_id":"reserve-fees","amount_cents":99,"currency":"USD","reference":"fee 11"}`)
	f.deliver(`{"settlement_id":"stl-8476","account_id":"reserve-claims","amount_cents":80000,"currency":"JPY"}`, applied)
	f.apply(spanner.Delete("settlement_receipts", spanner.Key{key(stlExpired)})) // the effect of the row deletion policy
}

// resolveConflict closes the conflict with a message.
func (f *fixture) resolveConflict(id, message string) {
	f.t.Helper()
	p, err := payout.Decode([]byte(message), "USD")
	if err != nil {
		f.t.Fatal(err)
	}
	f.apply(spanner.UpdateMap("settlement_conflicts", map[string]any{
		"settlement_id": id, "payload_hash": string(p.Hash()),
		"resolved_at": spanner.CommitTimestamp, "resolved_by": "ines@example.com", "note": "the producer now writes the currency out; the same payout",
	}))
}

func (f *fixture) fillQuarantine() {
	f.t.Helper()
	for _, data := range []string{
		`not JSON`,
		`{"settlement_id":"stl-8499","account_id":"reserve-claims","amount_cents":1,"amount_cents":2}`,
		`{"settlement_id":"stl-8499","account_id":"reserve-claims","amount_cents":1,"Amount":2}`,
		`{"settlement_id":"stl-8499","amount_cents":1}`,
		`{"settlement_id":"stl-8499","account_id":"reserve-claims","amount_cents":47.31}`,
		" ",
	} {
		f.deliver(data, settle.OutcomeQuarantined)
	}
	strange := f.message("{}")
	strange.ID, strange.Subscription, strange.Source, strange.Attributes = "m\x1b[2J-1", "", "", map[string]string{"ce-type": "google.cloud.storage.object.v1.finalized"}
	f.handOver(settle.Delivery{Message: strange, Refusal: &payout.Refusal{
		Reason: payout.ReasonUnsupportedEvent, Detail: "the event's type is not google.cloud.pubsub.topic.v1.messagePublished",
	}}, settle.OutcomeQuarantined)
	released := f.message(`{"settlement_id":"stl-8498","account_id":"reserve-claims","amount_cents":"1"}`)
	f.handOver(settle.Delivery{Message: released}, settle.OutcomeQuarantined)
	f.apply(spanner.UpdateMap("quarantined_messages", map[string]any{
		"identity":    settle.Quarantined{Message: released}.Identity(),
		"released_at": spanner.CommitTimestamp, "released_by": "ines@example.com", "note": "amount corrected", "expire_from": spanner.CommitTimestamp,
	}))
}

func (f *fixture) fillEverything() {
	f.t.Helper()
	id, account, to := stlEverything, longID("reserve:"), longID("cp:")
	message := func(amount, reference string) string {
		return fmt.Sprintf(`{"settlement_id":%q,"account_id":%q,"amount_cents":%s,"currency":"BHD","creditor_account":%q,"reference":%q,"metadata":{"batch":"B-8","operator":%q}}`,
			id, account, amount, to, reference, strings.Repeat("Größe 東京 ", 20))
	}
	reference := strings.Repeat("claim 19-4431, ", 9)
	f.bank.ScriptCreditor(to, fakebank.Plan{
		Attempts: []fakebank.Attempt{lost},
		Life:     []fakebank.Change{{Status: "ACSP"}, {After: time.Hour, Status: fakebank.Settled}, {After: 20 * time.Hour, Status: fakebank.Returned, Reason: "AC04"}},
	})
	f.deliver(message("1234567", reference), settle.OutcomeApplied)
	f.clock.Advance(36 * time.Second)
	f.step(id, 0, transfer.StateUncertain) // not found
	f.deliver(message("1234568", reference), settle.OutcomeConflict)
	f.clock.Advance(40 * time.Second)
	f.step(id, 0, transfer.StateAccepted) // not found twice: sent again
	f.deliver(message("1234567", "claim 19-4432"), settle.OutcomeConflict, settle.OutcomeConflict)
	f.clock.Advance(16 * time.Second)
	f.step(id, 0, transfer.StateAccepted) // pending
	f.clock.Advance(80 * time.Minute)
	f.step(id, 0, transfer.StateConfirmed)
	f.clock.Advance(30 * time.Hour)
	f.step(id, 0, transfer.StateReturned)
}

func (f *fixture) fillBank() {
	f.t.Helper()
	f.script(stlRejected, fakebank.Plan{Rest: fakebank.Attempt{Reject: "insufficient_funds"}})
	f.script(stlReturned, fakebank.Plan{Life: []fakebank.Change{{Status: fakebank.Settled}, {After: 10 * time.Second, Status: fakebank.Returned}}})
	f.script(stlAccepted, fakebank.Plan{Life: []fakebank.Change{{Status: "ACSP"}}})
	f.script(stlUncertain, fakebank.Plan{Rest: lost})
	f.script(stlDeferred, fakebank.Plan{Rest: fakebank.Attempt{BeforeStatus: 429, RetryAfter: "600"}})
	for _, message := range []string{
		payoutJSON(stlConfirmed, "reserve-claims", "310000", "EUR"),
		payoutJSON(stlRejected, "reserve-claims", "2500", "BHD"),
		payoutJSON(stlReturned, "reserve-claims", "15000", "JPY"),
		payoutJSON(stlAccepted, "reserve-fees", "4200", "EUR"),
		payoutJSON(stlUncertain, "reserve-claims", "47310", "USD"),
		payoutJSON(stlDeferred, "reserve-fees", "700", "USD"),
	} {
		f.deliver(message, settle.OutcomeApplied)
	}
	f.clock.Advance(36 * time.Second)
	f.step(stlConfirmed, 0, transfer.StateConfirmed)
	f.step(stlReturned, 0, transfer.StateReturned)
	f.step(stlAccepted, 0, transfer.StateAccepted)
	f.step(stlUncertain, 0, transfer.StateUncertain)
}

func (f *fixture) fillManual() {
	f.t.Helper()
	f.script(stlOther, fakebank.Plan{Rest: fakebank.Attempt{Answer: fakebank.AnswerWrongAmount}})
	f.script(stlForgotten, fakebank.Plan{Rest: lost})
	f.script(stlImpatience, fakebank.Plan{Rest: lost, StepsRest: fakebank.Step{HTTPStatus: 500}})
	f.script(stlTwice, fakebank.Plan{StepsRest: fakebank.Step{Say: fakebank.SayTwice}})
	f.script(stlBlocked, fakebank.Plan{StepsRest: forPeople})
	f.script(stlVanished, fakebank.Plan{Rest: fakebank.Attempt{Execute: fakebank.ExecuteNever}})
	for _, id := range []string{stlOther, stlForgotten, stlImpatience, stlTwice, stlBlocked, stlVanished} {
		f.deliver(payoutJSON(id, "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	}
	const manual, day = transfer.StateManual, 24 * time.Hour
	f.step(stlForgotten, 20*time.Hour, manual)
	f.step(stlImpatience, 8*day, manual)
	f.step(stlTwice, time.Minute, manual)
	f.step(stlBlocked, time.Minute, manual)
	f.step(stlVanished, time.Minute, manual)
}

// block settles a payout whose instruction becomes manual.
func (f *fixture) block(id string) {
	f.t.Helper()
	f.script(id, fakebank.Plan{StepsRest: forPeople})
	f.deliver(payoutJSON(id, "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	f.step(id, time.Minute, transfer.StateManual)
}

// fillHeld comes last, because it opens the circuit breaker of the bank's client.
func (f *fixture) fillHeld() {
	f.t.Helper()
	f.script(stlHeld, fakebank.Plan{Rest: fakebank.Attempt{BeforeStatus: 401}})
	f.deliver(payoutJSON(stlHeld, "reserve-claims", "1", "EUR"), settle.OutcomeApplied)
}
