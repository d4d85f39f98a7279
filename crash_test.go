package settleonce_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/emulator/emulatortest"
	"github.com/settleonce/settleonce/internal/faultproxy"
	"github.com/settleonce/settleonce/internal/settle"
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
		total walked
		wg    sync.WaitGroup
		lanes = make(chan struct{}, lanesAtOnce)
	)
	for _, s := range scenarios() {
		wg.Go(func() { t.Run(s.name, func(t *testing.T) { s.walk(t, lanes, &total) }) })
	}
	wg.Wait()
	t.Logf("%d points in %d scenarios", total.points.Load(), total.scenarios.Load())
}

// moment is what the outside sees of a process at one instant: something that it
// sends is on its way, or has been answered.
type moment struct {
	what string
	at   faultproxy.Stage
}

// acknowledgement is the answer to the request by which the process was called.
// It is answered when whoever called has all of it.
const acknowledgement = "acknowledgement"

func (m moment) String() string {
	if m.at == faultproxy.Requested {
		return "just before " + m.what + " is sent"
	}
	return "just after " + m.what + " was answered"
}

// wire is everything that a process has to do with the outside: its RPCs to
// Spanner, its requests to the bank and its acknowledgement. It writes down every
// moment. At the one that is fatal it kills the process, and is cut: what the
// process has sent and nobody has got by then is lost, and so are answers.
type wire struct {
	fatal int // number of the moment, from 1; 0: none

	mu      sync.Mutex
	process *function
	seen    []moment
	cut     bool
}

// pass reports whether what the process sends, or what it is answered, gets
// through.
func (w *wire) pass(what string, at faultproxy.Stage) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return false
	}
	w.seen = append(w.seen, moment{what, at})
	if len(w.seen) != w.fatal {
		return true
	}
	w.process.kill()
	w.cut = true
	return false
}

// all returns the moments up to now, and whether the process was killed.
func (w *wire) all() (seen []moment, killed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen), w.cut
}

// RoundTrip calls the process. Its answer comes by way of the wire.
func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil || w.pass(acknowledgement, faultproxy.Requested) {
		return response, err
	}
	response.Body.Close()
	return nil, errors.New("killed")
}

// call starts the scenario's function on a wire and calls it once. acknowledged reports
// whether its answer arrived.
func (w *wire) call(t *testing.T, l *lane, s scenario, id string) (a answer, acknowledged bool) {
	t.Helper()
	proxy, err := faultproxy.Start(t.Context(), emulatortest.Spanner(t).GRPC, w.pass)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	process := l.start(t, s.target, proxy.Addr, s.env()...)
	defer process.kill()
	w.mu.Lock()
	w.process = process
	w.mu.Unlock()
	l.wire.Store(w)
	defer l.wire.Store(nil)
	process.client = &http.Client{Transport: w}
	a = process.post(t.Context(), pushHeader, strings.NewReader(s.request(id)))
	acknowledged = a.Status != 0
	if acknowledged {
		w.pass(acknowledgement, faultproxy.Answered)
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
func (l *lane) state(t *testing.T, id string) settle.InstructionState {
	t.Helper()
	row, err := l.db.client.Single().ReadRow(t.Context(), "bank_instructions", settlementKey(id), []string{"state"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return settle.InstructionNone
	}
	var state string
	if err == nil {
		err = row.Columns(&state)
	}
	if err != nil {
		t.Fatal(err)
	}
	return settle.InstructionState(state)
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

// walked counts what has been walked.
type walked struct{ points, scenarios atomic.Int64 }

// walk runs the scenario with a process that lives, from which it knows the
// moments, and then for each of them with a process that dies at it.
func (s scenario) walk(t *testing.T, lanes chan struct{}, total *walked) {
	recorded := s.record(t, lanes)
	if asked := toTheBank(recorded); !slices.Equal(asked, s.asked) {
		t.Errorf("the bank was asked %v, want %v", asked, s.asked)
	}
	if t.Failed() {
		return // wrong without a crash
	}
	var (
		walk   = make([]int, len(recorded))
		struck atomic.Int64
		wg     sync.WaitGroup
	)
	for i := range walk {
		walk[i] = i + 1
	}
	for chunk := range slices.Chunk(walk, perLane) {
		lanes <- struct{}{}
		wg.Go(func() {
			defer func() { <-lanes }()
			t.Run(fmt.Sprintf("points %d to %d", chunk[0], chunk[len(chunk)-1]), func(t *testing.T) {
				struck.Add(s.strike(t, recorded, chunk))
			})
		})
	}
	wg.Wait()
	if n := int(struck.Load()); n != len(walk) {
		t.Errorf("%d of %d points walked", n, len(walk))
	}
	total.points.Add(struck.Load())
	total.scenarios.Add(1)
}

// record runs the scenario with a process that lives. However that ends, it makes
// room for others, and leaves no instances behind.
func (s scenario) record(t *testing.T, lanes chan struct{}) []moment {
	t.Helper()
	lanes <- struct{}{}
	defer func() { <-lanes }()
	l := &lane{world: newWorld(t, s.plan)}
	defer l.stop()
	return s.point(t, l, 0)
}

// strike walks some points in a lane of their own, and returns how many.
func (s scenario) strike(t *testing.T, recorded []moment, numbers []int) (struck int64) {
	l := &lane{world: newWorld(t, s.plan)}
	defer l.stop()
	for _, n := range numbers {
		for i, m := range s.point(t, l, n) {
			if m != recorded[i] {
				t.Errorf("point %d: moment %d is %s; in the recording run it is %s", n, i+1, m, recorded[i])
			}
		}
		if t.Failed() {
			break
		}
		struck++
	}
	return struck
}

// toTheBank returns the requests to the bank.
func toTheBank(moments []moment) []string {
	var asked []string
	for _, m := range moments {
		if m.at == faultproxy.Requested && (m.what == http.MethodPost || m.what == http.MethodGet) {
			asked = append(asked, m.what)
		}
	}
	return asked
}

// point runs the scenario once, for a settlement of its own. The process is killed
// at the moment with the number fatal; 0 for none. It returns the moments up to
// that.
func (s scenario) point(t *testing.T, l *lane, fatal int) []moment {
	t.Helper()
	id := fmt.Sprintf("stl-%d", fatal)
	w := &wire{fatal: fatal}
	defer func() {
		if seen, _ := w.all(); t.Failed() && len(seen) > 0 {
			t.Logf("point %d, %s", fatal, seen[len(seen)-1])
		}
	}()
	l.renew(t, s)
	l.bank.Expect(id, settle.InstructionKey(id).String())
	for _, do := range s.given {
		do(t, l, id)
	}
	var given tally // of what a reconciler acknowledges nothing depends on it
	if s.target == settlePayout {
		given = s.look(t, l, id)
	}
	a, acknowledged := w.call(t, l, s, id)
	seen, killed := w.all()
	if killed != (fatal > 0) {
		t.Fatalf("killed %t: %d %s %s", killed, a.Status, a.Body, a.Error)
	}
	left := s.look(t, l, id)
	if acknowledged {
		s.checkAcknowledged(t, a, given, left)
	}
	s.recover(t, l, id, left)
	return seen
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
