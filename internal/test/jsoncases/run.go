package jsoncases

import (
	"bytes"
	"runtime"
	"slices"
	"testing"
)

// Verdict is what a reader says to a document. The zero value is none.
type Verdict uint8

// The verdicts.
const (
	// IllFormed: refused because it is not JSON, or not in the strict sense.
	IllFormed Verdict = iota + 1
	// OtherFault: JSON, and refused for another reason.
	OtherFault
	// Taken: accepted.
	Taken
)

func (v Verdict) String() string {
	return [...]string{"no verdict", "ill-formed", "another fault", "taken"}[v]
}

// Reader is one JSON reader of the program, with a document in which it meets a
// value in a certain place.
type Reader struct {
	// Name says which reader, and which place.
	Name string
	// Before and After make a document of a value.
	Before, After string
	// Sound is the verdict on a document whose value is well-formed, whatever its
	// kind; one whose value is not is then IllFormed. Zero means that the verdict
	// depends on the kind too: IllFormed is only the ill-formed, and it is refused,
	// for whatever the reader meets first.
	Sound Verdict
	// MaxBytes is the size from which the reader looks at nothing else. Zero means
	// that there is none that matters here.
	MaxBytes int
	// Read reads a document and says what came of it. It calls the program's reader
	// once and does nothing costly besides.
	Read func(document []byte) Verdict
}

// Run lets every reader read every case, alone and in its place, and checks the
// verdicts, that the document is left as it is, and that no more memory is used
// than some hundred times the document's. It is not parallel, since it measures.
func Run(t *testing.T, readers ...Reader) {
	t.Helper()
	cases := Cases(t)
	for _, reader := range readers {
		t.Run(reader.Name, func(t *testing.T) {
			for _, c := range cases {
				reader.readAlone(t, c)
				reader.readInPlace(t, c)
			}
		})
	}
}

func (r Reader) readAlone(t *testing.T, c Case) {
	t.Helper()
	if got := r.Read(bytes.Clone(c.Input)); got == Taken && !c.WellFormed() {
		t.Errorf("%s alone: %v (%s)", c.Name, got, c.Why)
	}
}

func (r Reader) readInPlace(t *testing.T, c Case) {
	t.Helper()
	document := slices.Concat([]byte(r.Before), c.Input, []byte(r.After))
	got := r.measured(t, c.Name, document)
	switch {
	case r.MaxBytes > 0 && len(document) > r.MaxBytes:
		if got == Taken {
			t.Errorf("%s in its place: %v, with %d bytes", c.Name, got, len(document))
		}
	case !c.WellFormed() && got == Taken,
		!c.WellFormed() && r.Sound != 0 && got != IllFormed,
		c.WellFormed() && got == IllFormed,
		c.WellFormed() && r.Sound != 0 && got != r.Sound:
		t.Errorf("%s in its place: %v; the value's verdict is %s (%s)", c.Name, got, c.Verdict, c.Why)
	}
}

// What a reader may allocate: a constant, and a multiple of the document. The JSON
// library needs about a kilobyte for each object that is open, and a reader that
// looks for the reason of a refusal reads several times; a number that is computed,
// or anything that grows with the square of the document, needs far more.
const (
	allowedBytes   = 256 << 10
	allowedPerByte = 300
)

// measured reads a document and checks that it is left as it is and how much was
// allocated.
func (r Reader) measured(t *testing.T, name string, document []byte) Verdict {
	t.Helper()
	given := bytes.Clone(document)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	verdict := r.Read(given)
	runtime.ReadMemStats(&after)
	if !bytes.Equal(given, document) {
		t.Errorf("%s: the reader changed the document", name)
	}
	used, allowed := after.TotalAlloc-before.TotalAlloc, uint64(allowedBytes+allowedPerByte*len(document))
	if used > allowed {
		t.Errorf("%s: %d bytes allocated for a document of %d, allowed %d", name, used, len(document), allowed)
	}
	return verdict
}
