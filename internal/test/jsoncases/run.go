package jsoncases

import (
	"bytes"
	"runtime"
	"slices"
	"testing"
)

// Verdict is a reader's result for a document. The zero value is none.
type Verdict uint8

// The verdicts.
const (
	// IllFormed means that the document is not JSON, or breaks a rule of strict JSON.
	IllFormed Verdict = iota + 1
	// OtherFault means that the document is JSON, and refused for another reason.
	OtherFault
	// Taken means that the reader accepts the document.
	Taken
)

func (v Verdict) String() string {
	return [...]string{"no verdict", "ill-formed", "another fault", "taken"}[v]
}

// Reader is a JSON reader of the program, and a document with a gap for a value.
type Reader struct {
	// Name names the reader and the gap.
	Name string
	// Before and After make a document of a value.
	Before, After string
	// Sound is the verdict on a document with a well-formed value of any kind; with any
	// other value the verdict must be IllFormed. Zero means that the verdict depends on
	// the value's kind; IllFormed is then only for ill-formed values.
	Sound Verdict
	// MaxBytes is the size above which the reader refuses a document unread. Zero means
	// no limit.
	MaxBytes int
	// Read calls the program's reader once, and allocates little besides.
	Read func(document []byte) Verdict
}

// Run lets every reader read every case, alone and in the gap. It checks the verdicts,
// that the document is unchanged, and the allocated memory. Run is not parallel, because
// the runtime counts allocations of the whole process.
func Run(t *testing.T, readers ...Reader) {
	t.Helper()
	cases := Cases(t)
	for _, reader := range readers {
		t.Run(reader.Name, func(t *testing.T) {
			for _, c := range cases {
				if got := reader.Read(bytes.Clone(c.Input)); got == Taken && !c.WellFormed() {
					t.Errorf("%s alone: %v (%s)", c.Name, got, c.Why)
				}
				reader.readInGap(t, c)
			}
		})
	}
}

func (r Reader) readInGap(t *testing.T, c Case) {
	t.Helper()
	document := slices.Concat([]byte(r.Before), c.Input, []byte(r.After))
	got := r.measured(t, c.Name, document)
	switch {
	case r.MaxBytes > 0 && len(document) > r.MaxBytes:
		if got == Taken {
			t.Errorf("%s in the gap: %v, with %d bytes", c.Name, got, len(document))
		}
	case !c.WellFormed() && got == Taken,
		!c.WellFormed() && r.Sound != 0 && got != IllFormed,
		c.WellFormed() && got == IllFormed,
		c.WellFormed() && r.Sound != 0 && got != r.Sound:
		t.Errorf("%s in the gap: %v; the value's verdict is %s (%s)", c.Name, got, c.Verdict, c.Why)
	}
}

// A reader may allocate allowedBytes, and allowedPerByte for each byte of the document.
// The JSON library needs about a kilobyte for each open object, and a reader that looks
// for the reason of a refusal reads several times. Computing a number's value, or growth
// with the square of the document, needs far more.
const (
	allowedBytes   = 256 << 10
	allowedPerByte = 300
)

// measured reads a document, and checks that it is unchanged and the allocated memory.
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
