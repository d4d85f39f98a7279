package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// id names a test of a package.
type id struct{ pkg, test string }

func (t id) String() string { return t.pkg + " " + t.test }

// results are what a run of go test came to.
type results struct {
	// ended is how each test ended: pass, fail or skip.
	ended map[id]string
	// output is what each test printed; under an empty test name what its package
	// printed, and under an empty package name what the compiler printed.
	output map[id]string
	// broken are the packages that did not build.
	broken []string
}

// event is a line of go test -json.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	ImportPath  string // of a package that is built
	FailedBuild string // why the tests of Package did not run
}

// readResults reads the output of go test -json. The names of packages are
// those below the module.
func readResults(from io.Reader, module string) (results, error) {
	r := results{ended: map[id]string{}, output: map[id]string{}}
	decoder := jsontext.NewDecoder(from)
	for {
		var e event
		err := json.UnmarshalDecode(decoder, &e)
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return results{}, fmt.Errorf("read the output of go test -json: %w", err)
		}
		r.add(e, module)
	}
}

func (r *results) add(e event, module string) {
	t := id{inModule(e.Package, module), e.Test}
	switch e.Action {
	case "output", "build-output":
		r.output[t] += e.Output
	case "build-fail":
		r.broken = append(r.broken, e.ImportPath)
	case "pass", "fail", "skip":
		if e.FailedBuild == "" {
			r.ended[t] = e.Action
		}
	}
}

// inModule returns the directory of a package in the module, and "." for the
// package at its root.
func inModule(pkg, module string) string {
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}

// failed returns the tests that failed, without those that failed only because a
// subtest did, sorted.
func (r results) failed() []id {
	var leaves []id
	for t, how := range r.ended {
		if how == "fail" && t.test != "" && !r.failedBelow(t) {
			leaves = append(leaves, t)
		}
	}
	slices.SortFunc(leaves, func(a, b id) int { return strings.Compare(a.String(), b.String()) })
	return leaves
}

func (r results) failedBelow(t id) bool {
	for sub, how := range r.ended {
		if how == "fail" && sub.pkg == t.pkg && strings.HasPrefix(sub.test, t.test+"/") {
			return true
		}
	}
	return false
}

// failedOutside returns the packages that failed although no test of theirs did:
// a time limit, a panic in a goroutine, an exit.
func (r results) failedOutside() []string {
	var pkgs []string
	for t, how := range r.ended {
		inside := slices.ContainsFunc(r.failed(), func(f id) bool { return f.pkg == t.pkg })
		if t.test == "" && how == "fail" && !inside {
			pkgs = append(pkgs, t.pkg)
		}
	}
	slices.Sort(pkgs)
	return pkgs
}
