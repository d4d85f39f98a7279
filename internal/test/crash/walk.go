package crash

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// Point runs a scenario once, for a settlement of its own that is named after n, with
// a process on the wire. Where the wire kills the process, it makes good what can be,
// and looks at what has come of everything.
type Point func(t *testing.T, n int, w *Wire)

// Walker walks scenarios, and counts. It is safe for concurrent use.
type Walker struct {
	perLane           int
	lanes             chan struct{}
	points, scenarios atomic.Int64
}

// New returns a walker that walks up to atOnce lanes at the same time, and up to
// perLane points in each, one after another.
func New(atOnce, perLane int) *Walker {
	return &Walker{perLane: perLane, lanes: make(chan struct{}, atOnce)}
}

// Walked says how much was walked.
func (w *Walker) Walked() string {
	return fmt.Sprintf("%d points in %d scenarios", w.points.Load(), w.scenarios.Load())
}

// Walk runs a scenario with a process that lives, from which it knows the moments,
// and then for each of them with a process that dies at it. open opens a lane, which
// is a world of its own and ends with the test that it is opened for. check looks at
// the moments of the process that lived; what it finds wrong ends the walk.
func (w *Walker) Walk(t *testing.T, open func(*testing.T) Point, check func(*testing.T, []Moment)) {
	t.Helper()
	recorded := w.record(t, open)
	if !t.Failed() {
		check(t, recorded)
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
	for chunk := range slices.Chunk(walk, w.perLane) {
		w.lanes <- struct{}{}
		wg.Go(func() {
			defer func() { <-w.lanes }()
			t.Run(fmt.Sprintf("points %d to %d", chunk[0], chunk[len(chunk)-1]), func(t *testing.T) {
				struck.Add(strike(t, open(t), recorded, chunk))
			})
		})
	}
	wg.Wait()
	if n := int(struck.Load()); n != len(walk) {
		t.Errorf("%d of %d points walked", n, len(walk))
	}
	w.points.Add(struck.Load())
	w.scenarios.Add(1)
}

// record runs the scenario with a process that lives, in a lane that then ends.
func (w *Walker) record(t *testing.T, open func(*testing.T) Point) (recorded []Moment) {
	t.Helper()
	w.lanes <- struct{}{}
	defer func() { <-w.lanes }()
	t.Run("without a crash", func(t *testing.T) { recorded = open(t).run(t, 0, Moment{}) })
	return recorded
}

// strike walks some points in one lane, and returns how many. numbers are those of
// moments, from 1.
func strike(t *testing.T, point Point, recorded []Moment, numbers []int) (struck int64) {
	t.Helper()
	for _, n := range numbers {
		for _, m := range point.run(t, n, recorded[n-1]) {
			if !slices.Contains(recorded, m) {
				t.Errorf("point %d, %s: there was also the moment %s", n, recorded[n-1], m)
			}
		}
		if t.Failed() {
			break
		}
		struck++
	}
	return struck
}

// run walks a point, and returns the moments up to the fatal one, or all.
func (p Point) run(t *testing.T, n int, fatal Moment) []Moment {
	t.Helper()
	w := &Wire{fatal: fatal}
	defer func() {
		if t.Failed() && n > 0 {
			t.Logf("point %d, %s", n, fatal)
		}
	}()
	p(t, n, w)
	seen, killed := w.All()
	if killed != (n > 0) {
		t.Errorf("point %d: killed %t", n, killed)
	}
	return seen
}
