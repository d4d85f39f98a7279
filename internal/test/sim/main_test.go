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
	seedFlag = flag.Uint64("sim.seed", 0, "sim: the first seed; 0 for one that is drawn")
	seconds  = flag.Int("sim.seconds", 0, "sim: how long to draw sequences; 0 for one sequence where -sim.seed is given, and for a fixed number otherwise")
)

const (
	// sequences is how many are drawn by an ordinary run of the tests.
	sequences = 4000
	// stepsEach is how many steps a sequence has on average.
	stepsEach = 80
	// workers draw at the same time.
	workers = 2
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // the sequences are small and many
	os.Exit(m.Run())
}

// TestSequences draws sequences, each from a seed of its own, and fails at the
// first that breaks a promise, shrunk.
func TestSequences(t *testing.T) {
	t.Parallel()
	first := *seedFlag
	if first == 0 {
		first = 1 + rand.Uint64N(1<<40) // few enough digits to type
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
	t.Run("draw", func(t *testing.T) { // ends when its parallel parts have ended
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
	until       time.Time // zero: for as long as it takes
	next        atomic.Uint64
	failing     atomic.Bool
	total       tally
}

// work plays sequences until there are no more, or one breaks a promise. The first
// that does is shrunk.
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
			t.Errorf("seed %d breaks a promise too", d.first+n)
		default:
			report(t, d.first+n, shortest(t, r, time.Now().Add(time.Minute)))
		}
	}
}

// TestKept plays the stories of all sequences that ever broke a promise.
func TestKept(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(stories, "*.story"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories are kept in %s: %v", stories, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".story"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			kept, err := readScript(string(text))
			if err != nil {
				t.Fatalf("%s tells of what does not happen any more: %v", file, err)
			}
			if r := play(t, &tape{kept: kept, telling: true}); r.broken != nil {
				t.Errorf("A promise is broken, as it was before.\n\n%s\n\nThis is how (time is virtual):\n\n%s\nWhat there is then:\n\n%s",
					r.broken.text, r.tape.story(), r.ending)
			}
		})
	}
}

// TestOneSeedOneHistory plays sequences twice, on one processor and on all, and
// wants the same choices, the same events and the same state in the end, byte for
// byte.
func TestOneSeedOneHistory(t *testing.T) { //nolint:paralleltest // sets the number of processors
	first, length := 1+rand.Uint64N(1<<40), 0
	for seed := first; seed < first+20; seed++ {
		before := runtime.GOMAXPROCS(1)
		once := playTold(t, seed, nil)
		runtime.GOMAXPROCS(before)
		twice := playTold(t, seed, nil)
		if once.history() != twice.history() {
			t.Fatalf("seed %d: another history the second time (-once +twice):\n%s", seed, cmp.Diff(once.history(), twice.history()))
		}
		length += len(once.tape.story())
	}
	if length < 20*1000 {
		t.Errorf("seeds from %d: 20 histories have only %d bytes", first, length)
	}
}

// playTold plays the sequence of a seed and writes it down.
func playTold(t *testing.T, seed uint64, also func(*world)) run {
	p := fromSeed(seed)
	p.telling, p.also = true, also
	return play(t, p)
}

// history returns everything that has happened and what there is in the end. Owners
// are left out: the two workers of a reconciler ask for their IDs at the same time.
func (r run) history() string {
	state := r.world.store.Snapshot()
	for i := range state.Instructions {
		state.Instructions[i].Owner = ""
	}
	all, err := json.Marshal(state, json.Deterministic(true), jsontext.WithIndent(" "))
	if err != nil {
		panic(err)
	}
	return r.tape.script() + r.ending + string(all)
}
