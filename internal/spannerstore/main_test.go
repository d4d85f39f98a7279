package spannerstore_test

import (
	"os"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
)

func TestMain(m *testing.M) {
	// The emulator runs one read-write transaction at a time and aborts the
	// others. The client's pauses between attempts are made for Spanner, where an
	// abort is rare; here they would be most of the tests' time.
	spanner.DefaultRetryBackoff.Initial = time.Millisecond
	spanner.DefaultRetryBackoff.Max = 8 * time.Millisecond
	os.Exit(m.Run())
}
