package e2e_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

const (
	root = "../../.."
	// mark begins the line that an instrumented function prints when it is entered.
	mark = "tour: "
	// mostFunctions and mostFiles bound the tour: a newcomer reads it in one sitting.
	mostFunctions, mostFiles = 25, 8
)

// deployed are the packages on the way of a delivery. A function literal is part of
// the function that declares it.
var deployed = []string{
	".", "internal/config", "internal/event", "internal/settle", "internal/settle/payout", "internal/settle/transfer",
	"internal/spannerstore", "internal/telemetry",
}

// TestTour delivers two fresh payouts and compares the functions that the second one
// enters, in order, with the list in docs/ARCHITECTURE.md. The first one wires the
// instance and opens the client.
func TestTour(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	f := startProgram(t, buildInstrumented(t), db.env(emulatortest.Spanner(t).GRPC)...)
	fresh := func(id string) {
		t.Helper()
		a := f.deliver(t.Context(), id, `{"settlement_id":"`+id+`","account_id":"reserve-claims","amount_cents":4731}`)
		if a.Outcome != "applied" {
			t.Fatalf("answer %+v\n%s", a, f.log)
		}
	}
	fresh("stl-1")
	fresh("stl-2")
	f.waitForLog(t, mark+"internal/event/handler.go reply.write", 2)
	log := f.log.all()
	walked := entered(log[strings.LastIndex(log, mark+"internal/event/handler.go Handler.ServeHTTP"):])
	if diff := cmp.Diff(documentedTour(t), walked); diff != "" {
		t.Errorf("docs/ARCHITECTURE.md (-listed +entered):\n%s\nentered:\n%s", diff, strings.Join(walked, "\n"))
	}
	files := map[string]bool{}
	for _, step := range walked {
		files[strings.Fields(step)[0]] = true
	}
	if len(walked) > mostFunctions || len(files) > mostFiles {
		t.Errorf("%d functions in %d files, want at most %d in %d", len(walked), len(files), mostFunctions, mostFiles)
	}
}

// documentedTour returns the tour as the document lists it: "file function" a line.
func documentedTour(t *testing.T) (steps []string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, begun := strings.Cut(string(page), "<!-- tour -->")
	list, _, ended := strings.Cut(list, "<!-- /tour -->")
	if !begun || !ended {
		t.Fatal("docs/ARCHITECTURE.md has no tour")
	}
	for _, step := range regexp.MustCompile("(?m)^[0-9]+\\. `([^`]+)` `([^`]+)`").FindAllStringSubmatch(list, -1) {
		steps = append(steps, step[1]+" "+step[2])
	}
	return steps
}

// overlay writes instrumented copies of the deployed files, and returns the Go
// command's description of them.
func overlay(t *testing.T) string {
	t.Helper()
	dir, replaced := t.TempDir(), map[string]string{}
	for _, pkg := range deployed {
		files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			copied := filepath.Join(dir, strings.ReplaceAll(name, string(filepath.Separator), "_"))
			if err := os.WriteFile(copied, instrumented(t, file, name), 0o600); err != nil {
				t.Fatal(err)
			}
			absolute, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			replaced[absolute] = copied
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	described := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(described, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return described
}

// instrumented returns a source file whose functions print their names first.
func instrumented(t *testing.T, file, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, declaration := range slices.Backward(parsed.Decls) {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		after := set.Position(f.Body.Lbrace).Offset + 1
		entry := fmt.Sprintf(" println(%q); ", mark+name+" "+nameOf(f))
		text = slices.Insert(text, after, []byte(entry)...)
	}
	return text
}

// nameOf returns Function or Type.Method.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	for {
		switch r := receiver.(type) {
		case *ast.StarExpr:
			receiver = r.X
		case *ast.IndexExpr:
			receiver = r.X
		case *ast.Ident:
			return r.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// buildInstrumented builds this test binary, which is the function too, with the
// overlay.
func buildInstrumented(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "tour")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay(t), "-o", program, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the instrumented function: %v\n%s", err, out)
	}
	return program
}

// entered returns the functions in the order of their first entry.
func entered(log string) (steps []string) {
	for line := range strings.Lines(log) {
		if step, ok := strings.CutPrefix(strings.TrimSpace(line), mark); ok && !slices.Contains(steps, step) {
			steps = append(steps, step)
		}
	}
	return steps
}
