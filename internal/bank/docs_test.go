package bank

import (
	"os"
	"path/filepath"
	"testing"
)

func TestProfilesOfTheDocumentation(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/profiles/*.json")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d profiles, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseProfile(text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
