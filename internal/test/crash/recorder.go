// Package crash kills a process at every point at which it talks to another process,
// one after another, so that a test can check the state that each crash leaves.
//
// Two programs are walked: the function, and the operators' settlectl. In a recording
// run the process survives, and the [Recorder] writes down every RPC, every request to
// the bank and every other observed call. Then the process runs twice for each call: it
// is killed just before the call is sent, and just after it was answered. A call that is
// added to a program therefore adds its points by itself.
//
// Package audit checks Spanner alone. [State.CompareBank] compares Spanner with the bank.
package crash

import (
	"fmt"
	"slices"
	"sync"

	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

// Point is an instant in the exchange between a process and its surroundings.
type Point struct {
	// Call is the name of an RPC, an HTTP method, or a name that the test chose.
	Call string
	At   faultproxy.Stage
	// N counts calls of that name, from 1. A process that sends two calls concurrently
	// has the same points in each run, though not in the same order.
	N int
}

func (p Point) String() string {
	if p.At == faultproxy.Requested {
		return fmt.Sprintf("just before %s %d is sent", p.Call, p.N)
	}
	return fmt.Sprintf("just after %s %d was answered", p.Call, p.N)
}

// Recorder records the points of one process. At the fatal point it kills the process,
// and from then on it allows nothing more: requests that had not arrived are lost, and
// so are answers.
type Recorder struct {
	fatal Point // the zero value: none

	mu       sync.Mutex
	kill     func()
	recorded []Point
	killed   bool
}

// OnKill sets the function that kills the process. It must return after the process has
// ended. Call OnKill before the process can send anything.
func (r *Recorder) OnKill(kill func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kill = kill
}

// Allow records a point and reports whether the request or the answer may pass. It is a
// [faultproxy.Hook].
func (r *Recorder) Allow(call string, at faultproxy.Stage) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed {
		return false
	}
	now := Point{Call: call, At: at, N: 1}
	for _, p := range r.recorded {
		if p.Call == call && p.At == at {
			now.N++
		}
	}
	r.recorded = append(r.recorded, now)
	if now != r.fatal {
		return true
	}
	r.kill()
	r.killed = true
	return false
}

// At returns a function that reports whether the latest recorded point of its call is p.
// The recorder must record the point before.
func (r *Recorder) At(p Point) func(call string, at faultproxy.Stage) bool {
	return func(call string, at faultproxy.Stage) bool {
		if call != p.Call || at != p.At {
			return false
		}
		recorded, _ := r.Points()
		n := 0
		for _, earlier := range recorded {
			if earlier.Call == call && earlier.At == at {
				n++
			}
		}
		return n == p.N
	}
}

// Points returns the points so far, and whether the process was killed.
func (r *Recorder) Points() (recorded []Point, killed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.recorded), r.killed
}
