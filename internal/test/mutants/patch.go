package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/textproto"
	"path"
	"strings"
)

// mutant is one deliberate fault.
type mutant struct {
	name   string
	fault  string // what is done wrong
	breaks string // the promise that is broken by it
	patch  []byte // with its header
	tests  []tests
}

// load reads the patches in dir's folder testdata and gives them the table's
// tests. It fails where one has no counterpart in the other.
func load(dir fs.FS, table []expectation) ([]mutant, error) {
	files, err := fs.Glob(dir, "testdata/*.patch")
	if err != nil {
		return nil, err
	}
	left := map[string]bool{}
	for _, file := range files {
		left[strings.TrimSuffix(path.Base(file), ".patch")] = true
	}
	var (
		mutants []mutant
		errs    []error
	)
	for _, e := range table {
		if !left[e.mutant] {
			errs = append(errs, fmt.Errorf("mutant %s: no patch of its own in testdata", e.mutant))
			continue
		}
		delete(left, e.mutant)
		m, err := read(dir, e.mutant)
		m.tests = e.tests
		mutants, errs = append(mutants, m), append(errs, err)
	}
	for name := range left {
		errs = append(errs, fmt.Errorf("mutant %s: the table names no tests for it", name))
	}
	return mutants, errors.Join(errs...)
}

// read reads a patch. It begins with a header in the form of a mail's, which git
// passes over.
func read(dir fs.FS, name string) (mutant, error) {
	patch, err := fs.ReadFile(dir, file(name))
	if err != nil {
		return mutant{}, fmt.Errorf("mutant %s: %w", name, err)
	}
	header, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(patch))).ReadMIMEHeader()
	if err != nil {
		return mutant{}, fmt.Errorf("mutant %s: read the header, which ends with an empty line: %w", name, err)
	}
	m := mutant{name: name, fault: header.Get("Fault"), breaks: header.Get("Breaks"), patch: patch}
	if m.fault == "" || m.breaks == "" || len(m.files()) == 0 {
		return mutant{}, fmt.Errorf("mutant %s: expected a header with Fault and Breaks, and then a diff", name)
	}
	return m, nil
}

// file is the path of a mutant's patch in this package.
func file(name string) string { return "testdata/" + name + ".patch" }

// files are the files that the patch changes.
func (m mutant) files() []string {
	var changed []string
	for line := range strings.Lines(string(m.patch)) {
		if name, ok := strings.CutPrefix(line, "+++ b/"); ok {
			changed = append(changed, strings.TrimSpace(name))
		}
	}
	return changed
}
