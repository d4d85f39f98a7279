package sim

import (
	"slices"
	"testing"
	"time"
)

// shortest drops and simplifies choices of a run that broke a promise, and returns the
// shortest run found that breaks the same promise. Choices have names, so dropping
// some does not change the meaning of the rest.
func shortest(t *testing.T, r run, until time.Time) run {
	if r.tape.random != nil {
		r = playRecorded(t, r.tape.seed, r.tape.check)
	}
	s := shrinker{t: t, best: r, until: until}
	for more := true; more && time.Now().Before(until); {
		more = s.withoutSteps()
		more = s.simpler() || more
	}
	return s.best
}

type shrinker struct {
	t     *testing.T
	best  run
	until time.Time
}

// try runs the choices, and keeps the run if it breaks the same promise and is
// simpler.
func (s *shrinker) try(choices []line) bool {
	if !time.Now().Before(s.until) {
		return false
	}
	r := play(s.t, &tape{kept: choices, check: s.best.tape.check, recording: true})
	if r.broken == nil || r.broken.kind != s.best.broken.kind || slices.Compare(r.tape.size(), s.best.tape.size()) >= 0 {
		return false
	}
	s.best = r
	return true
}

// size returns the numbers of steps, of choices that are not the simplest, and of all
// choices.
func (p *tape) size() []int {
	steps, special, all := 0, 0, 0
	for _, c := range p.choices() {
		all++
		if c.name == stepChoice {
			steps++
		}
		if !c.simplest {
			special++
		}
	}
	return []int{steps, special, all}
}

// withoutSteps drops steps, first many at a time.
func (s *shrinker) withoutSteps() (shorter bool) {
	for size := s.best.tape.size()[0]; size > 0; size /= 2 {
		for from := s.best.tape.size()[0] - size; from >= 0; {
			if s.try(withoutSteps(s.best.tape.choices(), from, size)) {
				shorter = true
				from = min(from, s.best.tape.size()[0]-size)
			} else {
				from -= max(size/2, 1)
			}
		}
	}
	return shorter
}

// withoutSteps returns the choices except those of some steps.
func withoutSteps(choices []line, from, size int) (left []line) {
	step := -1
	for _, c := range choices {
		switch c.name {
		case stepChoice:
			step++
		case endOfSteps:
			step = len(choices) // the rest belongs to no step
		}
		if step < from || step >= from+size {
			left = append(left, c)
		}
	}
	return left
}

// simpler replaces words by simpler ones, or drops choices, one at a time.
func (s *shrinker) simpler() (shorter bool) {
	for i := len(s.best.tape.choices()) - 1; i >= 0; i-- {
		choices := s.best.tape.choices()
		if i >= len(choices) {
			continue
		}
		words := vocabulary[choices[i].name] // nil for a varying set, whose default is the first
		for _, word := range words[:min(max(slices.Index(words, choices[i].word), 0), 3)] {
			simpler := slices.Clone(choices)
			simpler[i].word = word
			if s.try(simpler) {
				shorter = true
				break
			}
		}
		if choices = s.best.tape.choices(); i < len(choices) && s.try(slices.Delete(slices.Clone(choices), i, i+1)) {
			shorter = true
		}
	}
	return shorter
}
