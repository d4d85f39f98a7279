package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// choice is a random choice among values, each with a word for stories. A word that
// is listed n times has n times the probability.
type choice[T any] struct {
	name   string
	values []T
	words  []string
}

// vocabulary holds the words of every choice, so that a kept story with an unknown
// choice or word fails.
var vocabulary = map[string][]string{}

func register[T any](c choice[T]) choice[T] {
	if _, twice := vocabulary[c.name]; twice {
		panic("two choices have the name " + c.name)
	}
	vocabulary[c.name] = c.words
	return c
}

// oneOf makes a choice among values. The first is the simplest: stories are shrunk
// towards it, and it is the default of kept stories.
func oneOf[T any](name string, values ...T) choice[T] {
	c := choice[T]{name: name, values: values}
	for _, v := range values {
		c.words = append(c.words, fmt.Sprint(v))
	}
	return register(c)
}

// weighted makes a choice among words, each preceded by its weight.
func weighted(name string, weightsAndWords ...any) choice[string] {
	c := choice[string]{name: name}
	for i := 0; i < len(weightsAndWords); i += 2 {
		c.values = append(c.values, slices.Repeat([]string{weightsAndWords[i+1].(string)}, weightsAndWords[i].(int))...)
	}
	c.words = c.values
	return register(c)
}

// row is an alternative of a choice by table.
type row[T any] struct {
	weight int
	word   string
	value  T
}

func table[T any](name string, rows ...row[T]) choice[T] {
	c := choice[T]{name: name}
	for _, r := range rows {
		c.values = append(c.values, slices.Repeat([]T{r.value}, r.weight)...)
		c.words = append(c.words, slices.Repeat([]string{r.word}, r.weight)...)
	}
	return register(c)
}

// value returns the value of a word; the zero value for an unknown word.
func (c choice[T]) value(word string) (value T) {
	if i := slices.Index(c.words, word); i >= 0 {
		value = c.values[i]
	}
	return value
}

// faulty makes a choice among faults of the bank.
func faulty[F sendFault | statusFault](name string, faults []F) choice[F] {
	c := choice[F]{name: name, values: faults}
	for _, f := range faults {
		c.words = append(c.words, any(f).(fmt.Stringer).String())
	}
	return register(c)
}

func (f sendFault) String() string   { return f.name }
func (f statusFault) String() string { return f.name }

// named is a choice among a varying set of things, such as instances. The word is
// the thing's own name, which does not depend on the other things.
type named[T any] struct {
	name   string
	nameOf func(T) string
}

func oneOfMany[T any](name string, nameOf func(T) string) named[T] {
	vocabulary[name] = nil
	return named[T]{name, nameOf}
}

// tape supplies the choices of one sequence, and records choices and events.
type tape struct {
	random func(n int) int // below n, from the seed; nil for a kept story
	seed   uint64
	kept   []line // the unread rest of the kept story

	lines     []line
	recording bool // a run from a seed can be recorded later
	began     time.Time

	check      func(*world)        // an additional check after each step; nil for none
	breakStore func(ledger) ledger // nil: the correct ledger
}

// line is a choice or an event.
type line struct {
	name, word string // of a choice
	simplest   bool
	text       string        // of an event
	at         time.Duration // of an event, since the beginning
}

// fromSeed returns the tape of a seed.
func fromSeed(seed uint64) *tape {
	return &tape{random: rand.New(rand.NewPCG(seed, 0)).IntN, seed: seed}
}

// draw draws one of the values.
func draw[T any](w *world, c choice[T]) T {
	_, value := drawWord(w, c)
	return value
}

func drawWord[T any](w *world, c choice[T]) (word string, value T) {
	i := w.choose(c.name, len(c.words), func(i int) string { return c.words[i] })
	return c.words[i], c.values[i]
}

// pick draws one of the things; from must not be empty.
func pick[T any](w *world, c named[T], from []T) T {
	return from[w.choose(c.name, len(from), func(i int) string {
		name, same := c.nameOf(from[i]), 1
		for _, earlier := range from[:i] {
			if c.nameOf(earlier) == name {
				same++
			}
		}
		if same > 1 {
			name = fmt.Sprintf("%s (%d)", name, same)
		}
		return name
	})]
}

