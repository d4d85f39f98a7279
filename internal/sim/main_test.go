package sim

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// seconds makes TestSequences run for a time and not for a number of sequences.
var seconds = flag.Int("sim.seconds", 0, "sim: how long to draw sequences; 0 for the number that CI draws")

const (
	defaultSequences = 20_000
	defaultSteps     = 50 // on average
	batch            = 500
	workers          = 2
)

// given tells which flags the command line has.
var given = map[string]bool{}

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["rapid.steps"] {
		set("rapid.steps", defaultSteps)
	}
	if replay() && !given["rapid.checks"] {
		set("rapid.checks", 1)
	}
	os.Exit(m.Run())
}

// replay tells that what failed before is to be drawn again.
func replay() bool { return given["rapid.seed"] || given["rapid.failfile"] }

func set[N int | uint64](name string, value N) {
	if err := flag.Set(name, fmt.Sprint(value)); err != nil {
		panic(err)
	}
}

// TestSequences draws sequences and fails at the first that breaks a promise,
// shrunk. Without flags it draws 20,000; -sim.seconds draws for that long, and
// -rapid.seed draws again what a failure has named.
func TestSequences(t *testing.T) {
	t.Parallel()
	began, total := time.Now(), tally{seen: map[string]int{}}
	t.Run("draw", func(t *testing.T) { // ends when its parallel parts have ended
		for worker := range workers {
			t.Run(strconv.Itoa(worker+1), func(t *testing.T) {
				t.Parallel()
				draw(t, total.add)
			})
		}
	})
	total.report(t, time.Since(began))
}

// draw draws this worker's share.
func draw(t *testing.T, count func(map[string]int)) {
	property := func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) { sequence(t, count) })
	}
	if replay() {
		rapid.Check(t, property)
		return
	}
	left := defaultSequences / workers
	if raceDetector {
		left /= 20
	}
	if given["rapid.checks"] {
		left, _ = strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
		left /= workers
	}
	first := rand.Uint64N(1 << 40) // few enough digits to type, and never 0
	began, drawn := time.Now(), 0
	for n := uint64(0); *seconds == 0 && left > 0 || time.Since(began) < time.Duration(*seconds)*time.Second; n++ {
		size := batch
		if *seconds == 0 {
			size = min(batch, left)
		}
		checkFrom(t, first+1+n<<24, size, property)
		left -= size
		drawn += size
	}
	t.Logf("%d sequences in batches of %d; the seeds of the batches are %d and from there every %d", drawn, batch, first+1, 1<<24)
}

// seeding is held from when the flags are set until rapid has read them, which it
// has when it first calls the property.
var seeding sync.Mutex

func checkFrom(t *testing.T, seed uint64, checks int, property func(*rapid.T)) {
	t.Helper()
	var read sync.Once
	seeding.Lock()
	defer read.Do(seeding.Unlock)
	set("rapid.seed", seed)
	set("rapid.checks", checks)
	rapid.Check(t, func(t *rapid.T) {
		read.Do(seeding.Unlock)
		property(t)
	})
}

// tally counts what has happened in all sequences.
type tally struct {
	mu        sync.Mutex
	sequences int
	seen      map[string]int
}

func (c *tally) add(one map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequences++
	for what, n := range one {
		c.seen[what] += n
	}
}

// mustHappen is what a full run has to have met: a simulation that no longer
// comes there proves nothing about it.
var mustHappen = []string{
	"delivery applied", "delivery duplicate", "delivery conflict", "delivery failed", "late commit", "resend",
	"crash at settle", "crash at settle, done", "crash at change", "crash at change, done", "crash at send", "crash at send, done", "crash at status, done",
	"send accepted", "send rejected", "send uncertain", "send not_sent", "send held", "send retry_later", "send manual",
	"status pending", "status confirmed", "status rejected", "status returned", "status not_found", "status unknown", "status manual", "status attention",
	"end confirmed", "end rejected", "end returned", "end manual", "end of a lie", "executed after not found",
}

func (c *tally) report(t *testing.T, took time.Duration) {
	for _, what := range slices.Sorted(maps.Keys(c.seen)) {
		t.Logf("%8d  %s", c.seen[what], what)
	}
	t.Logf("%d sequences, %.0f a second", c.sequences, float64(c.sequences)/took.Seconds())
	for _, what := range mustHappen {
		if !t.Failed() && c.sequences >= defaultSequences/2 && c.seen[what] == 0 {
			t.Errorf("in %d sequences there was never: %s", c.sequences, what)
		}
	}
}
