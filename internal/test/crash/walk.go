package crash

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// Scenario runs once, for a settlement of its own that is named after n, with a process
// that r records. After r has killed the process, the scenario recovers and checks the
// state.
type Scenario func(t *testing.T, n int, r *Recorder)

// Walker walks scenarios and counts points. It is safe for concurrent use.
type Walker struct {
	perLane           int
	lanes             chan struct{}
	points, scenarios atomic.Int64
}

// New returns a walker that walks up to concurrency lanes at a time, and up to perLane
// points in each, one after another.
func New(concurrency, perLane int) *Walker {
	return &Walker{perLane: perLane, lanes: make(chan struct{}, concurrency)}
}

// Summary returns the number of points and scenarios.
func (w *Walker) Summary() string {
	return fmt.Sprintf("%d points in %d scenarios", w.points.Load(), w.scenarios.Load())
}

// Walk runs a scenario once with a process that survives, which gives the points, and
// then once for each point with a process that is killed there. open opens a lane, with
// a database and a bank of its own, which ends with the test that it is given. check
// checks the recorded points; its failure ends the walk.
func (w *Walker) Walk(t *testing.T, open func(*testing.T) Scenario, check func(*testing.T, []Point)) {
	t.Helper()
	recorded := w.record(t, open)
	if !t.Failed() {
		check(t, recorded)
	}
	if t.Failed() {
		return // wrong without a crash
	}
	var (
		walked atomic.Int64
		wg     sync.WaitGroup
	)
	for first := 1; first <= len(recorded); first += w.perLane {
		last := min(first+w.perLane-1, len(recorded))
		w.lanes <- struct{}{}
		wg.Go(func() {
			defer func() { <-w.lanes }()
			t.Run(fmt.Sprintf("points %d to %d", first, last), func(t *testing.T) {
				walked.Add(walkLane(t, open(t), recorded, first, last))
			})
		})
	}
	wg.Wait()
	if n := int(walked.Load()); n != len(recorded) {
		t.Errorf("%d of %d points walked", n, len(recorded))
	}
	w.points.Add(walked.Load())
	w.scenarios.Add(1)
}

// record runs the scenario with a process that survives, in a lane of its own.
func (w *Walker) record(t *testing.T, open func(*testing.T) Scenario) (recorded []Point) {
	t.Helper()
	w.lanes <- struct{}{}
	defer func() { <-w.lanes }()
	t.Run("without a crash", func(t *testing.T) { recorded = open(t).run(t, 0, Point{}) })
	return recorded
}

// walkLane walks the points from first to last, which count from 1, and returns how many
// it walked.
func walkLane(t *testing.T, s Scenario, recorded []Point, first, last int) (walked int64) {
	t.Helper()
	for n := first; n <= last; n++ {
		for _, p := range s.run(t, n, recorded[n-1]) {
			if !slices.Contains(recorded, p) {
				t.Errorf("point %d, %s: the recording does not have the point %s", n, recorded[n-1], p)
			}
		}
		if t.Failed() {
			break
		}
		walked++
	}
	return walked
}

// run walks one point, and returns the points up to the fatal one, or all.
func (s Scenario) run(t *testing.T, n int, fatal Point) []Point {
	t.Helper()
	r := &Recorder{fatal: fatal}
	defer func() {
		if t.Failed() && n > 0 {
			t.Logf("point %d, %s", n, fatal)
		}
	}()
	s(t, n, r)
	recorded, killed := r.Points()
	if killed != (n > 0) {
		t.Errorf("point %d: killed %t", n, killed)
	}
	return recorded
}
