package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module is a small module with tests, in a repository of its own.
var module = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.26\n",
	"a/a.go": "package a\n\nconst one = 1\n\nconst two = 2\n",
	"a/a_test.go": `package a

import "testing"

func TestOne(t *testing.T) {
	t.Run("is one", func(t *testing.T) {
		if one != 1 {
			t.Errorf("one is %d", one)
		}
	})
}

func TestTwo(t *testing.T) {
	if two < one {
		t.Error("two is too small")
	}
}
`,
}

// newModule writes the module with the given files, which come instead of its
// own or beside them.
func newModule(t *testing.T, given map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := maps.Clone(module)
	maps.Copy(files, given)
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}} {
		if _, err := command(t.Context(), dir, environment(dir), "git", args...).output(); err != nil {
			t.Fatal(err)
		}
	}
	// What git does not know is not copied: it would not even compile.
	if err := os.WriteFile(filepath.Join(dir, "a", "new.go"), []byte("package b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// edit is a mutant that replaces a line of a/a.go, and the tests that have to
// fail for it.
func edit(name, before, after string, want ...string) mutant {
	lines := strings.Split(strings.TrimSuffix(module["a/a.go"], "\n"), "\n")
	var patch strings.Builder
	patch.WriteString("Fault: " + name + "\nBreaks: a promise\n\ndiff --git a/a/a.go b/a/a.go\n--- a/a/a.go\n+++ b/a/a.go\n@@ -1,5 +1,5 @@\n")
	for _, line := range lines {
		if line == before {
			patch.WriteString("-" + line + "\n+" + after + "\n")
		} else {
			patch.WriteString(" " + line + "\n")
		}
	}
	return mutant{name: name, fault: "fault " + name, breaks: "promise of " + name, patch: []byte(patch.String()), tests: []tests{{"a", want}}}
}

func TestRunTellsWhatIsCaught(t *testing.T) {
	t.Parallel()
	dir := newModule(t, nil)
	var out, progress strings.Builder
	r := runner{root: dir, out: &out, progress: &progress}
	err := r.run(t.Context(), []mutant{
		edit("caught", "const one = 1", "const one = 3", "TestOne/is one", "TestTwo"),
		edit("survives", "const two = 2", "const two = 3", "TestTwo"),
		edit("half", "const one = 1", "const one = 0", "TestOne", "TestTwo"),
		edit("exits", "const two = 2", "const two = 2; func init() { println(); panic(two) }", "TestTwo"),
	})
	if !errors.Is(err, errNotCaught) {
		t.Errorf("error %v, want that not every mutant is caught", err)
	}
	for _, want := range []string{
		"control: 3 tests pass without a fault",
		"a\\s+│\\s+\\d+\\.\\d │\n│\\s+│   TestOne/is_one\\s+│\\s+│\n│\\s+│   TestTwo ", // the first row
		"not caught: survives \\(fault survives\\)\n  breaks: promise of survives\n  no test fails\n  a TestTwo passes\n",
		"not caught: half .*\n.*\n  a TestTwo passes\n",
		"not caught: exits .*\n.*\n  no test fails\n  a fails, and none of its tests does\n  a TestTwo did not run to its end\n",
		"\n1 of 4 mutants caught in \\d+",
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("not printed: %s in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "not caught: caught") {
		t.Errorf("printed\n%s", &out)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a", "a.go")); err != nil || string(text) != module["a/a.go"] {
		t.Errorf("the working tree was touched: %s, %v", text, err)
	}
}

func TestRunAcceptsWhenAllAreCaught(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]bool{"the named tests": false, "all tests": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, progress strings.Builder
			r := runner{root: newModule(t, nil), all: all, out: &out, progress: &progress}
			if err := r.run(t.Context(), []mutant{edit("caught", "const one = 1", "const one = 3", "TestTwo")}); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "1 of 1 mutants caught") || strings.Contains(out.String(), "TestOne/is_one") != all {
				t.Errorf("printed\n%s", &out)
			}
		})
	}
}

// TestRunRefuses: what does not show that a test catches a fault is not counted,
// and ends the run.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	fine := edit("fine", "const one = 1", "const one = 3", "TestOne")
	for name, test := range map[string]struct {
		given  map[string]string
		mutant mutant
		want   []string
	}{
		"a test that fails anyway": {
			map[string]string{"a/a_test.go": strings.Replace(module["a/a_test.go"], "one != 1", "one != 7", 1)},
			fine,
			[]string{"a TestOne/is_one fails without a fault", "one is 1"},
		},
		"a test that is not there": {nil, edit("x", "const one = 1", "const one = 3", "TestNine"), []string{"there is no test a TestNine"}},
		"a module that does not build": {
			map[string]string{"a/b.go": "package a\n\nconst three = x\n"}, fine, []string{"the copy does not build", "git add", "undefined: x"},
		},
		"a patch that no longer applies": {
			map[string]string{"a/a.go": "package a\n\nconst one = 1 // the first\n\nconst two = 2\n"},
			fine,
			[]string{"internal/test/mutants/testdata/fine.patch no longer applies: update it", "git apply --3way", "git diff --cached", "patch does not apply"},
		},
		"a mutant that does not build": {
			nil, edit("x", "const one = 1", "const one = x", "TestOne"), []string{"mutant x does not build", "undefined: x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, progress strings.Builder
			r := runner{root: newModule(t, test.given), out: &out, progress: &progress}
			err := r.run(t.Context(), []mutant{test.mutant})
			if err == nil || strings.Contains(out.String(), "mutants caught") {
				t.Fatalf("%v, printed %s", err, &out)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			}
		})
	}
}

func TestPatternMatchesExactlyTheNames(t *testing.T) {
	t.Parallel()
	got := pattern([]string{"TestA", "TestB/a part (two), of it/x"})
	if want := `^TestA$|^TestB$/^a_part_\(two\),_of_it$/^x$`; got != want {
		t.Errorf("pattern %s, want %s", got, want)
	}
}

func TestUnionHasEachTestOnce(t *testing.T) {
	t.Parallel()
	got := union([]mutant{
		{tests: []tests{{"a", []string{"TestA", "TestB"}}}},
		{tests: []tests{{"b", []string{"TestA"}}, {"a", []string{"TestB", "TestC"}}}},
	})
	want := []tests{{"a", []string{"TestA", "TestB", "TestC"}}, {"b", []string{"TestA"}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(tests{})); diff != "" {
		t.Errorf("union (-want +got):\n%s", diff)
	}
}

func TestManySubtestsAreCounted(t *testing.T) {
	t.Parallel()
	got := byPackage([]id{{"a", "TestA"}, {"a", "TestB/1"}, {"a", "TestB/2"}, {"a", "TestB/3"}, {"a", "TestB/4"}, {"a", "TestBC"}, {"b", "TestA"}})
	want := []string{"a", "  TestA", "  TestB/1", "  TestB/2", "  TestB/3", "  and 1 more of TestB", "  TestBC", "b", "  TestA"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
