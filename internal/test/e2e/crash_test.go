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

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/crash"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

// TestEveryCrashPoint walks every scenario. A recording run numbers every RPC to Spanner,
// every request to the bank, and the acknowledgement. Then the test kills the function's
// process just before and just after each of them, delivers the message again, runs the
// reconciler, and checks the whole state.
func TestEveryCrashPoint(t *testing.T) {
	t.Parallel()
	var (
		walker = crash.New(concurrentLanes, pointsPerLane)
		wg     sync.WaitGroup
	)
	for _, s := range scenarios() {
		wg.Go(func() { t.Run(s.name, func(t *testing.T) { walker.Walk(t, s.open, s.check) }) })
	}
	wg.Wait()
	t.Log(walker.Summary())
}

// acknowledgement is the function's response. It counts as answered when the client has
// read all of it.
const acknowledgement = "acknowledgement"

// recordedTransport reports the function's response to the recorder.
type recordedTransport struct{ recorder *crash.Recorder }

// RoundTrip implements [http.RoundTripper].
func (c recordedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil || c.recorder.Allow(acknowledgement, faultproxy.Requested) {
		return response, err
	}
	response.Body.Close()
	return nil, errors.New("killed")
}

// call starts the scenario's function with a recorder and calls it once. acknowledged
// reports whether its response arrived.
func (s scenario) call(t *testing.T, l *lane, r *crash.Recorder, id string) (a answer, acknowledged bool) {
	t.Helper()
	proxy, err := faultproxy.StartDeadly(t.Context(), emulatortest.Spanner(t).GRPC, r.Allow, r.At(s.dead))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	process := l.start(t, s.target, proxy.Addr, s.env()...)
	defer process.kill()
	r.OnKill(process.kill)
	l.gate.Watch(r)
	defer l.gate.Watch(nil)
	process.client = &http.Client{Transport: recordedTransport{r}}
	a = process.post(t.Context(), pushHeader, strings.NewReader(s.request(id)))
	acknowledged = a.Status != 0
	if acknowledged {
		r.Allow(acknowledgement, faultproxy.Answered)
	}
	return a, acknowledged
}

// lane is a world with an instance of each function that the walk never kills. Its points
// are walked one after another, each with a settlement of its own.
type lane struct {
	*world

	settler, reconciler *function
	left                int // points until the instances are replaced
}

// renew replaces the instances after some points.
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

func (l *lane) stop() {
	if l.settler != nil {
		l.settler.kill()
		l.reconciler.kill()
	}
}

// maxTries bounds the retries after errors of Spanner. A killed process can leave a
// transaction open that blocks the emulator for longer than a delivery's deadline.
const maxTries = 5

// deliver delivers a message to the surviving instance, and redelivers it, as Pub/Sub
// does, until it is acknowledged.
func (l *lane) deliver(t *testing.T, messageID, message, want string) {
	t.Helper()
	a := l.settler.deliver(t.Context(), messageID, message)
	for n := 1; n < maxTries && a.Status == http.StatusInternalServerError && a.Outcome == "unknown"; n++ {
		t.Logf("delivered: %s; redelivering", a.Body)
		if a = l.settler.deliver(t.Context(), messageID, message); want == "applied" && a.Outcome == "duplicate" {
			want = a.Outcome // the delivery before was applied without an answer
		}
	}
	if a.Status != http.StatusOK || a.Outcome != want {
		t.Fatalf("delivered: %d %s %s, want %s", a.Status, a.Body, a.Error, want)
	}
}

// reconcile advances the clock until the settlement's instruction is due, and runs the
// reconciler.
func (l *lane) reconcile(t *testing.T, id string) {
	t.Helper()
	l.advanceUntilDue(t, id)
	a := l.reconciler.post(t.Context(), pushHeader, strings.NewReader(push("tick", event.Tick)))
	for n := 1; n < maxTries && (a.Status == http.StatusInternalServerError || strings.Contains(a.Body, `"failed"`)); n++ {
		t.Logf("reconcile: %s; trying again", a.Body)
		a = l.reconciler.post(t.Context(), pushHeader, strings.NewReader(push("tick", event.Tick)))
	}
	if a.Status != 200 || strings.Contains(a.Body, `"failed"`) {
		t.Fatalf("reconcile: %d %s %s", a.Status, a.Body, a.Error)
	}
}

// state returns the state of the settlement's instruction.
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

const (
	// maxRuns bounds the runs of the reconciler after a crash. An instruction that the
	// bank refuses until its key expires needs most of them.
	maxRuns = 40
	// pointsPerLane is the number of points in one database. Each check reads all rows.
	pointsPerLane = 6
	// concurrentLanes exceeds the number of cores: lanes wait for each other's
	// transactions in the emulator, and for back-off, more than they compute.
	concurrentLanes = 8
)

// open opens a lane for the scenario.
func (s scenario) open(t *testing.T) crash.Scenario {
	t.Helper()
	l := &lane{world: newWorld(t, s.plan)}
	t.Cleanup(l.stop)
	return func(t *testing.T, n int, r *crash.Recorder) { s.point(t, l, fmt.Sprintf("stl-%d", n), r) }
}

// check compares the recorded requests to the bank. After the death of a connection the
// process must have used another one.
func (s scenario) check(t *testing.T, recorded []crash.Point) {
	t.Helper()
	died := slices.Index(recorded, s.dead)
	reads := func(p crash.Point) bool { return p.Call == "StreamingRead" && p.At == faultproxy.Answered }
	if s.dead.N > 0 && (died < 0 || !slices.ContainsFunc(recorded[died:], reads)) {
		t.Errorf("points %v: the connection did not die, or no read followed", recorded)
	}
	var requests []string
	for _, p := range recorded {
		if p.At == faultproxy.Requested && (p.Call == http.MethodPost || p.Call == http.MethodGet) {
			requests = append(requests, p.Call)
		}
	}
	if !slices.Equal(requests, s.requests) {
		t.Errorf("requests to the bank %v, want %v", requests, s.requests)
	}
}

// point runs the scenario once, for a settlement of its own.
func (s scenario) point(t *testing.T, l *lane, id string, r *crash.Recorder) {
	t.Helper()
	l.renew(t, s)
	l.bank.Expect(id, transfer.InstructionKey(id).String())
	for _, do := range s.given {
		do(t, l, id)
	}
	var before tally // not needed for the reconciler, whose acknowledgement promises nothing
	if s.target == settlePayout {
		before = s.read(t, l, id)
	}
	a, acknowledged := s.call(t, l, r, id)
	if _, killed := r.Points(); !killed && !acknowledged {
		t.Fatalf("not killed, and no answer: %s", a.Error)
	}
	after := s.read(t, l, id)
	if acknowledged {
		s.checkAcknowledged(t, a, before, after)
	}
	s.recover(t, l, id, after)
}

// recover redelivers the message, publishes it again, and runs the reconciler until the
// instruction has its final state. Then it checks the state. left is the state after the
// crash.
func (s scenario) recover(t *testing.T, l *lane, id string, left tally) {
	t.Helper()
	l.deliver(t, messageID, messageFor(s.message, id), s.outcome(left))
	l.deliver(t, "published again", messageFor(s.message, id), s.replayed)
	want := s.endAfter(left)
	for n := 0; n == 0 || n < maxRuns && l.state(t, id) != want.instruction; n++ {
		l.reconcile(t, id)
	}
	got := s.read(t, l, id)
	got.missed = got.missed && want.missed // other scenarios may miss too, depending on the point
	if got != want {
		t.Errorf("ends as %+v, want %+v", got, want)
	}
}
