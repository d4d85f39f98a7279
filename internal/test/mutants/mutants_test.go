// Package mutants proves that tests fail when a rule of the product is taken away.
//
// Each patch in testdata is a mutant. Its header names the fault, the rule that the fault breaks,
// and every test that must fail, as a package directory and a test name. A mutant is caught when it
// compiles, each of these tests fails with the patch, and each passes without it.
//
// A plain test run checks that the patches apply and that the tests exist. `make mutants` runs them.
package mutants

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

var selected = flag.String("mutants.run", "", `mutants: run this mutant, or "all"; empty checks the patches only`)

// root is the module's, relative to this package.
const root = "../../.."

// bound runs a test binary that ends with this process: the kernel then closes the pipe that is
// the script's standard input.
const bound = `exec 3<&0 </dev/null
"$@" 3<&- & test=$!
{ read -r line <&3; kill -KILL $test; } 2>/dev/null & guard=$!
wait $test
kill $guard 2>/dev/null`

type mutant struct {
	name, fault, rule string
	patch             []byte
	files             []string // that the patch changes
	tests             []target // that must fail
}

// target is a test. Its name is as package testing prints it.
type target struct{ pkg, name string }

func TestMutants(t *testing.T) {
	began, ran, caught := time.Now(), 0, 0
	original := mutant{}.version(t)
	for _, m := range readAll(t) {
		fits := t.Run("patch "+m.name, m.checkFit)
		if *selected == "" || *selected != "all" && *selected != m.name {
			continue
		}
		ran++
		verdict, since := "NOT CAUGHT", time.Now()
		if fits && t.Run(m.name, func(t *testing.T) { m.mustBeCaught(t, original) }) {
			verdict, caught = "caught", caught+1
		}
		fmt.Printf("%-10s  %-28s %5.1f s  %s\n", verdict, m.name, time.Since(since).Seconds(), m.fault)
	}
	if *selected != "" {
		fmt.Printf("%d of %d mutants caught in %v\n", caught, ran, time.Since(began).Round(time.Second))
		if ran == 0 {
			t.Errorf("no mutant has the name %q", *selected)
		}
	}
}

