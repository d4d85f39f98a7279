package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStoriesReplayTheirSequences(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		once := playRecorded(t, seed, nil)
		kept, err := readScript(once.tape.script())
		if err != nil {
			t.Fatal(err)
		}
		again := play(t, &tape{kept: kept, recording: true})
		if once.history() != again.history() {
			t.Fatalf("seed %d: the story has another history (-seed +story):\n%s", seed, cmp.Diff(once.history(), again.history()))
		}
	}
}

func TestRejectsStoriesWithUnknownChoices(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"step":                                  "line 1 is no choice",
		"# comment\nweather = rain":             `line 2: unknown choice "weather"`,
		"step = push\n\ncommit outcome = flies": `line 3: unknown word "flies" of choice "commit outcome"`,
	} {
		if _, err := readScript(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// A story's missing choice takes the simplest value, and its unused choices do not
// shift the rest.
func TestKeptChoicesAreFoundByName(t *testing.T) {
	t.Parallel()
	kept, err := readScript("step = publish\npublication = an invalid message\ncall = send stl-1\ninvalid message = cut off\nstep = push\n" + endOfSteps + " = reached\ncall = settle stl-2")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{tape: &tape{kept: kept}}
	var got []string
	w.repeat(func() {
		for _, choice := range []func(*world) string{word(steps), word(publications), word(invalids), word(encodings)} {
			got = append(got, choice(w))
		}
	})
	got = append(got, pick(w, parkedCall, []*call{{kind: "settle", id: "stl-1"}, {kind: "settle", id: "stl-2"}}).id)
	want := []string{"publish", "an invalid message", "cut off", "in another order", "push", "a new payout", "empty", "in another order", "stl-2"}
	if !slices.Equal(got, want) {
		t.Errorf("drew %q, want %q", got, want)
	}
}

// word draws the word of a choice.
func word[T any](c choice[T]) func(*world) string {
	return func(w *world) string {
		word, _ := drawWord(w, c)
		return word
	}
}

// TestShrinking adds the check that at most two messages are acknowledged. A few steps
// break it.
func TestShrinking(t *testing.T) {
	t.Parallel()
	r := run{}
	for seed := uint64(1); r.broken == nil; seed++ {
		p := fromSeed(seed)
		p.check = func(w *world) {
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
	if story := short.tape.story(); !strings.Contains(story, "broken promise") || strings.Count(story, "\n") > 40 {
		t.Errorf("story:\n%s", story)
	}
}
