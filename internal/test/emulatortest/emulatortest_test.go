package emulatortest

import (
	"context"
	"errors"
	"testing"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/emulator"
)

func TestSharedEmulators(t *testing.T) {
	t.Parallel()
	if first, second := Spanner(t), Spanner(t); first != second {
		t.Error("two Spanner emulators in one process")
	}
	if first, second := PubSub(t), PubSub(t); first != second {
		t.Error("two Pub/Sub emulators in one process")
	}
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	admin, err := database.NewDatabaseAdminClient(t.Context(), Spanner(t).ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	var first, second string
	t.Run("distinct", func(t *testing.T) {
		ddl := []string{`CREATE TABLE t (k INT64) PRIMARY KEY (k)`}
		first, second = Database(t, ddl), Database(t, ddl)
		if first == second {
			t.Errorf("two databases named %s", first)
		}
	})
	for _, name := range []string{first, second} {
		_, err := admin.GetDatabase(t.Context(), &databasepb.GetDatabaseRequest{Name: name})
		if status.Code(err) != codes.NotFound {
			t.Errorf("GetDatabase after the subtest = %v, want NOT_FOUND", err)
		}
	}
}

// fakeEmulator has the method that shared calls.
type fakeEmulator struct{ err error }

func (f *fakeEmulator) Err() error { return f.err }

func TestShared(t *testing.T) {
	t.Parallel()
	var (
		s      shared[*fakeEmulator]
		starts int
		fail   = errors.New("no emulator")
	)
	get := func() (*fakeEmulator, error) {
		return s.get(t.Context(), func(context.Context, ...emulator.Option) (*fakeEmulator, error) {
			starts++
			return &fakeEmulator{}, fail
		})
	}
	if _, err := get(); !errors.Is(err, fail) {
		t.Fatalf("get = %v, want the start's error", err)
	}
	fail = nil
	first, err := get()
	if err != nil {
		t.Fatalf("get after a failed start = %v", err)
	}
	if again, _ := get(); again != first || starts != 2 {
		t.Errorf("get = another emulator, or %d starts, want the same and 2", starts)
	}
	first.err = errors.New("ended")
	if again, _ := get(); again == first || starts != 3 {
		t.Errorf("get = the ended emulator, or %d starts, want a new one and 3", starts)
	}
}
