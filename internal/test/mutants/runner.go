package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// runner runs mutants in a copy of a module.
type runner struct {
	root string // of the module
	// all runs all tests of the module, and not only those that have to fail.
	all bool
	out io.Writer
	// progress gets a line before each run.
	progress io.Writer
}

// errNotCaught reports a mutant that one of its tests does not catch.
var errNotCaught = errors.New("not every mutant is caught: a promise can be broken without a test that says so")

// verdict is what became of a mutant.
type verdict struct {
	mutant mutant
	failed []id
	faults []string // why it does not count as caught; none: it does
	took   time.Duration
}

// run runs the control and then the mutants, and prints the table. It fails where
// a mutant is not caught.
func (r runner) run(ctx context.Context, mutants []mutant) error {
	began := time.Now()
	copied, err := copyModule(ctx, r.root)
	if err != nil {
		return err
	}
	defer copied.remove()
	if err := copied.check(ctx, mutants); err != nil {
		return err
	}
	wanted := union(mutants)
	r.say("control: the same tests without a fault")
	if err := r.control(ctx, copied, wanted); err != nil {
		return err
	}
	r.print("control: %s pass without a fault, in %v\n\n", r.scope(wanted), time.Since(began).Round(time.Second))
	var verdicts []verdict
	for n, m := range mutants {
		r.say("%d of %d: %s", n+1, len(mutants), m.name)
		v, err := r.try(ctx, copied, m)
		if err != nil {
			return err
		}
		verdicts = append(verdicts, v)
	}
	caught := r.report(verdicts)
	r.print("%d of %d mutants caught in %v\n", caught, len(mutants), time.Since(began).Round(time.Second))
	if caught < len(mutants) {
		return errNotCaught
	}
	return nil
}

func (r runner) scope(wanted []tests) string {
	if r.all {
		return "all tests"
	}
	n := 0
	for _, t := range wanted {
		n += len(t.names)
	}
	return fmt.Sprintf("%d tests", n)
}

// control runs the tests on the copy as it is.
func (r runner) control(ctx context.Context, copied workdir, wanted []tests) error {
	if err := copied.build(ctx, r.packages(wanted)); err != nil {
		return fmt.Errorf("the copy does not build without a fault; it holds what git tracks, so `git add` new files:\n%w", err)
	}
	found, err := r.test(ctx, copied, wanted)
	if err != nil {
		return err
	}
	var faults []error
	for _, t := range found.failed() {
		faults = append(faults, fmt.Errorf("%s fails without a fault:\n%s", t, found.output[t]))
	}
	for _, pkg := range append(found.failedOutside(), found.broken...) {
		faults = append(faults, fmt.Errorf("%s fails without a fault:\n%s%s", pkg, found.output[id{pkg: pkg}], found.output[id{}]))
	}
	for t := range names(wanted) {
		if found.ended[t] == "" {
			faults = append(faults, fmt.Errorf("there is no test %s: mend the table in internal/test/mutants", t))
		}
	}
	return errors.Join(faults...)
}

// try makes the fault, runs the tests and takes the fault back.
func (r runner) try(ctx context.Context, copied workdir, m mutant) (verdict, error) {
	began := time.Now()
	v := verdict{mutant: m}
	if err := copied.apply(ctx, m); err != nil {
		return v, err
	}
	if err := copied.build(ctx, r.packages(m.tests)); err != nil {
		return v, fmt.Errorf("mutant %s does not build, so no test can catch it:\n%w", m.name, err)
	}
	found, err := r.test(ctx, copied, m.tests)
	if err != nil {
		return v, err
	}
	if err := copied.takeBack(ctx, m); err != nil {
		return v, err
	}
	v.failed, v.faults, v.took = found.failed(), judge(found, m.tests), time.Since(began)
	return v, nil
}

// judge says why the results do not show that each of the tests catches a fault.
func judge(found results, wanted []tests) []string {
	var faults []string
	if len(found.failed()) == 0 {
		faults = append(faults, "no test fails")
	}
	for _, pkg := range found.broken {
		faults = append(faults, pkg+" does not build with its tests")
	}
	for _, pkg := range found.failedOutside() {
		faults = append(faults, pkg+" fails, and none of its tests does")
	}
	for _, t := range slices.SortedFunc(names(wanted), func(a, b id) int { return strings.Compare(a.String(), b.String()) }) {
		switch found.ended[t] {
		case "fail":
		case "pass":
			faults = append(faults, t.String()+" passes")
		default:
			faults = append(faults, t.String()+" did not run to its end")
		}
	}
	return faults
}

// packages are those of the wanted tests, or all of the module. What else imports a
// mutant is not built: most of a mutant's time would go into that.
func (r runner) packages(wanted []tests) []string {
	if r.all {
		return []string{"./..."}
	}
	var found []string
	for _, t := range wanted {
		found = append(found, "./"+t.pkg)
	}
	return found
}

// test runs the wanted tests, or all of the module, and returns what they came to.
func (r runner) test(ctx context.Context, copied workdir, wanted []tests) (results, error) {
	if r.all {
		return copied.test(ctx, "./...", ".", "-p=1", "-timeout=14m") // as make test does
	}
	found := results{ended: map[id]string{}, output: map[id]string{}}
	for _, t := range wanted {
		one, err := copied.test(ctx, "./"+t.pkg, pattern(t.names), "-timeout=5m") // they take seconds
		if err != nil {
			return results{}, err
		}
		maps.Copy(found.ended, one.ended)
		maps.Copy(found.output, one.output)
		found.broken = append(found.broken, one.broken...)
	}
	return found, nil
}

// pattern is the -run flag that matches exactly the named tests.
func pattern(names []string) string {
	var alternatives []string
	for _, name := range names {
		levels := strings.Split(asRun(name), "/")
		for i, level := range levels {
			levels[i] = "^" + regexp.QuoteMeta(level) + "$"
		}
		alternatives = append(alternatives, strings.Join(levels, "/"))
	}
	return strings.Join(alternatives, "|")
}

// asRun is a test's name as package testing prints it.
func asRun(name string) string { return strings.ReplaceAll(name, " ", "_") }

// names yields the tests as they are named in results.
func names(wanted []tests) func(yield func(id) bool) {
	return func(yield func(id) bool) {
		for _, t := range wanted {
			for _, name := range t.names {
				if !yield(id{t.pkg, asRun(name)}) {
					return
				}
			}
		}
	}
}

// union returns the tests of all mutants, each once, by package.
func union(mutants []mutant) []tests {
	var all []tests
	for _, m := range mutants {
		for _, t := range m.tests {
			i := slices.IndexFunc(all, func(known tests) bool { return known.pkg == t.pkg })
			if i < 0 {
				i, all = len(all), append(all, tests{pkg: t.pkg})
			}
			for _, name := range t.names {
				if !slices.Contains(all[i].names, name) {
					all[i].names = append(all[i].names, name)
				}
			}
		}
	}
	return all
}

func (r runner) print(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format, args...) }

func (r runner) say(format string, args ...any) { _, _ = fmt.Fprintf(r.progress, format+"\n", args...) }

// moduleRoot returns the root of the module in whose directory the program runs.
func moduleRoot(ctx context.Context) (string, error) {
	output, err := command(ctx, "", os.Environ(), "go", "list", "-m", "-f", "{{.Dir}}").output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(output), nil
}
