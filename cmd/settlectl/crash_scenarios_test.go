package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// rpcPublish is the method of Pub/Sub.
const rpcPublish = "Publish"

// notSpanners are requests to the bank and to Pub/Sub.
var notSpanners = []string{http.MethodGet, http.MethodPost, rpcPublish}

// crashNote is the note of every command.
const crashNote = "letter of the bank, ref 4711"

// alsoReleased ends the ID of a settlement that is released together with another.
const alsoReleased = "-2"

// crashScenario is a command that changes rows.
type crashScenario struct {
	name string
	// given prepares the settlement for the command.
	given func(l *crashLane, id string)
	// args are the command.
	args func(l *crashLane, id string) []string
	// sends are its requests to the bank and to Pub/Sub.
	sends []string
	// does is the effect of the command, all at once but for a command inParts.
	does    standing
	inParts bool
	// answers reports whether a second run of the command gave the right answer; done
	// tells whether the first run was complete.
	answers func(done bool, got outcome) bool
	// end is the final state, whatever the crash point.
	end standing
}

func crashScenarios() []crashScenario {
	return append(append(crashingDecisions(), crashingReleases()...), crashingResolutions()...)
}

// flags appends the flags of all commands.
func flags(command ...string) []string { return append(command, "--by", "ines", "--note", crashNote) }

// decides returns the command of a decision.
func decides(more ...string) func(*crashLane, string) []string {
	return func(_ *crashLane, id string) []string {
		return append(append(flags("decide", id), "--second", "bert", "--json"), more...)
	}
}

func succeeds(_ bool, got outcome) bool { return got.code == term.ExitOK }

// madeOnce checks the answer of decide.
func madeOnce(done bool, got outcome) bool {
	verdict := `"verdict":"made"`
	if done {
		verdict = `"verdict":"made before"`
	}
	return got.code == term.ExitOK && strings.Contains(got.out, verdict)
}

// publishedOnce checks the answer of release for one message.
func publishedOnce(done bool, got outcome) bool {
	if done {
		return got.code == term.ExitNo && strings.Contains(got.errOut, `it was released by "ines"`)
	}
	return got.code == term.ExitOK && strings.Contains(got.out, "published")
}

// sentOnce checks the answer of reconcile. The killed process can still hold the lease.
func sentOnce(done bool, got outcome) bool {
	if got.code == term.ExitOK {
		return !done
	}
	return got.code == term.ExitNo && (strings.Contains(got.errOut, "another step is working on it") || strings.Contains(got.errOut, "it is due at "))
}

// forPeople is a status that makes an instruction manual.
var forPeople = fakebank.Step{Status: "BLCK"}

func crashingDecisions() []crashScenario {
	const (
		confirmed, rejected, returned = transfer.StateConfirmed, transfer.StateRejected, transfer.StateReturned
	)
	asked := []string{http.MethodGet}
	undone := standing{movements: 1, receipts: 1, reversals: 1, decisions: 1, instruction: rejected}
	paid := standing{movements: 1, receipts: 1, decisions: 1, executed: 1, moved: 1, instruction: confirmed}
	sentBack := standing{movements: 1, receipts: 1, reversals: 1, decisions: 1, executed: 1, instruction: returned}
	sentBackLate := sentBack
	sentBackLate.instruction = rejected
	return []crashScenario{
		{
			name: "decide confirmed", args: decides("--confirmed"), answers: madeOnce, sends: asked, end: paid,
			given: manual(fakebank.Plan{Steps: []fakebank.Step{forPeople}}, time.Minute), does: standing{decisions: 1, instruction: confirmed},
		},
		{
			name: "decide rejected", args: decides("--rejected"), answers: madeOnce, sends: asked, end: undone,
			given: manual(lostPlan, forgotten), does: standing{decisions: 1, reversals: 1, instruction: rejected},
		},
		{
			name: "decide rejected after a return", args: decides("--rejected"), answers: madeOnce, sends: asked, end: sentBack,
			given: manual(fakebank.Plan{Steps: []fakebank.Step{forPeople}, Life: []fakebank.Change{{Status: fakebank.Returned}}}, time.Minute),
			does:  standing{decisions: 1, reversals: 1, instruction: returned},
		},
		{
			name: "decide rejected after a reversal", args: decides("--rejected"), answers: madeOnce, sends: asked, end: sentBackLate,
			given: executedAfterAll, does: standing{decisions: 1, reversals: 1, instruction: rejected},
		},
		{
			name: "reconcile with a resend", sends: []string{http.MethodGet, http.MethodPost}, inParts: true, answers: sentOnce,
			args:  func(_ *crashLane, id string) []string { return []string{"reconcile", id} },
			given: notFoundOnce, does: standing{instruction: transfer.StateAccepted},
			end: standing{movements: 1, receipts: 1, executed: 1, moved: 1, instruction: confirmed},
		},
	}
}

// forgotten is the age at which the reconciler assumes that the bank forgot a key.
const forgotten = 20 * time.Hour

