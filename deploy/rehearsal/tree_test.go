package rehearsal

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// copyTree copies the project's working tree, without ignored files, and returns the
// directory.
func copyTree(t *testing.T) string {
	t.Helper()
	from := filepath.Join("..", "..")
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = from
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) {
			continue // deleted and not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		addFile(t, to, name, string(text))
		if err := os.Chmod(filepath.Join(to, name), info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func addFile(t *testing.T, root, name, text string) {
	t.Helper()
	file := filepath.Join(root, name)
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func replaceIn(t *testing.T, root, name, before, after string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), before) {
		t.Fatalf("%s has no %q", name, before)
	}
	addFile(t, root, name, strings.Replace(string(text), before, after, 1))
}
