// Package emulatortest gives tests a Spanner emulator, a Spanner database of their
// own, and a Pub/Sub emulator, in one line each.
//
// It exists because starting an emulator takes a second or two and a database a few
// milliseconds: one emulator of each kind serves a whole test process, started when
// the first test asks, and every test gets a fresh database in it. The emulators
// end with the test process, however that ends; see package emulator.
//
// A test without an emulator fails and does not skip, with a message that says how
// to get one. A test that needs an emulator for itself, to end it or to have it
// inject faults, calls emulator.StartSpanner with emulator.WithPrivate.
package emulatortest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/settleonce/settleonce/emulator"
)

// dropLimit bounds the dropping of a test's database.
const dropLimit = 30 * time.Second

var (
	spanners shared[*emulator.Spanner]
	pubsubs  shared[*emulator.PubSub]
)

// Spanner returns the Spanner emulator that the tests of this process share. It
// fails the test when there is none. The caller must not close it.
func Spanner(tb testing.TB) *emulator.Spanner {
	tb.Helper()
	s, err := spanners.get(tb.Context(), emulator.StartSpanner)
	if err != nil {
		tb.Fatalf("get the shared emulator: %v", err)
	}
	return s
}

// Database creates a fresh database with the given DDL statements in the shared
// Spanner emulator and returns its name, projects/P/instances/I/databases/D. It is
// dropped when the test ends.
func Database(tb testing.TB, statements []string) string {
	tb.Helper()
	s := Spanner(tb)
	name, err := s.CreateDatabase(tb.Context(), "", statements)
	if err != nil {
		tb.Fatalf("get a database: %v", err)
	}
	tb.Cleanup(func() {
		// The test's own context is done by now.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), dropLimit)
		defer cancel()
		if err := s.DropDatabase(ctx, name); err != nil {
			tb.Errorf("clean up: %v", err)
		}
	})
	return name
}

// PubSub returns the Pub/Sub emulator that the tests of this process share. It fails
// the test when there is none. The caller must not close it, and takes topic and
// subscription names that no other test takes.
func PubSub(tb testing.TB) *emulator.PubSub {
	tb.Helper()
	p, err := pubsubs.get(tb.Context(), emulator.StartPubSub)
	if err != nil {
		tb.Fatalf("get the shared emulator: %v", err)
	}
	return p
}

// shared is an emulator that is started when first asked for. A start that failed
// is tried again by the next caller, and an emulator that has ended is replaced.
type shared[E interface{ Err() error }] struct {
	mu      sync.Mutex
	started bool
	value   E
}

func (s *shared[E]) get(ctx context.Context, start func(context.Context, ...emulator.Option) (E, error)) (E, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started && s.value.Err() == nil {
		return s.value, nil
	}
	value, err := start(ctx)
	if err != nil {
		return value, err
	}
	s.value, s.started = value, true
	return value, nil
}
