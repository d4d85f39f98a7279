package settleonce_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/emulator/emulatortest"
	"github.com/settleonce/settleonce/internal/faultproxy"
)

// crash is a Commit of a process, by number, at which it is killed.
type crash struct {
	name   string
	commit int64
	at     faultproxy.Stage
}

// die runs a function until it is killed at its Commit, or by the strike that arm
// is given. start starts it on a Spanner host, request makes the request in which
// it dies.
func (c crash) die(t *testing.T, start func(spannerHost string) *function, request func(*function) answer, arm func(strike func())) {
	t.Helper()
	var (
		victim  *function
		killed  atomic.Bool
		commits atomic.Int64
	)
	strike := func() {
		if killed.CompareAndSwap(false, true) {
			victim.kill()
		}
	}
	proxy, err := faultproxy.Start(t.Context(), emulatortest.Spanner(t).GRPC, func(method string, at faultproxy.Stage) bool {
		if method != "Commit" {
			return true
		}
		n := commits.Load()
		if at == faultproxy.Requested {
			n = commits.Add(1)
		}
		if n != c.commit || at != c.at {
			return true
		}
		strike()
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	arm(strike)
	victim = start(proxy.Addr)
	if a := request(victim); a.Status != 0 || !killed.Load() {
		t.Fatalf("not killed %s: %d %s", c.name, a.Status, a.Body)
	}
}

// dieAt delivers data to a new instance that is killed at the crash.
func dieAt(t *testing.T, db database, c crash, data string) {
	t.Helper()
	c.die(t, func(host string) *function { return startChild(t, db.env(host)...) },
		func(f *function) answer { return f.deliver(t.Context(), "1001", data) }, func(func()) {})
}

// TestCrashAroundTheCommit kills the function, which is a process of its own,
// just before its Commit reaches Spanner and just after Spanner answered it, and
// delivers the message again to a new instance.
func TestCrashAroundTheCommit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		crash
		moved  int    // movements that the crash leaves behind
		replay string // what the delivery after the crash becomes
	}{
		{crash{"immediately before the Commit is sent", 1, faultproxy.Requested}, 0, "applied"},
		{crash{"immediately after the Commit was answered", 1, faultproxy.Answered}, 1, "duplicate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			dieAt(t, db, test.crash, plain)
			if all := db.snapshot(t); len(all.Movements) != test.moved || len(all.Receipts) != test.moved {
				t.Fatalf("the crash left %d movements and %d receipts, want %d each", len(all.Movements), len(all.Receipts), test.moved)
			}
			heir := startChild(t, db.env(emulatortest.Spanner(t).GRPC)...)
			for i, want := range []string{test.replay, "duplicate"} {
				if a := heir.deliver(t.Context(), "1001", plain); a.Status != 200 || a.Outcome != want {
					t.Errorf("replay %d: %d %s, want %s", i+1, a.Status, a.Body, want)
				}
			}
			all := db.snapshot(t)
			if len(all.Movements) != 1 || len(all.Receipts) != 1 || len(all.Conflicts) != 0 {
				t.Errorf("stored %+v", all)
			}
		})
	}
}

// TestCrashAroundTheTransaction is the same for the read-write transaction, which
// records a conflict here. Its Commit is the second.
func TestCrashAroundTheTransaction(t *testing.T) {
	t.Parallel()
	changed := strings.Replace(plain, "4731", "4732", 1)
	for _, test := range []struct {
		crash
		deliveries int64 // that are counted in the end
	}{
		{crash{"immediately before the Commit is sent", 2, faultproxy.Requested}, 1},
		{crash{"immediately after the Commit was answered", 2, faultproxy.Answered}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			heir := startChild(t, db.env(emulatortest.Spanner(t).GRPC)...)
			if a := heir.deliver(t.Context(), "1000", plain); a.Outcome != "applied" {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			before := db.snapshot(t)
			dieAt(t, db, test.crash, changed)
			if a := heir.deliver(t.Context(), "1001", changed); a.Status != 200 || a.Outcome != "conflict" {
				t.Errorf("replay: %d %s, want conflict", a.Status, a.Body)
			}
			all := db.snapshot(t)
			if len(all.Conflicts) != 1 || all.Conflicts[0].Deliveries != test.deliveries {
				t.Errorf("conflicts %+v, want one of %d deliveries", all.Conflicts, test.deliveries)
			}
			all.Conflicts = nil
			if diff := cmp.Diff(before, all); diff != "" {
				t.Errorf("the conflict changed (-before +after):\n%s", diff)
			}
		})
	}
}
