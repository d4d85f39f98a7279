// Package emulatortest gives each test a Spanner emulator, a Spanner database of its
// own, or a Pub/Sub emulator, in one line.
//
// Starting an emulator takes a second or two, creating a database some milliseconds.
// So one emulator of each kind serves a whole test process: the first test that asks
// starts it, and every test gets a fresh database in it. The emulators end with the
// test process, however that ends; see package emulator.
//
// Without an emulator a test fails and does not skip; the message says how to install
// one. A test that stops its emulator or injects faults starts one of its own, with
// emulator.StartSpanner and emulator.WithPrivate.
package emulatortest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/settleonce/settleonce/emulator"
)

// dropLimit bounds the drop of a test's database.
const dropLimit = 30 * time.Second

var (
	spanner = sync.OnceValues(func() (*emulator.Spanner, error) { return emulator.StartSpanner(context.Background()) })
	pubsub  = sync.OnceValues(func() (*emulator.PubSub, error) { return emulator.StartPubSub(context.Background()) })
)

// Spanner returns the Spanner emulator that the tests of this process share, or
// fails the test. The caller must not close it.
func Spanner(tb testing.TB) *emulator.Spanner {
	tb.Helper()
	s, err := spanner()
	if err != nil {
		tb.Fatalf("get the shared emulator: %v", err)
	}
	return s
}

// Database creates a fresh database with the given DDL statements in the shared
// Spanner emulator and returns its name, projects/P/instances/I/databases/D. The end
// of the test drops it.
func Database(tb testing.TB, statements []string) string {
	tb.Helper()
	s := Spanner(tb)
	name, err := s.CreateDatabase(tb.Context(), "", statements)
	if err != nil {
		tb.Fatalf("get a database: %v", err)
	}
	tb.Cleanup(func() {
		// The test's own context is canceled by now.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), dropLimit)
		defer cancel()
		if err := s.DropDatabase(ctx, name); err != nil {
			tb.Errorf("clean up: %v", err)
		}
	})
	return name
}

// PubSub returns the Pub/Sub emulator that the tests of this process share, or fails
// the test. The caller must not close it, and must use topic and subscription names
// that no other test uses.
func PubSub(tb testing.TB) *emulator.PubSub {
	tb.Helper()
	p, err := pubsub()
	if err != nil {
		tb.Fatalf("get the shared emulator: %v", err)
	}
	return p
}
