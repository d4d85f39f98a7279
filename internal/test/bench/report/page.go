package report

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A run writes its tables between these lines of the page.
const (
	figuresBegin = "<!-- figures: written by make bench, not by hand -->"
	figuresEnd   = "<!-- end of the figures -->"
)

const (
	pageFile  = "benchmarks.md"
	chartFile = "benchmarks.svg"
)

var errNoMarkers = errors.New("missing the lines around the figures")

// Page is the documentation page without its figures.
type Page struct {
	dir           string
	before, after []byte
}

// OpenPage reads benchmarks.md of a directory. It fails if the page lacks the lines
// around the figures.
func OpenPage(dir string) (*Page, error) {
	path := filepath.Join(dir, pageFile)
	content, err := os.ReadFile(path) //nolint:gosec // the user names the directory
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	before, rest, begins := bytes.Cut(content, []byte(figuresBegin))
	_, after, ends := bytes.Cut(rest, []byte(figuresEnd))
	if !begins || !ends {
		return nil, fmt.Errorf("read %s: %w: %s and %s", path, errNoMarkers, figuresBegin, figuresEnd)
	}
	return &Page{dir, before, after}, nil
}

// Write writes a report into the page, and its chart beside it.
func (p *Page) Write(r *Report) error {
	chart, err := r.svg()
	if err != nil {
		return fmt.Errorf("draw the chart: %w", err)
	}
	page := fmt.Appendf(nil, "%s%s\n\n%s\n%s%s", p.before, figuresBegin, r.Markdown(), figuresEnd, p.after)
	for name, content := range map[string][]byte{pageFile: page, chartFile: chart} {
		const readable = 0o644
		if err := os.WriteFile(filepath.Join(p.dir, name), content, readable); err != nil {
			return fmt.Errorf("write the figures: %w", err)
		}
	}
	return nil
}
