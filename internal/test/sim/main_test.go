package sim

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

var (
	seedFlag = flag.Uint64("sim.seed", 0, "sim: the first seed; 0 draws one")
	seconds  = flag.Int("sim.seconds", 0, "sim: the time in seconds to draw sequences; 0 draws one sequence with -sim.seed, and a fixed number without")
)

const (
	// sequences is the number of sequences in an ordinary test run.
	sequences = 4000
	// stepsEach is the average number of steps of a sequence.
	stepsEach = 80
	// workers is the number of concurrent sequences.
	workers = 2
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // sequences are short-lived, and memory is small
	os.Exit(m.Run())
}

// TestSequences runs sequences, each from its own seed, and shrinks the first that
// breaks a promise.
func TestSequences(t *testing.T) {
	t.Parallel()
	first := *seedFlag
	if first == 0 {
		first = 1 + rand.Uint64N(1<<40) // few digits
	}
	most := uint64(sequences)
	switch {
	case *seconds > 0:
		most = 1 << 62
	case *seedFlag != 0:
		most = 1
	case raceDetector:
		most /= 20
	}
	d := drawer{first: first, most: most, total: tally{seen: map[string]int{}}}
	began := time.Now()
	if *seconds > 0 {
		d.until = began.Add(time.Duration(*seconds) * time.Second)
	}
	t.Run("draw", func(t *testing.T) { // ends after its parallel subtests
		for worker := range workers {
			t.Run(strconv.Itoa(worker+1), func(t *testing.T) {
				t.Parallel()
				d.work(t)
			})
		}
	})
	t.Logf("seeds %d to %d", first, first+min(d.next.Load(), d.most)-1)
	d.total.report(t, time.Since(began))
}

// drawer hands out seeds.
type drawer struct {
	first, most uint64
	until       time.Time // zero: without a limit
	next        atomic.Uint64
	failing     atomic.Bool
	total       tally
}

// work runs sequences until there are no more, or one breaks a promise.
func (d *drawer) work(t *testing.T) {
	for !d.failing.Load() && (d.until.IsZero() || time.Now().Before(d.until)) {
		n := d.next.Add(1) - 1
		if n >= d.most {
			return
		}
		r := play(t, fromSeed(d.first+n))
		d.total.add(r.world.seen)
		switch {
		case r.broken == nil:
		case d.failing.Swap(true):
			t.Errorf("seed %d also breaks a promise", d.first+n)
		default:
			report(t, d.first+n, shortest(t, r, time.Now().Add(time.Minute)))
		}
	}
}

// TestKept replays the stories of all sequences that ever broke a promise.
func TestKept(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(stories, "*.story"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories in %s: %v", stories, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".story"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			kept, err := readScript(string(text))
			if err != nil {
				t.Fatalf("read %s: %v", file, err)
			}
			if r := play(t, &tape{kept: kept, recording: true}); r.broken != nil {
				t.Errorf("A promise is broken again.\n\n%s\n\nEvents (virtual time):\n\n%s\nFinal state:\n\n%s",
					r.broken.text, r.tape.story(), r.finalState)
			}
		})
	}
}

// TestOneSeedOneHistory runs sequences twice, on one processor and on all. Choices,
// events and final state must be equal, byte for byte.
func TestOneSeedOneHistory(t *testing.T) { //nolint:paralleltest // sets the number of processors
	first, length := 1+rand.Uint64N(1<<40), 0
	for seed := first; seed < first+20; seed++ {
		before := runtime.GOMAXPROCS(1)
		once := playRecorded(t, seed, nil)
		runtime.GOMAXPROCS(before)
		twice := playRecorded(t, seed, nil)
		if once.history() != twice.history() {
			t.Fatalf("seed %d has two histories (-first +second):\n%s", seed, cmp.Diff(once.history(), twice.history()))
		}
		length += len(once.tape.story())
	}
	if length < 20*1000 {
		t.Errorf("seeds from %d: 20 histories have only %d bytes", first, length)
	}
}

func playRecorded(t *testing.T, seed uint64, check func(*world)) run {
	p := fromSeed(seed)
	p.recording, p.check = true, check
	return play(t, p)
}

// history returns choices, events and final state, without owners: the two workers of
// a reconciler draw their IDs concurrently.
func (r run) history() string {
	state := r.world.store.Snapshot()
	for i := range state.Instructions {
		state.Instructions[i].Owner = ""
	}
	all, err := json.Marshal(state, json.Deterministic(true), jsontext.WithIndent(" "))
	if err != nil {
		panic(err)
	}
	return r.tape.script() + r.finalState + string(all)
}
