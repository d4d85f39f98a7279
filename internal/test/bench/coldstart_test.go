package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadInits(t *testing.T) {
	t.Parallel()
	const trace = `init internal/bytealg @0.01 ms, 0 ms clock, 0 bytes, 0 allocs
{"severity":"INFO"}
init net/http @5.4 ms, 0.25 ms clock, 4712 bytes, 49 allocs
init github.com/settleonce/settleonce/internal/bank @32 ms, 1.2 ms clock, 558872 bytes, 7216 allocs
init github.com/settleonce/settleonce @33 ms, 0.3 ms clock, 8 bytes, 4 allocs
`
	want := []initialisation{{"this module", 1.5, 7220}, {"net/http", 0.25, 49}, {"internal/bytealg", 0, 0}, {"all others", 0, 0}}
	if diff := cmp.Diff(want, readInits(trace), cmp.AllowUnexported(initialisation{})); diff != "" {
		t.Errorf("inits (-want +got):\n%s", diff)
	}
}
