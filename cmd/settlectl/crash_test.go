package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/crash"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

// TestEveryCrashPoint kills settlectl, in a process of its own, just before and just
// after each of its RPCs to Spanner and Pub/Sub and each bank request, for every command
// that changes rows. Then it runs the same command again, delivers the published
// messages, runs the reconciler, and checks the whole state.
func TestEveryCrashPoint(t *testing.T) {
	t.Parallel()
	var (
		walker = crash.New(crashLanes, crashesPerLane)
		wg     sync.WaitGroup
	)
	for _, s := range crashScenarios() {
		wg.Go(func() { t.Run(s.name, func(t *testing.T) { walker.Walk(t, s.open, s.check) }) })
	}
	wg.Wait()
	t.Log(walker.Summary())
}

const (
	// crashLanes mostly wait for transactions in the emulator.
	crashLanes = 8
	// crashesPerLane exceeds the points of a scenario, because a settlement that a crash
	// left unchanged serves the next point.
	crashesPerLane = 100
	// mostTries bounds the retries after an error. A killed process can leave a transaction
	// open, which can block others in the emulator for longer than a command waits.
	mostTries = 5
	// mostSteps bounds the steps after a crash.
	mostSteps = 12
)

// crashLane is a database, a bank and a topic for the points that run one after another.
type crashLane struct {
	*fixture

	topic testTopic // where the scenario releases
	// messages are the IDs of messages in quarantine, by settlement.
	messages map[string][]string
	// untouched is a prepared settlement that no crash has changed, and books its state;
	// empty: none.
	untouched string
	books     crash.State
}

// open opens a lane for the scenario.
func (s crashScenario) open(t *testing.T) crash.Scenario {
	t.Helper()
	l := &crashLane{fixture: newFixture(t), messages: map[string][]string{}}
	l.service.Now, l.stepper.Now = time.Now, time.Now // the clock of the programs
	if slices.Contains(s.sends, rpcPublish) {
		l.topic = newTopicFor(t)
	}
	t.Cleanup(func() {
		if l.untouched != "" {
			t.Error("the last crash changed nothing: the command never ran to its end")
		}
	})
	return func(t *testing.T, n int, r *crash.Recorder) { s.point(t, l, fmt.Sprintf("stl-%04d", n), r) }
}

// check compares the requests of a surviving process to the bank and to Pub/Sub.
func (s crashScenario) check(t *testing.T, recorded []crash.Point) {
	t.Helper()
	var sent []string
	for _, m := range recorded {
		if m.At == faultproxy.Requested && slices.Contains(notSpanners, m.Call) {
			sent = append(sent, m.Call)
		}
	}
	if !slices.Equal(sent, s.sends) {
		t.Errorf("sent %v, want %v", sent, s.sends)
	}
}

// point runs the scenario once with a crash. If the crash left all rows and transfers
// unchanged, the next point runs the same command and kills it a moment later.
func (s crashScenario) point(t *testing.T, l *crashLane, fresh string, r *crash.Recorder) {
	t.Helper()
	if l.untouched == "" {
		s.given(l, fresh)
		l.untouched, l.books = fresh, l.look(t)
	}
	id := l.untouched
	got := l.runOn(t, r, s.args(l, id))
	seen, killed := r.Points()
	books := l.look(t)
	left := standingOf(books, id)
	if !killed && (got.code != term.ExitOK || left.effect() != s.does) {
		t.Errorf("exit code %d, %s%s, and it left %+v, want %+v", got.code, got.out, got.errOut, left.effect(), s.does)
	}
	published := arrived(seen, killed)
	if killed && published == 0 && cmp.Equal(l.books.Snapshot, books.Snapshot) && cmp.Equal(l.books.Ledger, books.Ledger) {
		l.outlast(t)
		return
	}
	if left.effect() != standingOf(l.books, id).effect() && left.effect() != s.does && !s.inParts {
		t.Errorf("the crash left %+v, want all of %+v or nothing", left.effect(), s.does)
	}
	l.untouched = ""
	tries := s.again(t, l, id, left.effect() == s.does)
	least := published + left.quarantined
	s.deliverPublished(t, l, least, least+(tries-1)*left.quarantined)
	s.settle(t, l, id)
	s.again(t, l, id, true) // a late repetition
	s.deliverPublished(t, l, 0, 0)
	if got := standingOf(l.look(t), id); got != s.end {
		t.Errorf("given once more at the end, the command left %+v, want %+v", got, s.end)
	}
}

