package emulatortest

import (
	"testing"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
