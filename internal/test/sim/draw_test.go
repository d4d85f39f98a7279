package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// choice is something that is drawn: one of some values, each with its word. A
// word that stands there several times is drawn that much more often.
type choice[T any] struct {
	what   string
	values []T
	words  []string
}

// vocabulary holds the words of every choice, to tell a kept story that speaks of
// what is drawn from one that no longer does.
var vocabulary = map[string][]string{}

func known[T any](c choice[T]) choice[T] {
	if _, twice := vocabulary[c.what]; twice {
		panic("two choices are called " + c.what)
	}
	vocabulary[c.what] = c.words
	return c
}

// oneOf makes a choice among values. The first is the simplest: stories are
// shrunk towards it, and a kept story that says nothing takes it.
func oneOf[T any](what string, values ...T) choice[T] {
	c := choice[T]{what: what, values: values}
	for _, v := range values {
		c.words = append(c.words, fmt.Sprint(v))
	}
	return known(c)
}

// weighted makes a choice among words, each preceded by its weight.
func weighted(what string, weightsAndWords ...any) choice[string] {
	c := choice[string]{what: what}
	for i := 0; i < len(weightsAndWords); i += 2 {
		c.values = append(c.values, slices.Repeat([]string{weightsAndWords[i+1].(string)}, weightsAndWords[i].(int))...)
	}
	c.words = c.values
	return known(c)
}

// faulty makes a choice among faults of the bank.
func faulty[F SendFault | StatusFault](what string, faults []F) choice[F] {
	c := choice[F]{what: what, values: faults}
	for _, f := range faults {
		c.words = append(c.words, any(f).(interface{ name() string }).name())
	}
	return known(c)
}

func (f SendFault) name() string   { return f.Name }
func (f StatusFault) name() string { return f.Name }

// named is a choice among things of which there are now more and now less. The
// word is the thing's name, which does not depend on what else there is.
type named[T any] struct {
	what string
	name func(T) string
}

func oneOfMany[T any](what string, name func(T) string) named[T] {
	vocabulary[what] = nil
	return named[T]{what, name}
}

// tape is where the choices of one sequence come from, and where they are written
// down together with what happened.
type tape struct {
	random func(n int) int // below n, of the seed; nil for a kept story
	seed   uint64
	kept   []line // what is left of the kept story

	lines   []line
	telling bool // it is written down; from a seed, that can be done later
	began   time.Time

	also func(*world) // a promise of a test's own; nil for none
}

// line is a choice, or something that happened.
type line struct {
	what, word string
	simplest   bool
	text       string        // what happened
	at         time.Duration // when, from the beginning
}

// fromSeed returns the tape of a seed: always the same choices.
func fromSeed(seed uint64) *tape {
	return &tape{random: rand.New(rand.NewPCG(seed, 0)).IntN, seed: seed}
}

// draw draws one of the values.
func draw[T any](w *world, c choice[T]) T {
	i := w.choose(c.what, len(c.words), func(i int) string { return c.words[i] })
	return c.values[i]
}

// pick draws one of the things. There has to be one.
func pick[T any](w *world, c named[T], from []T) T {
	return from[w.choose(c.what, len(from), func(i int) string {
		name, same := c.name(from[i]), 1
		for _, earlier := range from[:i] {
			if c.name(earlier) == name {
				same++
			}
		}
		if same > 1 {
			name = fmt.Sprintf("%s (%d)", name, same)
		}
		return name
	})]
}

// choose draws a number below n, each of which has its word.
func (p *tape) choose(what string, n int, word func(int) string) (i int) {
	if p.random != nil {
		i = p.random(n)
	} else {
		i = p.recall(what, n, word)
	}
	if p.telling {
		p.lines = append(p.lines, line{what: what, word: word(i), simplest: word(i) == word(0)})
	}
	return i
}

// recall returns what the kept story says within the current step. The first
// value is taken where it says nothing: the story was written before that choice
// was there, or the code under test has since gone another way.
func (p *tape) recall(what string, n int, word func(int) string) int {
	for at, said := range p.kept {
		if said.what == stepChoice && what != stepChoice || said.what == theEnd {
			return 0
		}
		if said.what == what {
			p.kept = p.kept[at+1:]
			for i := range n {
				if word(i) == said.word {
					return i
				}
			}
			return 0
		}
	}
	return 0
}

// stepChoice is what the choice of a step is called.
const stepChoice = "step"

// theEnd is written down where the steps are over and the faults end.
const theEnd = "the end"

func init() { vocabulary[theEnd] = []string{"comes"} }

// repeat makes the steps of the sequence, stepsEach on average.
func (p *tape) repeat(step func()) {
	if p.random != nil {
		for range p.random(2*stepsEach + 1) {
			step()
		}
	} else {
		for p.nextStep() {
			step()
		}
	}
	p.lines = append(p.lines, line{what: theEnd, word: "comes", simplest: true})
	if len(p.kept) > 0 {
		p.kept = p.kept[1:]
	}
}

// nextStep passes over what the last step has left of the kept story.
func (p *tape) nextStep() bool {
	for len(p.kept) > 0 && p.kept[0].what != stepChoice && p.kept[0].what != theEnd {
		p.kept = p.kept[1:]
	}
	return len(p.kept) > 0 && p.kept[0].what == stepChoice
}

// tell writes down what happened.
func (p *tape) tell(format string, args ...any) {
	if p.telling {
		p.lines = append(p.lines, line{text: fmt.Sprintf(format, args...), at: time.Since(p.began)})
	}
}

// choices returns what was drawn.
func (p *tape) choices() (all []line) {
	for _, l := range p.lines {
		if l.text == "" {
			all = append(all, l)
		}
	}
	return all
}

// story returns what happened, for a person.
func (p *tape) story() string {
	var b strings.Builder
	for _, l := range p.lines {
		if l.text != "" {
			fmt.Fprintf(&b, "%s  %s\n", clock(l.at), l.text)
		}
	}
	return b.String()
}

// clock shows a time from the beginning as days, hours, minutes and seconds.
func clock(d time.Duration) string {
	seconds := int64(d / time.Second)
	text := fmt.Sprintf("%02d:%02d:%02d", seconds/3600%24, seconds/60%60, seconds%60)
	if days := seconds / 86400; days > 0 {
		return fmt.Sprintf("%3dd %s", days, text)
	}
	return "     " + text
}

// script returns the sequence as a kept story: the choices, and what happened as
// comments.
func (p *tape) script() string {
	var b strings.Builder
	for _, l := range p.lines {
		if l.text != "" {
			fmt.Fprintf(&b, "# %s  %s\n", clock(l.at), strings.ReplaceAll(l.text, "\n", "\n# "))
		} else {
			fmt.Fprintf(&b, "%s = %s\n", l.what, l.word)
		}
	}
	return b.String()
}

// readScript reads a kept story. It fails where the story speaks of something that
// is not drawn any more: it would be a story about nothing.
func readScript(text string) (kept []line, err error) {
	for n, l := range strings.Split(text, "\n") {
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		what, word, ok := strings.Cut(l, " = ")
		words, known := vocabulary[what]
		switch {
		case !ok:
			return nil, fmt.Errorf("line %d is no choice: %q", n+1, l)
		case !known:
			return nil, fmt.Errorf("line %d: nothing is drawn as %q any more", n+1, what)
		case words != nil && !slices.Contains(words, word):
			return nil, fmt.Errorf("line %d: %q is not drawn as %q any more, but one of %q", n+1, word, what, words)
		}
		kept = append(kept, line{what: what, word: word})
	}
	return kept, nil
}
