package e2e_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/crash"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/fakebank"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

// The targets of the two functions.
const (
	settlePayout  = "SettlePayout"
	reconcileBank = "ReconcileBank"
)

// scenario is a history of one payout in which a process is killed.
type scenario struct {
	name string
	// plan is the bank's behaviour.
	plan fakebank.Plan
	// given are the steps before the process starts.
	given []step
	// message is delivered, and redelivered after the crash. Defaults to bankPayout.
	message string
	// attempt is Pub/Sub's number of the delivery. Defaults to 1.
	attempt int
	// dead is the point at which the RPC's connection dies; the zero value: never.
	dead crash.Point
	// target is the function that is killed: SettlePayout at the first delivery, or
	// ReconcileBank in a later run.
	target string
	// requests are its requests to the bank.
	requests []string
	// replayed is the outcome of every delivery but the first. Defaults to duplicate.
	replayed string
	// end is the final state, whichever point the process was killed at.
	end tally
	// doubted is the final state of an instruction that the crash left with a send of
	// unknown result. Defaults to the one in end.
	doubted transfer.State
	// expired says that the receipt was deleted.
	expired bool
	// unreachable says that the first delivery's process cannot reach the bank.
	unreachable bool
	// runs are the later runs of the reconciler, as their requests to the bank. Each is
	// walked as a scenario of its own.
	runs [][]string
}

const malformedMessage = "no payout, stl-8472"

// scenarios returns each scenario with its first delivery killed, and with each run of
// its reconciler killed.
func scenarios() []scenario {
	var all []scenario
	for _, s := range slices.Concat(withoutBank(), redelivered(), overDeadConnection(), withBank()) {
		s.target = settlePayout
		s.message, s.replayed, s.attempt = cmp.Or(s.message, bankPayout), cmp.Or(s.replayed, "duplicate"), cmp.Or(s.attempt, 1)
		all = append(all, s)
		for n := range s.runs {
			all = append(all, s.reconciled(n+1))
		}
	}
	return all
}

func withoutBank() []scenario {
	settled := tally{movements: 1, receipts: 1}
	conflict := tally{movements: 1, receipts: 1, conflicts: 1}
	quarantined := tally{quarantined: 2} // publishing it again makes another message with a row of its own
	changed := strings.Replace(plain, "4731", "4732", 1)
	return []scenario{
		{name: "fresh", message: plain, end: settled},
		{name: "duplicate", given: []step{delivery(plain)}, message: plain, end: settled},
		{name: "conflict", given: []step{delivery(plain)}, message: changed, replayed: "conflict", end: conflict},
		{name: "conflict again", given: []step{delivery(plain), delivery(changed)}, message: changed, replayed: "conflict", end: conflict},
		{name: "quarantine", message: malformedMessage, replayed: "quarantined", end: quarantined},
		{name: "quarantine again", given: []step{delivery(malformedMessage)}, message: malformedMessage, replayed: "quarantined", end: quarantined},
		{name: "expired receipt", given: []step{delivery(plain), expiry}, message: plain, expired: true, end: tally{movements: 1}},
		{
			name: "conflict after the receipt's expiry", given: []step{delivery(plain), expiry}, message: changed, replayed: "conflict",
			expired: true, end: tally{movements: 1, conflicts: 1},
		},
	}
}

// redelivered are scenarios in which the process gets the second delivery, and reads first.
func redelivered() []scenario {
	settled := tally{movements: 1, receipts: 1}
	conflict := tally{movements: 1, receipts: 1, conflicts: 1}
	changed := strings.Replace(plain, "4731", "4732", 1)
	return []scenario{
		{name: "redelivered, and not settled", attempt: 2, message: plain, end: settled},
		{name: "redelivered, and settled", attempt: 2, given: []step{delivery(plain)}, message: plain, end: settled},
		{name: "redelivered conflict", attempt: 2, given: []step{delivery(plain)}, message: changed, replayed: "conflict", end: conflict},
		{
			name: "redelivered known conflict", attempt: 2, given: []step{delivery(plain), delivery(changed)}, message: changed,
			replayed: "conflict", end: conflict,
		},
	}
}

