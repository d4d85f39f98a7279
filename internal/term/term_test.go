package term

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestFileIsNoTerminal(t *testing.T) {
	t.Parallel()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if got := columns(file); got != 0 {
		t.Errorf("columns = %d, want 0", got)
	}
}

func TestColorsNeedATerminalThatWantsThem(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		columns int
		env     map[string]string
		want    bool
	}{
		{"terminal", 80, nil, true},
		{"file", 0, nil, false},
		{"NO_COLOR", 80, map[string]string{"NO_COLOR": "1"}, false},
		{"dumb terminal", 80, map[string]string{"TERM": "dumb"}, false},
	} {
		if got := colors(tt.columns, func(name string) string { return tt.env[name] }); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestCodedErrorKeepsItsCause(t *testing.T) {
	t.Parallel()
	err := Failf("read %s: %w", "file", os.ErrNotExist)
	coded, ok := errors.AsType[*CodedError](err)
	if !ok || coded.Code != ExitError || !errors.Is(err, os.ErrNotExist) || err.Error() != "read file: file does not exist" {
		t.Errorf("Failf = %v", err)
	}
	if got := (&CodedError{Code: ExitNo}).Error(); got != "exit code 1" {
		t.Errorf("without a cause: %q", got)
	}
}

func TestProgressWithoutTerminalWritesLinesOnly(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := StartProgress(Streams{Err: &out}, "prog", 0)
	p.Begin("phase", 2)
	p.Step()
	p.Set(2)
	p.Message("other")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { p.Logf("100 %% of %q", "100 %d") })
	}
	wg.Wait()
	p.Stop(false)
	if want := strings.Repeat("prog: 100 % of \"100 %d\"\n", 3); p.Visible() || out.String() != want {
		t.Errorf("visible %t, %q; want %q", p.Visible(), out.String(), want)
	}
}

func TestProgressOnTerminalShowsEachPhase(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := StartProgress(Streams{Err: &out, ErrColumns: 80}, "prog", 0)
	if !p.Visible() {
		t.Error("no bars on a terminal")
	}
	p.Begin("first", 1)
	p.Step()
	p.Begin("second", 4)
	p.Set(3)
	p.Message("second, 3 of 4")
	p.Logf("50 %% of %q", "50 %d")
	p.Stop(false)
	p.Stop(true) // without effect
	shown := out.String()
	for _, want := range []string{"first ... done!", "second, 3 of 4", "incomplete", "prog: 50 % of \"50 %d\"\n"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in %q", want, shown)
		}
	}
}
