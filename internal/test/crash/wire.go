// Package crash kills a process at every moment at which it has to do with the
// outside, one after another, so that a test can look at what that leaves behind.
//
// It exists because two programs are walked so: the function, and the operator's
// settlectl. A recording run, with a process that lives, writes down every RPC, every
// request to the bank and whatever else the process is watched at. Then the process
// runs twice for each, and is killed just before that is sent and just after it was
// answered. So a request that is added to a program adds its moments by itself.
//
// What must be true of Spanner alone is package snapshot's. [Books] adds what must be
// true of Spanner and the bank together.
package crash

import (
	"fmt"
	"slices"
	"sync"

	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

// Moment is what the outside sees of a process at one instant: something that it
// sends is on its way, or has been answered.
type Moment struct {
	// What is sent: the name of an RPC, an HTTP method, or what the test calls it.
	What string
	At   faultproxy.Stage
	// N counts those of the same kind, from 1. A process that sends two things at once
	// has the same moments in each run, though not in the same order.
	N int
}

// String says when that is.
func (m Moment) String() string {
	if m.At == faultproxy.Requested {
		return fmt.Sprintf("just before %s %d is sent", m.What, m.N)
	}
	return fmt.Sprintf("just after %s %d was answered", m.What, m.N)
}

// Wire is everything that a process has to do with the outside. It writes down every
// moment. At the one that is fatal it kills the process, and is cut: what the process
// has sent and nobody has got by then is lost, and so are answers.
type Wire struct {
	fatal Moment // the zero value: none

	mu   sync.Mutex
	kill func()
	seen []Moment
	cut  bool
}

// Leads sets what kills the process on the wire, and has to return when the process
// has ended. It has to be called before anything can be sent.
func (w *Wire) Leads(kill func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kill = kill
}

// Pass reports whether what the process sends, or what it is answered, gets through.
// It is a [faultproxy.Hook].
func (w *Wire) Pass(what string, at faultproxy.Stage) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return false
	}
	now := Moment{What: what, At: at, N: 1}
	for _, m := range w.seen {
		if m.What == what && m.At == at {
			now.N++
		}
	}
	w.seen = append(w.seen, now)
	if now != w.fatal {
		return true
	}
	w.kill()
	w.cut = true
	return false
}

// All returns the moments up to now, and whether the process was killed.
func (w *Wire) All() (seen []Moment, killed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen), w.cut
}