func readAll(t *testing.T) (all []mutant) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.patch")
	must(t, err)
	for _, path := range paths {
		patch, err := os.ReadFile(path)
		must(t, err)
		header, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(patch))).ReadMIMEHeader()
		must(t, err)
		m := mutant{name: strings.TrimSuffix(filepath.Base(path), ".patch"), fault: header.Get("Fault"), rule: header.Get("Rule"), patch: patch}
		for _, fails := range header.Values("Fails") {
			pkg, name, _ := strings.Cut(fails, " ")
			m.tests = append(m.tests, target{pkg, strings.ReplaceAll(name, " ", "_")})
		}
		for _, line := range regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)`).FindAllSubmatch(patch, -1) {
			m.files = append(m.files, string(line[1]))
		}
		all = append(all, m)
	}
	return all
}

// checkFit checks that the patch applies to the product and that its tests exist.
func (m mutant) checkFit(t *testing.T) {
	if m.fault == "" || m.rule == "" || len(m.tests) == 0 || len(m.files) == 0 {
		t.Error("expected a header with Fault, Rule and Fails, and then a diff")
	}
	for _, file := range m.files {
		if strings.HasPrefix(file, "internal/test/") || strings.HasSuffix(file, "_test.go") {
			t.Errorf("the patch changes %s, which is no part of the product", file)
		}
	}
	for _, test := range m.tests {
		function, _, _ := strings.Cut(test.name, "/")
		files, err := filepath.Glob(filepath.Join(root, test.pkg, "*_test.go"))
		must(t, err)
		if !slices.ContainsFunc(files, func(file string) bool {
			source, err := os.ReadFile(file)
			return err == nil && bytes.Contains(source, []byte("\nfunc "+function+"("))
		}) {
			t.Errorf("%s has no test %s", test.pkg, function)
		}
	}
	m.apply(t, root, "--check")
}

// mustBeCaught requires that each test passes in the original and fails in the mutant.
func (m mutant) mustBeCaught(t *testing.T, original version) {
	t.Helper()
	mutated := m.version(t)
	for _, test := range m.tests {
		if verdict, output := original.run(t, test); verdict != "PASS" {
			t.Errorf("%s without the patch: %q, want PASS\n%s", test.name, verdict, output)
		}
		if verdict, output := mutated.run(t, test); verdict != "FAIL" {
			t.Errorf("%s with the patch: %q, want FAIL: it breaks the rule %q\n%s", test.name, verdict, m.rule, output)
		}
	}
}

// version is the product, or a mutant of it.
type version struct {
	dir     string // of the overlay, which makes the Go command compile patched copies of files, and of test binaries
	outputs map[target]string
}

const overlay = "overlay.json"

// version applies the patch to copies of its files.
func (m mutant) version(t *testing.T) version {
	t.Helper()
	dir, replace := t.TempDir(), map[string]string{}
	for _, file := range m.files {
		source, err := os.ReadFile(filepath.Join(root, file))
		replace[file] = filepath.Join(dir, file)
		must(t, err, os.MkdirAll(filepath.Dir(replace[file]), 0o700), os.WriteFile(replace[file], source, 0o600))
	}
	if len(m.files) > 0 {
		m.apply(t, dir)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err, os.WriteFile(filepath.Join(dir, overlay), text, 0o600))
	return version{dir, map[target]string{}}
}

func (m mutant) apply(t *testing.T, dir string, flags ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"apply"}, flags...)...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(m.patch)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir)) // dir is no part of a repository above it
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("testdata/%s.patch no longer applies; make the fault again by hand: %s\n%s", m.name, m.fault, output)
	}
}

// run runs a test once. The verdict is PASS, FAIL or SKIP, and empty when the test did not end.
func (v version) run(t *testing.T, test target) (verdict, output string) {
	t.Helper()
	if _, known := v.outputs[test]; !known {
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(test.name), "/", "$/^") + "$"
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", bound, "sh", v.compile(t, test.pkg), "-test.v", "-test.timeout=2m", "-test.run="+pattern)
		cmd.Dir, cmd.WaitDelay = filepath.Join(root, test.pkg), time.Second
		_, err := cmd.StdinPipe()
		must(t, err)
		text, _ := cmd.CombinedOutput() // the verdict tells how it ended
		v.outputs[test] = string(text)
	}
	return verdictOf(v.outputs[test], test.name), v.outputs[test]
}

// compile returns the package's test binary. A version that does not compile ends the test t.
func (v version) compile(t *testing.T, pkg string) string {
	t.Helper()
	binary := filepath.Join(v.dir, strings.ReplaceAll(pkg, "/", "_")+".test")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-ldflags=-w", "-overlay="+filepath.Join(v.dir, overlay), "-o="+binary, "./"+pkg)
	cmd.Dir = root
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s does not compile: %v\n%s", pkg, err, output)
	}
	return binary
}

func verdictOf(output, name string) string {
	match := regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): ` + regexp.QuoteMeta(name) + ` \(`).FindStringSubmatch(output)
	if match == nil {
		return ""
	}
	return match[1]
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	const output = "=== RUN   TestA\nnot at the start of a line --- FAIL: TestB (0.00s)\n--- FAIL: TestA (0.00s)\n" +
		"    --- FAIL: TestA/a_part (0.00s)\n    --- PASS: TestA/a_rest (0.00s)\n=== RUN   TestC\npanic: test timed out after 1m0s\n"
	for name, want := range map[string]string{"TestA": "FAIL", "TestA/a_part": "FAIL", "TestA/a_rest": "PASS", "TestA/a": "", "TestB": "", "TestC": ""} {
		if got := verdictOf(output, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
