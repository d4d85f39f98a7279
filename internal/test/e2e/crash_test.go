package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/crash"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

// TestEveryCrashPoint walks every scenario: a recording run numbers every RPC to
// Spanner, every request to the bank and the acknowledgement; then for each number
// the process, which is one of its own, is killed just before that is sent and
// just after it was answered, the message is delivered again, the reconciler runs,
// and the whole state is checked. A request that is added to the function adds
// its points by itself.
func TestEveryCrashPoint(t *testing.T) {
	t.Parallel()
	var (
		walker = crash.New(lanesAtOnce, perLane)
		wg     sync.WaitGroup
	)
	for _, s := range scenarios() {
		wg.Go(func() { t.Run(s.name, func(t *testing.T) { walker.Walk(t, s.open, s.check) }) })
	}
	wg.Wait()
	t.Log(walker.Walked())
}

// acknowledgement is the answer to the request by which the process was called.
// It is answered when whoever called has all of it.
const acknowledgement = "acknowledgement"

// caller calls the process. Its answer comes by way of the wire.
type caller struct{ wire *crash.Wire }

// RoundTrip implements [http.RoundTripper].
func (c caller) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil || c.wire.Pass(acknowledgement, faultproxy.Requested) {
		return response, err
	}
	response.Body.Close()
	return nil, errors.New("killed")
}

// call starts the scenario's function on a wire and calls it once. acknowledged reports
// whether its answer arrived.
func (s scenario) call(t *testing.T, l *lane, w *crash.Wire, id string) (a answer, acknowledged bool) {
	t.Helper()
	proxy, err := faultproxy.Start(t.Context(), emulatortest.Spanner(t).GRPC, w.Pass)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	process := l.start(t, s.target, proxy.Addr, s.env()...)
	defer process.kill()
	w.Leads(process.kill)
	l.gate.Watch(w)
	defer l.gate.Watch(nil)
	process.client = &http.Client{Transport: caller{w}}
	a = process.post(t.Context(), pushHeader, strings.NewReader(s.request(id)))
	acknowledged = a.Status != 0
	if acknowledged {
		w.Pass(acknowledgement, faultproxy.Answered)
	}
	return a, acknowledged
}

// lane is a world with an instance of each function that nobody kills. Points are
// walked in it one after another, each with a settlement of its own.
type lane struct {
	*world

	settler, reconciler *function
	left                int // points that the two instances may yet serve
}

// renew replaces instances that have served enough points.
func (l *lane) renew(t *testing.T, s scenario) {
	t.Helper()
	if l.left == 0 {
		l.stop()
		host := emulatortest.Spanner(t).GRPC
		l.settler, l.reconciler = l.start(t, settlePayout, host), l.start(t, reconcileBank, host)
		l.left = s.perInstance()
	}
	l.left--
}

// stop ends the instances, if there are any.
func (l *lane) stop() {
	if l.settler != nil {
		l.settler.kill()
		l.reconciler.kill()
	}
}

// mostTries bounds how often something is tried again that got no answer from
// Spanner. A killed process can leave a transaction open, and now and then the
// emulator lets nobody else in for longer than a delivery waits.
const mostTries = 5

// deliver delivers a message to the instance that nobody kills, and again, as Pub/Sub
// does, where it is not acknowledged.
func (l *lane) deliver(t *testing.T, messageID, message, want string) {
	t.Helper()
	a := l.settler.deliver(t.Context(), messageID, message)
	for n := 1; n < mostTries && a.Status == http.StatusInternalServerError && a.Outcome == "unknown"; n++ {
		t.Logf("delivered: %s; delivering again", a.Body)
		if a = l.settler.deliver(t.Context(), messageID, message); want == "applied" && a.Outcome == "duplicate" {
			want = a.Outcome // it had been applied without an answer
		}
	}
	if a.Status != http.StatusOK || a.Outcome != want {
		t.Fatalf("delivered: %d %s %s, want %s", a.Status, a.Body, a.Error, want)
	}
}

