package settleonce_test

import (
	"sync"
	"testing"

	"github.com/settleonce/settleonce/emulator/emulatortest"
	"github.com/settleonce/settleonce/internal/faultproxy"
)

// TestCrashAroundTheCommit kills the function, which is a process of its own,
// just before its Commit reaches Spanner and just after Spanner answered it, and
// delivers the message again to a new instance.
func TestCrashAroundTheCommit(t *testing.T) {
	t.Parallel()
	for _, crash := range []struct {
		name   string
		at     faultproxy.Stage
		moved  int    // movements that the crash leaves behind
		replay string // what the delivery after the crash becomes
	}{
		{"immediately before the Commit is sent", faultproxy.Requested, 0, "applied"},
		{"immediately after the Commit was answered", faultproxy.Answered, 1, "duplicate"},
	} {
		t.Run(crash.name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			var (
				victim *function
				killed sync.Once
			)
			proxy, err := faultproxy.Start(t.Context(), emulatortest.Spanner(t).GRPC, func(method string, at faultproxy.Stage) bool {
				if method == "Commit" && at == crash.at {
					killed.Do(victim.kill)
					return false
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			victim = startChild(t, "function", db.env(proxy.Addr)...)

			if a := victim.deliver(t.Context(), "1001", plain); a.Status != 0 {
				t.Fatalf("the killed function answered %d %s", a.Status, a.Body)
			}
			if all := db.snapshot(t); len(all.Movements) != crash.moved || len(all.Receipts) != crash.moved {
				t.Fatalf("the crash left %d movements and %d receipts, want %d each", len(all.Movements), len(all.Receipts), crash.moved)
			}

			heir := startChild(t, "function", db.env(emulatortest.Spanner(t).GRPC)...)
			for i, want := range []string{crash.replay, "duplicate"} {
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