// outlast waits until the emulator ends the transaction that the killed process may have
// left open, which would block the next one.
func (l *crashLane) outlast(t *testing.T) {
	t.Helper()
	_, err := l.client.ReadWriteTransaction(t.Context(), func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		return tx.Read(ctx, "ledger_movements", spanner.AllKeys(), []string{"settlement_id"}).Do(func(*spanner.Row) error { return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
}

// runOn runs settlectl as a process that the wire kills.
func (l *crashLane) runOn(t *testing.T, r *crash.Recorder, args []string) outcome {
	t.Helper()
	env := l.operatorsEnv()
	for name, upstream := range map[string]string{
		"SPANNER_EMULATOR_HOST": l.database.emulator, "PUBSUB_EMULATOR_HOST": env["PUBSUB_EMULATOR_HOST"],
	} {
		if upstream == "" {
			continue
		}
		proxy, err := faultproxy.Start(t.Context(), upstream, r.Allow)
		if err != nil {
			t.Fatal(err)
		}
		defer proxy.Close()
		env[name] = proxy.Addr
	}
	env["GOGC"] = "off" // a short-lived process
	cmd, started, ended := program(t.Context(), t, env, args...), make(chan struct{}), make(chan struct{})
	r.OnKill(func() {
		<-started
		_ = cmd.Process.Kill() // the process may have ended
		<-ended
	})
	l.gate.Watch(r)
	defer l.gate.Watch(nil)
	wait := start(t, cmd)
	close(started)
	defer close(ended)
	return wait()
}

// operatorsEnv is the environment of the operator, with the emulator of the topic.
func (l *crashLane) operatorsEnv() map[string]string {
	env := l.operatorEnv()
	if l.topic.name != "" {
		env["PUBSUB_EMULATOR_HOST"] = emulatortest.PubSub(l.t).Host
	}
	return env
}

// again runs the same command until it gives no error, and checks its answer. done tells
// whether the crashed run was complete. It returns the number of runs.
func (s crashScenario) again(t *testing.T, l *crashLane, id string, done bool) (tries int) {
	t.Helper()
	got := l.run(s.args(l, id))
	for tries = 1; tries < mostTries && got.code == term.ExitError; tries++ {
		t.Logf("again: %s; once more", got.errOut)
		got = l.run(s.args(l, id))
	}
	done = done || tries > 1 && got.code == term.ExitNo
	if !s.answers(done, got) {
		t.Errorf("again, after a complete run %t: exit code %d, %s%s", done, got.code, got.out, got.errOut)
	}
	return tries
}

// run runs settlectl without a crash, in this process unless it needs another
// PUBSUB_EMULATOR_HOST.
func (l *crashLane) run(args []string) outcome {
	l.t.Helper()
	if l.topic.name == "" {
		return settlectlAt(l.t, time.Now, nil, l.operatorsEnv(), args...)
	}
	return start(l.t, program(l.t.Context(), l.t, l.operatorsEnv(), args...))()
}

// arrived counts the published messages, also without an answer.
func arrived(seen []crash.Point, killed bool) (n int) {
	if killed && seen[len(seen)-1].At == faultproxy.Requested {
		seen = seen[:len(seen)-1] // the request was not sent
	}
	for _, m := range seen {
		if m.Call == rpcPublish && m.At == faultproxy.Requested {
			n++
		}
	}
	return n
}

// deliverPublished delivers the messages of the topic, and checks their number.
func (s crashScenario) deliverPublished(t *testing.T, l *crashLane, least, most int) {
	t.Helper()
	if !slices.Contains(s.sends, rpcPublish) {
		return
	}
	received := l.topic.pull(t, least)
	if len(received) > most {
		t.Errorf("%d messages were published, want %d to %d", len(received), least, most)
	}
	for _, m := range received {
		if len(m.GetAttributes()[ledger.ReleasedAttribute]) != 64 {
			t.Errorf("message %s lacks the attribute: %v", m.GetMessageId(), m.GetAttributes())
		}
		result, err := l.service.Deliver(t.Context(), settle.Delivery{Message: settle.Message{
			ID: m.GetMessageId(), Subscription: fixtureSubscription, PublishTime: m.GetPublishTime().AsTime(), Data: m.GetData(), Attributes: m.GetAttributes(),
		}})
		if err != nil || result.Outcome != settle.OutcomeApplied && result.Outcome != settle.OutcomeDuplicate {
			t.Errorf("released %s: %v, %v", m.GetData(), result.Outcome, err)
		}
	}
}

// settle makes the due steps until the state is the final one, and at least one step.
func (s crashScenario) settle(t *testing.T, l *crashLane, id string) {
	t.Helper()
	got := standingOf(l.look(t), id)
	for n := 0; got.instruction != transfer.StateNone && n < mostSteps && (n == 0 || got != s.end); n++ {
		l.passUntilDue(id)
		_, err := l.stepper.Step(t.Context(), id)
		if err != nil && !errors.Is(err, transfer.ErrNotDue) && !errors.Is(err, transfer.ErrLeaseLost) {
			t.Logf("step %d: %v; once more", n+1, err)
		}
		got = standingOf(l.look(t), id)
	}
	if got != s.end {
		t.Errorf("ends as %+v, want %+v", got, s.end)
	}
}

// pass advances the clock of the settlement's instruction and of the bank.
func (l *crashLane) pass(id string, d time.Duration) {
	l.t.Helper()
	crash.AdvanceClock(l.t, l.client, id, d)
	l.clock.Advance(d)
}

// passUntilDue advances the clock until the instruction is due.
func (l *crashLane) passUntilDue(id string) {
	l.t.Helper()
	l.clock.Advance(crash.AdvanceClockUntilDue(l.t, l.client, id, time.Now()))
}

// standing is the state of one settlement in Spanner and at the bank.
type standing struct {
	movements, receipts, reversals int

	conflicts, resolved   int // open ones, and closed ones
	quarantined, released int // open messages, and closed ones
	decisions             int
	executed, moved       int // transfers of the bank, and those without a return
	instruction           transfer.State
}

// effect is the part of the state that operators change.
func (s standing) effect() standing {
	return standing{
		reversals: s.reversals, resolved: s.resolved, released: s.released, decisions: s.decisions, instruction: s.instruction,
	}
}

// look reads and checks the whole state of the lane.
func (l *crashLane) look(t *testing.T) crash.State {
	t.Helper()
	return crash.ReadState(t, l.client, l.bank, false)
}

// standingOf returns the state of one settlement.
func standingOf(b crash.State, id string) (of standing) {
	count := func(n *int, counts bool) {
		if counts {
			*n++
		}
	}
	for _, m := range b.Movements {
		count(&of.movements, m.SettlementID == id || m.SettlementID == id+alsoReleased)
	}
	for _, r := range b.Receipts {
		count(&of.receipts, r.SettlementID == id || r.SettlementID == id+alsoReleased)
	}
	for _, r := range b.Reversals {
		count(&of.reversals, r.SettlementID == id)
	}
	for _, c := range b.Conflicts {
		count(&of.conflicts, c.SettlementID == id && c.ResolvedAt == nil)
		count(&of.resolved, c.SettlementID == id && c.ResolvedAt != nil && c.ResolvedBy == "ines" && c.Note == crashNote)
	}
	for _, q := range b.Quarantined {
		mine := strings.Contains(string(q.Data), `"`+id)
		count(&of.quarantined, mine && q.ReleasedAt == nil)
		count(&of.released, mine && q.ReleasedAt != nil && q.ReleasedBy == "ines")
	}
	for _, in := range b.Instructions {
		if in.SettlementID == id {
			of.instruction = in.State
		}
	}
	for _, e := range b.Events {
		named := strings.Contains(e.Event.Detail, `decided by "ines" and "bert": "`+crashNote+`"`)
		count(&of.decisions, e.SettlementID == id && e.Event.Cause == transfer.CauseDecided && named)
	}
	for _, tr := range b.Ledger {
		count(&of.executed, tr.Settlement == id)
		count(&of.moved, tr.Settlement == id && tr.Moved())
	}
	return of
}
