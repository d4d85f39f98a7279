package spannerstore_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/test/roletest"
)

// access records the tests' accesses to tables.
var access roletest.Access

func TestMain(m *testing.M) {
	// The emulator runs one read-write transaction at a time and aborts the others. The
	// client's backoff suits Spanner, where aborts are rare; here it would take most of
	// the tests' time.
	spanner.DefaultRetryBackoff.Initial = time.Millisecond
	spanner.DefaultRetryBackoff.Max = 8 * time.Millisecond
	code := m.Run()
	lacking, err := access.Lacking("../../deploy/database_roles.sql", "settleonce_function")
	if err != nil || len(lacking) > 0 {
		fmt.Fprintln(os.Stderr, "deploy/database_roles.sql lacks rights that the function needs:", lacking, err)
		code = 1
	}
	os.Exit(code)
}
