package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/settleonce/settleonce/internal/test/crash"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

// TestEveryCrashPoint walks everything that operators change, as the function is
// walked by its own test of that name: settlectl, which is a process of its own, is
// killed just before and just after each RPC to Spanner and Pub/Sub and each question
// to the bank. The operator gives the same command again, what was published is
// delivered, the reconciler runs, and the whole state is checked.
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
	// crashLanes wait for each other's transactions in the emulator more than they
	// compute.
	crashLanes = 8
	// crashesPerLane is more than a scenario has: what a crash has left as it was serves
	// the next point.
	crashesPerLane = 100
	// mostTries bounds how often something is tried again that got no answer: a killed
	// process can leave a transaction open, and now and then the emulator lets nobody
	// else in for longer than a command waits.
	mostTries = 5
	// mostSteps bounds the steps after a crash.
	mostSteps = 12
)

// crashLane is a database, a bank and a topic in which points are walked one after
// another, each with a settlement of its own.
type crashLane struct {
	*fixture

	topic testTopic // where the scenario releases
	// messages are the IDs of messages in quarantine, by settlement.
	messages map[string][]string
	// untouched is a settlement that is as it was given, and books what there was then;
	// empty: there is none.
	untouched string
	books     crash.State
}

// open opens a lane for the scenario.
func (s crashScenario) open(t *testing.T) crash.Scenario {
	t.Helper()
	l := &crashLane{fixture: newFixture(t), messages: map[string][]string{}}
	l.service.Now, l.stepper.Now = time.Now, time.Now // as the programs have it
	if slices.Contains(s.sends, rpcPublish) {
		l.topic = newTopicFor(t)
	}
	t.Cleanup(func() {
		if l.untouched != "" {
			t.Error("the last crash has changed nothing: the command was never given to its end")
		}
	})
	return func(t *testing.T, n int, r *crash.Recorder) { s.point(t, l, fmt.Sprintf("stl-%04d", n), r) }
}

// check looks at what a process that lives sends to others than Spanner.
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

// point runs the scenario once, with the process on the wire. Where a crash has left
// all rows and transfers as they were, the same command is given again by the next
// point, which kills it a moment later: only the last of them has something to make
// good.
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
	if !killed && (got.code != exitOK || left.effect() != s.does) {
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
	s.again(t, l, id, true) // by somebody who comes late
	s.deliverPublished(t, l, 0, 0)
	if got := standingOf(l.look(t), id); got != s.end {
		t.Errorf("given once more at the end, the command left %+v, want %+v", got, s.end)
	}
}

// outlast waits until the emulator has given up the transaction that a dead process may
// have left open, and which would have the next one try again.
func (l *crashLane) outlast(t *testing.T) {
	t.Helper()
	_, err := l.client.ReadWriteTransaction(t.Context(), func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		return tx.Read(ctx, "ledger_movements", spanner.AllKeys(), []string{"settlement_id"}).Do(func(*spanner.Row) error { return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
}

// runOn runs settlectl as a process that dies as the wire has it.
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
	env["GOGC"] = "off" // it lives for a moment
	cmd, started, ended := program(t.Context(), t, env, args...), make(chan struct{}), make(chan struct{})
	r.OnKill(func() {
		<-started
		_ = cmd.Process.Kill() // it may be about to end
		<-ended
	})
	l.gate.Watch(r)
	defer l.gate.Watch(nil)
	wait := start(t, cmd)
	close(started)
	defer close(ended)
	return wait()
}

// operatorsEnv leads the operator to everything.
func (l *crashLane) operatorsEnv() map[string]string {
	env := l.env()
	maps.Copy(env, map[string]string{"BANK_URL": l.gate.URL, "BANK_TOKEN": fixtureToken, "DEFAULT_CURRENCY": "USD"})
	if l.topic.name != "" {
		env["PUBSUB_EMULATOR_HOST"] = emulatortest.PubSub(l.t).Host
	}
	return env
}

// again gives the same command once more. It succeeds, or says that there is nothing
// left to do, as there is where done does not say so. It returns how often it was given
// until it was answered.
func (s crashScenario) again(t *testing.T, l *crashLane, id string, done bool) (tries int) {
	t.Helper()
	got := l.run(s.args(l, id))
	for tries = 1; tries < mostTries && got.code == exitError; tries++ {
		t.Logf("again: %s; once more", got.errOut)
		got = l.run(s.args(l, id))
	}
	done = done || tries > 1 && got.code == exitNo
	if !s.answers(done, got) {
		t.Errorf("again, and everything was done before %t: exit code %d, %s%s", done, got.code, got.out, got.errOut)
	}
	return tries
}

// run runs settlectl without a crash: in this process, where the environment does not
// have to lead to another Pub/Sub.
func (l *crashLane) run(args []string) outcome {
	l.t.Helper()
	if l.topic.name == "" {
		return settlectlAt(l.t, time.Now, nil, l.operatorsEnv(), args...)
	}
	return start(l.t, program(l.t.Context(), l.t, l.operatorsEnv(), args...))()
}

// arrived counts the messages that a process has published, whether or not it heard
// of it.
func arrived(seen []crash.Point, killed bool) (n int) {
	if killed && seen[len(seen)-1].At == faultproxy.Requested {
		seen = seen[:len(seen)-1] // nobody has got it
	}
	for _, m := range seen {
		if m.Call == rpcPublish && m.At == faultproxy.Requested {
			n++
		}
	}
	return n
}

// deliverPublished delivers what the topic has, if there is one, which has to be so many
// messages.
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
			t.Errorf("message %s does not say whence it comes: %v", m.GetMessageId(), m.GetAttributes())
		}
		result, err := l.service.Deliver(t.Context(), settle.Delivery{Message: settle.Message{
			ID: m.GetMessageId(), Subscription: fixtureSubscription, PublishTime: m.GetPublishTime().AsTime(), Data: m.GetData(), Attributes: m.GetAttributes(),
		}})
		if err != nil || result.Outcome != settle.OutcomeApplied && result.Outcome != settle.OutcomeDuplicate {
			t.Errorf("released %s: %v, %v", m.GetData(), result.Outcome, err)
		}
	}
}

// settle makes the steps that are due until everything is as it has to end, and one
// more, and looks at the world.
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

// pass lets time pass for the settlement's instruction, and for the bank.
func (l *crashLane) pass(id string, d time.Duration) {
	l.t.Helper()
	crash.AdvanceClock(l.t, l.client, id, d)
	l.clock.Advance(d)
}

// passUntilDue lets time pass until the instruction is due.
func (l *crashLane) passUntilDue(id string) {
	l.t.Helper()
	l.clock.Advance(crash.AdvanceClockUntilDue(l.t, l.client, id, time.Now()))
}

// standing is what Spanner and the bank have of one settlement.
type standing struct {
	movements, receipts, reversals int

	conflicts, resolved   int // open ones, and closed ones
	quarantined, released int // open messages, and closed ones
	decisions, superseded int
	executed, moved       int // transfers of the bank, and those that were not sent back
	instruction           transfer.State
}

// effect is what operators do.
func (s standing) effect() standing {
	return standing{
		reversals: s.reversals, resolved: s.resolved, released: s.released, decisions: s.decisions, superseded: s.superseded, instruction: s.instruction,
	}
}

// look reads and checks the whole state, that of all settlements of the lane.
func (l *crashLane) look(t *testing.T) crash.State {
	t.Helper()
	return crash.ReadState(t, l.client, l.bank, false)
}

// standingOf returns what there is of one settlement.
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
			of.instruction, of.superseded = in.State, len(in.Superseded)
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
