package main

import (
	"time"

	"cloud.google.com/go/spanner"
)

// tuneClient shortens the client's pauses after an abort. They are made for Spanner,
// where an abort is rare; the emulator aborts whatever meets another transaction. It is
// to the advantage of those that use transactions, and the same for all.
func tuneClient() {
	spanner.DefaultRetryBackoff.Initial = time.Millisecond
	spanner.DefaultRetryBackoff.Max = 8 * time.Millisecond
}
