package main

import (
	"path"
	"strings"
	"testing"
	"testing/fstest"
)

// product are the directories of what is uploaded with the function, and of what people
// change things with.
var product = map[string]bool{
	".": true, "internal/bank": true, "internal/config": true, "internal/event": true, "internal/settle": true, "internal/spannerstore": true,
	"internal/operate": true,
}

// TestMutantsAreFaultsOfTheProduct: a fault that is made in a test or in a fake shows
// nothing.
func TestMutantsAreFaultsOfTheProduct(t *testing.T) {
	t.Parallel()
	mutants, err := load(patches, caughtBy)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		for _, file := range m.files() {
			if !product[path.Dir(file)] || path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
				t.Errorf("mutant %s changes %s", m.name, file)
			}
		}
		if len(m.tests) == 0 {
			t.Errorf("mutant %s: no tests", m.name)
		}
	}
}

const (
	header = "Fault: one is two\nBreaks: a promise\n of two lines\n\n"
	diff   = "diff --git a/a.go b/a.go\n--- a/a.go\n+++ b/a.go\n@@ -1 +1 @@\n-const a = 1\n+const a = 2\n"
)

func TestLoadReadsTheHeader(t *testing.T) {
	t.Parallel()
	patch := &fstest.MapFile{Data: []byte(header + diff)}
	mutants, err := load(fstest.MapFS{"testdata/one.patch": patch}, []expectation{{"one", []tests{{"a", []string{"TestA"}}}}})
	if err != nil || len(mutants) != 1 {
		t.Fatalf("%+v, %v", mutants, err)
	}
	m := mutants[0]
	if m.name != "one" || m.fault != "one is two" || m.breaks != "a promise of two lines" || string(m.patch) != header+diff || m.tests[0].pkg != "a" {
		t.Errorf("%+v", m)
	}
	if files := m.files(); len(files) != 1 || files[0] != "a.go" {
		t.Errorf("files %q", files)
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		patch, want string
		table       []expectation
	}{
		"a patch without tests":  {header + diff, "mutant one: the table names no tests", nil},
		"tests without a patch":  {header + diff, "mutant two: no patch", []expectation{{"one", nil}, {"two", nil}}},
		"a mutant named twice":   {header + diff, "mutant one: no patch of its own", []expectation{{"one", nil}, {"one", nil}}},
		"no header":              {diff, "mutant one: read the header", []expectation{{"one", nil}}},
		"a header without fault": {"Breaks: a promise\n\n" + diff, "expected a header with Fault and Breaks", []expectation{{"one", nil}}},
		"a header alone":         {header, "and then a diff", []expectation{{"one", nil}}},
	} {
		_, err := load(fstest.MapFS{"testdata/one.patch": {Data: []byte(test.patch)}}, test.table)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestChosen(t *testing.T) {
	t.Parallel()
	mutants := []mutant{{name: "a"}, {name: "b"}, {name: "c"}}
	if got, err := chosen(mutants, nil); err != nil || len(got) != 3 {
		t.Errorf("none named: %+v, %v", got, err)
	}
	if got, err := chosen(mutants, []string{"c", "a"}); err != nil || len(got) != 2 || got[0].name != "a" || got[1].name != "c" {
		t.Errorf("two named: %+v, %v", got, err)
	}
	if _, err := chosen(mutants, []string{"a", "d"}); err == nil || !strings.Contains(err.Error(), `"d"`) {
		t.Errorf("an unknown name: %v", err)
	}
}