// overDeadConnection are scenarios in which a connection of the process to Spanner stays
// open and carries nothing more.
func overDeadConnection() []scenario {
	settled := tally{movements: 1, receipts: 1}
	conflict := tally{movements: 1, receipts: 1, conflicts: 1}
	changed := strings.Replace(plain, "4731", "4732", 1)
	first := func(call string, at faultproxy.Stage) crash.Point { return crash.Point{Call: call, At: at, N: 1} }
	return []scenario{
		{name: "connection dead before the commit", dead: first("Commit", faultproxy.Requested), message: plain, end: settled},
		{name: "connection dead after the commit", dead: first("Commit", faultproxy.Answered), message: plain, end: settled},
		{
			name: "connection dead at the first read", dead: first("StreamingRead", faultproxy.Requested), given: []step{delivery(plain)},
			message: plain, end: settled,
		},
		{
			name: "connection dead after the commit of a conflict", dead: crash.Point{Call: "Commit", At: faultproxy.Answered, N: 2},
			given: []step{delivery(plain)}, message: changed, replayed: "conflict", end: conflict,
		},
		{
			name: "connection dead after the commit of a quarantine", dead: first("Commit", faultproxy.Answered), message: malformedMessage,
			replayed: "quarantined", end: tally{quarantined: 2},
		},
	}
}

func withBank() []scenario {
	confirmed := tally{movements: 1, receipts: 1, instruction: transfer.StateConfirmed, executed: 1, moved: 1}
	rejected := tally{movements: 1, receipts: 1, instruction: transfer.StateRejected, executed: 1, reversals: 1}
	refused := tally{movements: 1, receipts: 1, instruction: transfer.StateRejected, reversals: 1}
	returned := tally{movements: 1, receipts: 1, instruction: transfer.StateReturned, executed: 1, reversals: 1}
	missed := confirmed
	missed.missed = true
	unclear := tally{movements: 1, receipts: 1, instruction: transfer.StateManual, missed: true}

	send, check, checkAndSend := []string{http.MethodPost}, []string{http.MethodGet}, []string{http.MethodGet, http.MethodPost}
	attempts := func(a ...fakebank.Attempt) fakebank.Plan { return fakebank.Plan{Attempts: a} }
	life := func(changes ...fakebank.Change) fakebank.Plan { return fakebank.Plan{Life: changes} }
	lost := fakebank.Attempt{Answer: fakebank.AnswerReset}
	late := fakebank.Attempt{Execute: fakebank.ExecuteLate, LateBy: 5 * time.Minute, Answer: fakebank.AnswerReset}
	never := fakebank.Attempt{Execute: fakebank.ExecuteNever, Answer: fakebank.AnswerReset}
	busy := fakebank.Attempt{BeforeStatus: http.StatusTooManyRequests}
	refusal := fakebank.Attempt{Reject: "insufficient_funds"}
	return []scenario{
		{name: "bank accepts", end: confirmed, requests: send, runs: [][]string{check}},
		{name: "bank rejects", plan: life(fakebank.Change{Status: fakebank.Rejected}), end: rejected, requests: send, runs: [][]string{check}},
		{
			// A refusal is no proof if an earlier send may have reached the bank.
			name: "bank refuses the send", plan: fakebank.Plan{Rest: refusal},
			end: refused, doubted: transfer.StateManual, requests: send,
		},
		{
			name: "bank unreachable, then refuses the send", plan: fakebank.Plan{Rest: refusal}, unreachable: true,
			end: refused, doubted: transfer.StateManual, runs: [][]string{send},
		},
		{
			name: "not found, resent and refused", plan: fakebank.Plan{Attempts: []fakebank.Attempt{never}, Rest: refusal},
			end: unclear, requests: send, runs: [][]string{check, checkAndSend},
		},
		{name: "bank asks for a retry", plan: attempts(busy), end: confirmed, requests: send, runs: [][]string{send, check}},
		{name: "answer lost", plan: attempts(lost), end: confirmed, requests: send, runs: [][]string{check}},
		{name: "answer lost, redelivered when due", plan: attempts(lost), given: []step{delivery(bankPayout), untilDue}, end: confirmed},
		{name: "bank executes late, after a resend", plan: attempts(late), end: missed, requests: send, runs: [][]string{check, checkAndSend, check}},
		{name: "not found and resent", plan: attempts(never), end: missed, requests: send, runs: [][]string{check, checkAndSend, check}},
		{
			name: "returned", plan: life(fakebank.Change{Status: fakebank.Settled}, fakebank.Change{After: time.Hour, Status: fakebank.Returned}),
			end: returned, requests: send, runs: [][]string{check, check},
		},
	}
}