// choose draws a number below n; each has a word.
func (p *tape) choose(name string, n int, word func(int) string) (i int) {
	if p.random != nil {
		i = p.random(n)
	} else {
		i = p.recall(name, n, word)
	}
	if p.recording {
		p.lines = append(p.lines, line{name: name, word: word(i), simplest: word(i) == word(0)})
	}
	return i
}

// recall returns the choice of the kept story within the current step. It returns the
// first value if the story lacks the choice: the choice is newer than the story, or the
// code under test takes another path now.
func (p *tape) recall(name string, n int, word func(int) string) int {
	for at, l := range p.kept {
		if l.name == stepChoice && name != stepChoice || l.name == endOfSteps {
			return 0
		}
		if l.name == name {
			p.kept = p.kept[at+1:]
			for i := range n {
				if word(i) == l.word {
					return i
				}
			}
			return 0
		}
	}
	return 0
}

const (
	// stepChoice is the name of the choice that begins a step.
	stepChoice = "step"
	// endOfSteps is the line of a story after its last step.
	endOfSteps = "end of the steps"
)

func init() { vocabulary[endOfSteps] = []string{"reached"} }

// repeat runs the steps of the sequence, stepsEach on average.
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
	p.lines = append(p.lines, line{name: endOfSteps, word: "reached", simplest: true})
	if len(p.kept) > 0 {
		p.kept = p.kept[1:]
	}
}

// nextStep skips the unread choices of the last step.
func (p *tape) nextStep() bool {
	for len(p.kept) > 0 && p.kept[0].name != stepChoice && p.kept[0].name != endOfSteps {
		p.kept = p.kept[1:]
	}
	return len(p.kept) > 0 && p.kept[0].name == stepChoice
}

// tell records an event.
func (p *tape) tell(format string, args ...any) {
	if p.recording {
		p.lines = append(p.lines, line{text: fmt.Sprintf(format, args...), at: time.Since(p.began)})
	}
}

// choices returns the recorded choices.
func (p *tape) choices() (all []line) {
	for _, l := range p.lines {
		if l.text == "" {
			all = append(all, l)
		}
	}
	return all
}

// story returns the recorded events.
func (p *tape) story() string {
	var b strings.Builder
	for _, l := range p.lines {
		if l.text != "" {
			fmt.Fprintf(&b, "%s  %s\n", clock(l.at), l.text)
		}
	}
	return b.String()
}

// clock formats a time since the beginning as days, hours, minutes and seconds.
func clock(d time.Duration) string {
	seconds := int64(d / time.Second)
	text := fmt.Sprintf("%02d:%02d:%02d", seconds/3600%24, seconds/60%60, seconds%60)
	if days := seconds / 86400; days > 0 {
		return fmt.Sprintf("%3dd %s", days, text)
	}
	return "     " + text
}

// script returns the sequence as a kept story: choices, and events as comments.
func (p *tape) script() string {
	var b strings.Builder
	for _, l := range p.lines {
		if l.text != "" {
			fmt.Fprintf(&b, "# %s  %s\n", clock(l.at), strings.ReplaceAll(l.text, "\n", "\n# "))
		} else {
			fmt.Fprintf(&b, "%s = %s\n", l.name, l.word)
		}
	}
	return b.String()
}

// readScript reads a kept story. An unknown choice or word is an error: the story
// would not replay its sequence.
func readScript(text string) (kept []line, err error) {
	for n, l := range strings.Split(text, "\n") {
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		name, word, ok := strings.Cut(l, " = ")
		words, known := vocabulary[name]
		switch {
		case !ok:
			return nil, fmt.Errorf("line %d is no choice: %q", n+1, l)
		case !known:
			return nil, fmt.Errorf("line %d: unknown choice %q", n+1, name)
		case words != nil && !slices.Contains(words, word):
			return nil, fmt.Errorf("line %d: unknown word %q of choice %q; known: %q", n+1, word, name, words)
		}
		kept = append(kept, line{name: name, word: word})
	}
	return kept, nil
}
