package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestStoriesPlayAsTheyAreKept plays sequences from seeds and then from what would
// be kept of them.
func TestStoriesPlayAsTheyAreKept(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		once := playTold(t, seed, nil)
		kept, err := readScript(once.tape.script())
		if err != nil {
			t.Fatal(err)
		}
		again := play(t, &tape{kept: kept, telling: true})
		if once.history() != again.history() {
			t.Fatalf("seed %d: another history from the story (-seed +story):\n%s", seed, cmp.Diff(once.history(), again.history()))
		}
	}
}

func TestStoriesOfWhatIsNotDrawnAreRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"step":                   "line 1 is no choice",
		"# told\nweather = rain": `line 2: nothing is drawn as "weather"`,
		"step = go on\n\nhow a commit goes on = flies": `line 3: "flies" is not drawn as "how a commit goes on"`,
	} {
		if _, err := readScript(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestKeptChoicesAreFoundByName: what a story does not say is the simplest, and
// what is no longer asked does not shift the rest.
func TestKeptChoicesAreFoundByName(t *testing.T) {
	t.Parallel()
	kept, err := readScript("step = publish\nwhat is published = no payout\ncall = send stl-1\nthe message is = cut off\nstep = push\n" + theEnd + " = comes\ncall = settle stl-2")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{tape: &tape{kept: kept}}
	var got []string
	w.repeat(func() {
		got = append(got, draw(w, steps), draw(w, publications), draw(w, nonsense), draw(w, styles))
	})
	got = append(got, pick(w, aCall, []*call{{what: "settle", id: "stl-1"}, {what: "settle", id: "stl-2"}}).id)
	want := []string{"publish", "no payout", "cut off", "in another order", "push", "a new payout", "empty", "in another order", "stl-2"}
	if !slices.Equal(got, want) {
		t.Errorf("drew %q, want %q", got, want)
	}
}

// TestShrinking breaks a promise of its own, that no more than two messages are
// acknowledged. A few steps are enough for that.
func TestShrinking(t *testing.T) {
	t.Parallel()
	r := run{}
	for seed := uint64(1); r.broken == nil; seed++ {
		p := fromSeed(seed)
		p.also = func(w *world) {
			if w.seen["acknowledged"] > 2 {
				w.fail("%d messages are acknowledged", w.seen["acknowledged"])
			}
		}
		r = play(t, p)
	}
	short := shortest(t, r, time.Now().Add(time.Minute))
	if size := short.tape.size(); short.broken == nil || short.broken.kind != r.broken.kind || size[0] > 5 {
		t.Errorf("shrunk to %v from %v: %v", size, r.tape.size(), short.broken)
	}
	if story := short.tape.story(); !strings.Contains(story, "here it breaks") || strings.Count(story, "\n") > 40 {
		t.Errorf("the story:\n%s", story)
	}
}