// manual settles a payout whose transfer follows the plan, and makes its instruction
// manual after some time.
func manual(plan fakebank.Plan, after time.Duration) func(*crashLane, string) {
	return func(l *crashLane, id string) {
		l.t.Helper()
		l.script(id, plan)
		l.deliver(payoutJSON(id, "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
		l.pass(id, after)
		l.step(id, 0, transfer.StateManual)
	}
}

// notFoundOnce is a payout whose send was lost, and which the next step sends again: the
// first check comes too early to count, the second is the first not-found that counts.
func notFoundOnce(l *crashLane, id string) {
	l.t.Helper()
	l.script(id, lostPlan)
	l.deliver(payoutJSON(id, "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	for range 2 {
		l.passUntilDue(id)
		l.step(id, 0, transfer.StateUncertain)
	}
	l.script(id, executedPlan)
	l.passUntilDue(id)
}

// executedAfterAll is a transfer that the bank first rejected, then executed and
// finally returned.
func executedAfterAll(l *crashLane, id string) {
	l.t.Helper()
	say := func(status string) {
		if err := l.bank.Settle(transfer.InstructionKey(id).String(), status); err != nil {
			l.t.Fatal(err)
		}
	}
	l.script(id, fakebank.Plan{Life: []fakebank.Change{{Status: fakebank.Rejected}}})
	l.deliver(payoutJSON(id, "reserve-claims", "5000", "EUR"), settle.OutcomeApplied)
	l.passUntilDue(id)
	l.step(id, 0, transfer.StateRejected)
	say(fakebank.Settled)
	l.passUntilDue(id)
	l.step(id, 0, transfer.StateManual)
	say(fakebank.Returned)
}

func crashingResolutions() []crashScenario {
	payoutOf := func(id, amount string) string {
		return strings.NewReplacer("ID", id, "AMOUNT", amount).Replace(`{"settlement_id":"ID","account_id":"reserve-claims","amount_cents":AMOUNT}`)
	}
	closed := standing{movements: 1, receipts: 1, resolved: 1}
	oneLeft := closed
	oneLeft.conflicts = 1
	return []crashScenario{
		{
			name: "resolve a conflict", does: standing{resolved: 1}, answers: succeeds, end: closed,
			args: func(_ *crashLane, id string) []string { return flags("resolve", "conflict", id) },
			given: func(l *crashLane, id string) {
				l.deliver(payoutOf(id, "1"), settle.OutcomeApplied)
				l.deliver(payoutOf(id, "2"), settle.OutcomeConflict)
			},
		},
		{
			name: "resolve one of two conflicts", does: standing{resolved: 1}, answers: succeeds, end: oneLeft,
			args: func(l *crashLane, id string) []string {
				p, err := payout.Decode([]byte(payoutOf(id, "3")), "USD")
				if err != nil {
					l.t.Fatal(err)
				}
				return flags("resolve", "conflict", id, "--hash", string(p.Hash()))
			},
			given: func(l *crashLane, id string) {
				l.deliver(payoutOf(id, "1"), settle.OutcomeApplied)
				l.deliver(payoutOf(id, "2"), settle.OutcomeConflict)
				l.deliver(payoutOf(id, "3"), settle.OutcomeConflict)
			},
		},
	}
}

func crashingReleases() []crashScenario {
	released := standing{movements: 1, receipts: 1, released: 1}
	three := standing{movements: 2, receipts: 2, released: 3}
	const withoutCurrency = `{"settlement_id":"ID","account_id":"reserve-claims","amount_cents":1}`
	return []crashScenario{
		{
			name: "release a message", sends: []string{rpcPublish}, does: standing{released: 1}, answers: publishedOnce, end: released,
			given: quarantined(withoutCurrency),
			args:  func(l *crashLane, id string) []string { return l.releases(l.messages[id][0]) },
		},
		{
			name: "release an edited message", sends: []string{rpcPublish}, does: standing{released: 1}, answers: publishedOnce, end: released,
			given: quarantined(`{"settlement_id":"ID","account_id":"reserve-claims","amount_cents":"1"}`),
			args: func(l *crashLane, id string) []string {
				edited := filepath.Join(l.t.TempDir(), "edited.json")
				if err := os.WriteFile(edited, []byte(strings.ReplaceAll(withoutCurrency, "ID", id)), 0o600); err != nil {
					l.t.Fatal(err)
				}
				return l.releases(l.messages[id][0], "--edit", edited)
			},
		},
		{
			// Two of the messages are the same payout.
			name: "release all of a reason", sends: []string{rpcPublish, rpcPublish, rpcPublish}, does: standing{released: 3}, inParts: true, answers: succeeds, end: three,
			given: quarantined(withoutCurrency, withoutCurrency, strings.Replace(withoutCurrency, "ID", "ID"+alsoReleased, 1)),
			args: func(l *crashLane, _ string) []string {
				return l.releases("--all", "--reason", "missing_field", "--yes")
			},
		},
	}
}

// releases returns the command of a release.
func (l *crashLane) releases(args ...string) []string {
	return append(flags(append([]string{"release"}, args...)...), "--topic", l.topic.name)
}

// quarantined delivers messages that the function refuses without a default currency.
func quarantined(messages ...string) func(*crashLane, string) {
	return func(l *crashLane, id string) {
		l.t.Helper()
		l.service.DefaultCurrency = ""
		defer func() { l.service.DefaultCurrency = "USD" }()
		for _, data := range messages {
			m := l.message(strings.ReplaceAll(data, "ID", id))
			l.handOver(settle.Delivery{Message: m}, settle.OutcomeQuarantined)
			l.messages[id] = append(l.messages[id], m.ID)
		}
	}
}