// reconcile lets time pass until the settlement's instruction is due, and runs
// the reconciler.
func (l *lane) reconcile(t *testing.T, id string) {
	t.Helper()
	l.pass(t, id)
	a := l.reconciler.post(t.Context(), pushHeader, strings.NewReader("{}"))
	for n := 1; n < mostTries && (a.Status == http.StatusInternalServerError || strings.Contains(a.Body, `"failed"`)); n++ {
		t.Logf("reconcile: %s; once more", a.Body)
		a = l.reconciler.post(t.Context(), pushHeader, strings.NewReader("{}"))
	}
	if a.Status != 200 || strings.Contains(a.Body, `"failed"`) {
		t.Fatalf("reconcile: %d %s %s", a.Status, a.Body, a.Error)
	}
}

// state is the state of the settlement's instruction.
func (l *lane) state(t *testing.T, id string) transfer.State {
	t.Helper()
	row, err := l.db.client.Single().ReadRow(t.Context(), "bank_instructions", settlementKey(id), []string{"state"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return transfer.StateNone
	}
	var state string
	if err == nil {
		err = row.Columns(&state)
	}
	if err != nil {
		t.Fatal(err)
	}
	return transfer.State(state)
}

// mostRuns bounds the runs of the reconciler after a crash. The longest way is that of
// an instruction that is sent and refused until the bank may have forgotten it.
const mostRuns = 40

// perLane is how many points are walked in one database. Every look at it takes
// all of it.
const perLane = 6

// lanesAtOnce is how many lanes are walked at the same time. They wait for each
// other's transactions in the emulator, and for back-off, more than they compute.
const lanesAtOnce = 8

// open opens a lane for the scenario.
func (s scenario) open(t *testing.T) crash.Point {
	t.Helper()
	l := &lane{world: newWorld(t, s.plan)}
	t.Cleanup(l.stop)
	return func(t *testing.T, n int, w *crash.Wire) { s.point(t, l, fmt.Sprintf("stl-%d", n), w) }
}

// check looks at what a process that lives asks of the bank.
func (s scenario) check(t *testing.T, recorded []crash.Moment) {
	t.Helper()
	if asked := toTheBank(recorded); !slices.Equal(asked, s.asked) {
		t.Errorf("the bank was asked %v, want %v", asked, s.asked)
	}
}

// toTheBank returns the requests to the bank.
func toTheBank(moments []crash.Moment) []string {
	var asked []string
	for _, m := range moments {
		if m.At == faultproxy.Requested && (m.What == http.MethodPost || m.What == http.MethodGet) {
			asked = append(asked, m.What)
		}
	}
	return asked
}

// point runs the scenario once, for a settlement of its own, with the process on the
// wire.
func (s scenario) point(t *testing.T, l *lane, id string, w *crash.Wire) {
	t.Helper()
	l.renew(t, s)
	l.bank.Expect(id, transfer.InstructionKey(id).String())
	for _, do := range s.given {
		do(t, l, id)
	}
	var given tally // of what a reconciler acknowledges nothing depends on it
	if s.target == settlePayout {
		given = s.look(t, l, id)
	}
	a, acknowledged := s.call(t, l, w, id)
	if _, killed := w.All(); !killed && !acknowledged {
		t.Fatalf("not killed, and no answer: %s", a.Error)
	}
	left := s.look(t, l, id)
	if acknowledged {
		s.checkAcknowledged(t, a, given, left)
	}
	s.recover(t, l, id, left)
}

// recover delivers the message of a dead process again, runs the reconciler until
// everything is settled, and looks at the world. left is what the process left
// behind.
func (s scenario) recover(t *testing.T, l *lane, id string, left tally) {
	t.Helper()
	l.deliver(t, messageID, messageFor(s.message, id), s.outcome(left))
	l.deliver(t, "published again", messageFor(s.message, id), s.replayed)
	want := s.endAfter(left)
	for n := 0; n == 0 || n < mostRuns && l.state(t, id) != want.instruction; n++ {
		l.reconcile(t, id)
	}
	got := s.look(t, l, id)
	got.missed = got.missed && want.missed // it can always be, and where the scenario is about it, it must
	if got != want {
		t.Errorf("ends as %+v, want %+v", got, want)
	}
}
