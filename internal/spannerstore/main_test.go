package spannerstore_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/test/roletest"
)

// access is what the stores of this package's tests have done to tables.
var access roletest.Access

func TestMain(m *testing.M) {
	// The emulator runs one read-write transaction at a time and aborts the
	// others. The client's pauses between attempts are made for Spanner, where an
	// abort is rare; here they would be most of the tests' time.
	spanner.DefaultRetryBackoff.Initial = time.Millisecond
	spanner.DefaultRetryBackoff.Max = 8 * time.Millisecond
	code := m.Run()
	lacking, err := access.Lacking("../../deploy/database_roles.sql", "settleonce_function")
	// A new key is people's decision: package operate compares the operator's role.
	lacking = slices.DeleteFunc(lacking, func(done string) bool { return done == "INSERT bank_superseded_keys" })
	if err != nil || len(lacking) > 0 {
		fmt.Fprintln(os.Stderr, "deploy/database_roles.sql does not let the function do what the tests have seen it do:", lacking, err)
		code = 1
	}
	os.Exit(code)
}
