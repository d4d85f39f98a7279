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

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// The targets of the two functions.
const (
	settlePayout  = "SettlePayout"
	reconcileBank = "ReconcileBank"
)

// scenario is something that can happen to a payout.
type scenario struct {
	name string
	// plan is what becomes of transfers at the bank.
	plan fakebank.Plan
	// given is what has happened before.
	given []step
	// message is what is delivered, and delivered again after the crash. Defaults
	// to a payout for the bank.
	message string
	// target is the function that dies: SettlePayout by the first delivery of the
	// message, or ReconcileBank some time after that.
	target string
	// asked are the requests that it makes to the bank.
	asked []string
	// replayed is the outcome of a delivery that is not the first. Defaults to
	// duplicate.
	replayed string
	// end is how everything ends, wherever the process was killed.
	end tally
	// doubted, where it is not empty, is the state in which an instruction ends
	// that the crash left with a send of which nothing is known.
	doubted transfer.State
	// expired says that the receipt was deleted.
	expired bool
	// unreachable says that the process that delivers first cannot reach the bank.
	unreachable bool
	// runs are the runs of the reconciler after the delivery that are walked as
	// well, by what each asks of the bank.
	runs [][]string
}

// garbage is what no payout is.
const garbage = "no payout, stl-8472"

// scenarios are all that there are: each with the delivery that dies, and with each
// of its runs of the reconciler.
func scenarios() []scenario {
	var all []scenario
	for _, s := range append(withoutBank(), withBank()...) {
		s.target = settlePayout
		s.message, s.replayed = cmp.Or(s.message, bankPayout), cmp.Or(s.replayed, "duplicate")
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
	quarantined := tally{quarantined: 2} // the message that is published again is another one, with a row of its own
	changed := strings.Replace(plain, "4731", "4732", 1)
	return []scenario{
		{name: "fresh", message: plain, end: settled},
		{name: "duplicate", given: []step{delivery(plain)}, message: plain, end: settled},
		{name: "conflict", given: []step{delivery(plain)}, message: changed, replayed: "conflict", end: conflict},
		{name: "conflict again", given: []step{delivery(plain), delivery(changed)}, message: changed, replayed: "conflict", end: conflict},
		{name: "quarantine", message: garbage, replayed: "quarantined", end: quarantined},
		{name: "quarantine again", given: []step{delivery(garbage)}, message: garbage, replayed: "quarantined", end: quarantined},
		{name: "expired receipt", given: []step{delivery(plain), expiry}, message: plain, expired: true, end: tally{movements: 1}},
		{
			name: "conflict after the receipt's expiry", given: []step{delivery(plain), expiry}, message: changed, replayed: "conflict",
			expired: true, end: tally{movements: 1, conflicts: 1},
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

	send, ask, askAndSend := []string{http.MethodPost}, []string{http.MethodGet}, []string{http.MethodGet, http.MethodPost}
	attempts := func(a ...fakebank.Attempt) fakebank.Plan { return fakebank.Plan{Attempts: a} }
	life := func(changes ...fakebank.Change) fakebank.Plan { return fakebank.Plan{Life: changes} }
	lost := fakebank.Attempt{Answer: fakebank.AnswerReset}
	late := fakebank.Attempt{Execute: fakebank.ExecuteLate, LateBy: 5 * time.Minute, Answer: fakebank.AnswerReset}
	never := fakebank.Attempt{Execute: fakebank.ExecuteNever, Answer: fakebank.AnswerReset}
	busy := fakebank.Attempt{BeforeStatus: http.StatusTooManyRequests}
	refusal := fakebank.Attempt{Reject: "insufficient_funds"}
	return []scenario{
		{name: "bank accepts", end: confirmed, asked: send, runs: [][]string{ask}},
		{name: "bank rejects", plan: life(fakebank.Change{Status: fakebank.Rejected}), end: rejected, asked: send, runs: [][]string{ask}},
		{
			// A refusal proves nothing when an earlier send may have reached the bank.
			name: "bank refuses the send", plan: fakebank.Plan{Rest: refusal},
			end: refused, doubted: transfer.StateManual, asked: send,
		},
		{
			name: "bank out of reach, then refuses the send", plan: fakebank.Plan{Rest: refusal}, unreachable: true,
			end: refused, doubted: transfer.StateManual, runs: [][]string{send},
		},
		{
			name: "not found, sent again and refused", plan: fakebank.Plan{Attempts: []fakebank.Attempt{never}, Rest: refusal},
			end: unclear, asked: send, runs: [][]string{ask, askAndSend},
		},
		{name: "bank asks to come again", plan: attempts(busy), end: confirmed, asked: send, runs: [][]string{send, ask}},
		{name: "answer lost", plan: attempts(lost), end: confirmed, asked: send, runs: [][]string{ask}},
		{name: "answer lost, delivered again when due", plan: attempts(lost), given: []step{delivery(bankPayout), untilDue}, end: confirmed, asked: ask},
		{name: "bank executes late, after it was sent again", plan: attempts(late), end: missed, asked: send, runs: [][]string{ask, askAndSend, ask}},
		{name: "not found and sent again", plan: attempts(never), end: missed, asked: send, runs: [][]string{ask, askAndSend, ask}},
		{
			name: "returned", plan: life(fakebank.Change{Status: fakebank.Settled}, fakebank.Change{After: time.Hour, Status: fakebank.Returned}),
			end: returned, asked: send, runs: [][]string{ask, ask},
		},
	}
}

// perInstance is how many points an instance that nobody kills serves. One that
// has made 10 sends of which nothing is known holds new ones back for a while,
// which no scenario is about.
func (s scenario) perInstance() int {
	switch {
	case s.plan.Rest != (fakebank.Attempt{}):
		return 3 // with at most 3 such sends each
	case len(s.plan.Attempts) > 0:
		return 8 // with one each
	}
	return perLane
}

// reconciled is the scenario in which the reconciler dies in its n-th run.
func (s scenario) reconciled(n int) scenario {
	s.given = append(slices.Clone(s.given), s.firstDelivery())
	for range n - 1 {
		s.given = append(s.given, func(t *testing.T, l *lane, id string) { l.reconcile(t, id) })
	}
	s.given = append(s.given, untilDue)
	s.name, s.target, s.asked = fmt.Sprintf("%s, run %d of the reconciler", s.name, n), reconcileBank, s.runs[n-1]
	return s
}

// firstDelivery is the one that no crash meets.
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

// env is what the process that delivers first has in its environment beside the
// usual.
func (s scenario) env() []string {
	if !s.unreachable || s.target != settlePayout {
		return nil
	}
	return []string{"BANK_URL=" + nowhere}
}

// nowhere is where nobody listens: a port that needs rights, and that no program
// has used for decades.
const nowhere = "http://127.0.0.1:1"

// step is something that happens to a settlement before the process begins that is
// to die.
type step func(t *testing.T, l *lane, id string)

// messageID is that of the message that is delivered, and delivered again.
const messageID = "1001"

// delivery delivers the message, of the settlement stl-8472, as that of another.
func delivery(message string) step {
	return func(t *testing.T, l *lane, id string) {
		t.Helper()
		if a := l.settler.deliver(t.Context(), messageID, messageFor(message, id)); a.Status != 200 {
			t.Fatalf("delivered: %d %s %s", a.Status, a.Body, a.Error)
		}
	}
}

func messageFor(message, id string) string { return strings.ReplaceAll(message, "stl-8472", id) }

// untilDue lets time pass until the instruction is due.
func untilDue(t *testing.T, l *lane, id string) { l.pass(t, id) }

// expiry deletes the receipt, as Spanner does after the receipt retention.
func expiry(t *testing.T, l *lane, id string) {
	t.Helper()
	_, err := l.db.client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete("settlement_receipts", settlementKey(id))})
	if err != nil {
		t.Fatal(err)
	}
}

// request is the body of the request in which the process dies.
func (s scenario) request(id string) string {
	if s.target == reconcileBank {
		return "{}"
	}
	return push(messageID, messageFor(s.message, id))
}

// outcome is that of a delivery of the message, by what is there before.
func (s scenario) outcome(before tally) string {
	if before.movements == 0 && s.end.movements > 0 {
		return "applied"
	}
	return s.replayed
}

// endAfter is how everything ends after a crash that left something behind. Of
// what is counted by delivery, the two after the crash are added.
func (s scenario) endAfter(left tally) tally {
	end := s.end
	if left.doubtful && s.doubted != "" {
		end.instruction, end.reversals = s.doubted, 0
	}
	if end.conflicts+end.quarantined > 0 {
		end.counted = left.counted + 2
	}
	return end
}

// checkAcknowledged looks at what a process has acknowledged: it has to be there
// without another delivery. A run of the reconciler promises nothing.
func (s scenario) checkAcknowledged(t *testing.T, a answer, given, left tally) {
	t.Helper()
	switch {
	case a.Status != 200:
		t.Errorf("answered %d %s", a.Status, a.Body)
	case s.target == reconcileBank:
	case a.Outcome != s.outcome(given):
		t.Errorf("answered %s, want %s", a.Body, s.outcome(given))
	case left.movements != s.end.movements, left.receipts != s.end.receipts, left.conflicts != s.end.conflicts,
		left.quarantined == 0 && s.end.quarantined > 0,
		left.counted == given.counted && s.end.conflicts+s.end.quarantined > 0:
		t.Errorf("acknowledged %s, and there is %+v", a.Body, left)
	}
}