// perInstance is the number of points that a surviving instance serves. After 10 sends
// with unknown results an instance defers new ones, which no scenario is about.
func (s scenario) perInstance() int {
	switch {
	case s.plan.Rest != (fakebank.Attempt{}):
		return 3 // each has at most 3 such sends
	case len(s.plan.Attempts) > 0:
		return 8 // each has one
	}
	return pointsPerLane
}

// reconciled returns the scenario with the reconciler killed in its n-th run.
func (s scenario) reconciled(n int) scenario {
	s.given = append(slices.Clone(s.given), s.firstDelivery())
	for range n - 1 {
		s.given = append(s.given, func(t *testing.T, l *lane, id string) { l.reconcile(t, id) })
	}
	s.given = append(s.given, untilDue)
	s.name, s.target, s.requests = fmt.Sprintf("%s, run %d of the reconciler", s.name, n), reconcileBank, s.runs[n-1]
	return s
}

// firstDelivery is the delivery before the reconciler's run.
func (s scenario) firstDelivery() step {
	if !s.unreachable {
		return delivery(s.message)
	}
	return func(t *testing.T, l *lane, id string) {
		t.Helper()
		settler := l.start(t, settlePayout, emulatortest.Spanner(t).GRPC, s.env()...)
		defer settler.kill()
		if a := settler.deliver(t.Context(), messageID, messageFor(s.message, id)); a.Status != 200 {
			t.Fatalf("delivered: %d %s %s", a.Status, a.Body, a.Error)
		}
	}
}

// env is additional environment of the first delivery's process.
func (s scenario) env() (env []string) {
	if s.unreachable && s.target == settlePayout {
		env = append(env, "BANK_URL="+nowhere)
	}
	if s.dead.N > 0 {
		env = append(env, "SETTLE_TIMEOUT=10s") // the least; an attempt has a third of it
	}
	return env
}

// nowhere has no listener: the port needs privileges, and no common program uses it.
const nowhere = "http://127.0.0.1:1"

// step changes a settlement before the process starts.
type step func(t *testing.T, l *lane, id string)

// messageID is the ID of the delivered and redelivered message.
const messageID = "1001"

// delivery delivers the message with the settlement ID stl-8472 replaced.
func delivery(message string) step {
	return func(t *testing.T, l *lane, id string) {
		t.Helper()
		if a := l.settler.deliver(t.Context(), messageID, messageFor(message, id)); a.Status != 200 {
			t.Fatalf("delivered: %d %s %s", a.Status, a.Body, a.Error)
		}
	}
}

func messageFor(message, id string) string { return strings.ReplaceAll(message, "stl-8472", id) }

func untilDue(t *testing.T, l *lane, id string) { l.advanceUntilDue(t, id) }

// expiry deletes the receipt, as Spanner does at the end of the receipt retention.
func expiry(t *testing.T, l *lane, id string) {
	t.Helper()
	_, err := l.db.client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete("settlement_receipts", settlementKey(id))})
	if err != nil {
		t.Fatal(err)
	}
}

// request is the body of the request during which the process is killed.
func (s scenario) request(id string) string {
	if s.target == reconcileBank {
		return push("tick", event.Tick)
	}
	return pushAgain(messageID, messageFor(s.message, id), s.attempt)
}

// outcome is the expected outcome of a delivery of the message.
func (s scenario) outcome(before tally) string {
	if before.movements == 0 && s.end.movements > 0 {
		return "applied"
	}
	return s.replayed
}

// endAfter is the final state after a crash that left a state.
func (s scenario) endAfter(left tally) tally {
	end := s.end
	if left.doubtful && s.doubted != "" {
		end.instruction, end.reversals = s.doubted, 0
	}
	return end
}

// checkAcknowledged requires that the effect of an acknowledged delivery is in the
// database without a redelivery. A run of the reconciler promises nothing.
func (s scenario) checkAcknowledged(t *testing.T, a answer, before, after tally) {
	t.Helper()
	switch {
	case a.Status != 200:
		t.Errorf("answered %d %s", a.Status, a.Body)
	case s.target == reconcileBank:
	case a.Outcome != s.outcome(before):
		t.Errorf("answered %s, want %s", a.Body, s.outcome(before))
	case a.Known != (before.conflicts+before.quarantined > 0):
		t.Errorf("answered %s, and before the state was %+v", a.Body, before)
	case after.movements != s.end.movements, after.receipts != s.end.receipts, after.conflicts != s.end.conflicts,
		after.quarantined == 0 && s.end.quarantined > 0:
		t.Errorf("acknowledged %s, and the state is %+v", a.Body, after)
	}
}
