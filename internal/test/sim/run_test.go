package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// run is the result of one sequence.
type run struct {
	tape       *tape
	world      *world
	broken     *broken // nil where no promise broke
	finalState string  // if recorded
}

// broken is a broken promise. Failures of the same check have the same kind.
type broken struct{ kind, text string }

// play runs one sequence in virtual time.
func play(t *testing.T, p *tape) (r run) {
	r.tape = p
	synctest.Test(t, func(*testing.T) {
		p.began = time.Now()
		w := &world{tape: p, seen: map[string]int{}}
		r.world = w
		defer func() {
			if caught := recover(); caught != nil {
				r.broken = asBroken(caught)
				p.tell("broken promise: %s", firstLine(r.broken.text))
			}
			if p.recording {
				r.finalState = w.oracle.finalState()
			}
			w.close()
		}()
		w.begin()
		w.sequence()
	})
	return r
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

func asBroken(caught any) *broken {
	if b, ok := caught.(*broken); ok {
		return b
	}
	return &broken{kind: fmt.Sprint(caught), text: fmt.Sprintf("panic: %v\n%s", caught, debug.Stack())}
}

// stories is the directory of kept stories; new failures are written there too.
const stories = "testdata/stories"

// report fails the test with the story of a broken promise, and writes the story to
// its directory.
func report(t *testing.T, seed uint64, r run) {
	t.Helper()
	file := filepath.Join(stories, fmt.Sprintf("%d.story", seed))
	title := fmt.Sprintf("seed %d: %s", seed, r.broken.text) // can have several lines
	text := "# " + strings.ReplaceAll(title, "\n", "\n# ") + "\n" + r.tape.script()
	err := os.MkdirAll(stories, 0o750)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Log(err)
	}
	t.Errorf("A promise is broken.\n\n%s\n\nEvents (%d steps, virtual time):\n\n%s\nFinal state:\n\n%s\nRepeat:  make sim SEED=%d\nKeep:    git add internal/test/sim/%s",
		title, r.tape.size()[0], r.tape.story(), r.finalState, seed, file)
}
