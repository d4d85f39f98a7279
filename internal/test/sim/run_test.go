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

// run is what one sequence was.
type run struct {
	tape   *tape
	world  *world
	broken *broken // nil where it broke no promise
	ending string  // what there is in the end, where it is told
}

// broken is a promise that was broken. Its kind is the same wherever it happens.
type broken struct{ kind, text string }

// play runs one sequence in a bubble of virtual time.
func play(t *testing.T, p *tape) (r run) {
	r.tape = p
	synctest.Test(t, func(*testing.T) {
		p.began = time.Now()
		w := &world{tape: p, seen: map[string]int{}}
		r.world = w
		defer func() {
			if caught := recover(); caught != nil {
				r.broken = asBroken(caught)
				p.tell("here it breaks: %s", firstLine(r.broken.text))
			}
			if p.telling {
				r.ending = w.oracle.ending()
			}
			w.abandon()
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

// stories is where failing sequences are written to, and kept.
const stories = "testdata/stories"

// report fails the test with the story of a broken promise, and writes the story
// to where it is kept.
func report(t *testing.T, seed uint64, r run) {
	t.Helper()
	file := filepath.Join(stories, fmt.Sprintf("%d.story", seed))
	title := fmt.Sprintf("seed %d: %s", seed, r.broken.text) // of several lines, where it shows a difference
	text := "# " + strings.ReplaceAll(title, "\n", "\n# ") + "\n" + r.tape.script()
	err := os.MkdirAll(stories, 0o750)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Log(err)
	}
	t.Errorf("A promise is broken.\n\n%s\n\nThis is how (%d steps; time is virtual):\n\n%s\nWhat there is then:\n\n%s\nAgain:    make sim SEED=%d\nTo keep:  git add internal/test/sim/%s",
		title, r.tape.size()[0], r.tape.story(), r.ending, seed, file)
}
