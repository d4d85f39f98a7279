package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// figures are the lines of the page that a run replaces, with the lines around them.
var figures = regexp.MustCompile(`(?s)(<!-- figures: written by make bench, not by hand -->\n).*(<!-- end of the figures -->)`)

var errNoMarkers = errors.New("missing the lines around the figures")

// Page is the documentation page benchmarks.md.
type Page struct {
	dir     string
	content []byte
}

// OpenPage reads the page of a directory. It fails if the page lacks the lines around the
// figures.
func OpenPage(dir string) (*Page, error) {
	content, err := os.ReadFile(filepath.Join(dir, "benchmarks.md")) //nolint:gosec // the caller names the directory
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	if !figures.Match(content) {
		return nil, fmt.Errorf("read the page in %s: %w: %s", dir, errNoMarkers, figures)
	}
	return &Page{dir, content}, nil
}

// Write writes a report into the page, and its chart beside it.
func (p *Page) Write(r *Report) error {
	chart, err := r.svg()
	if err != nil {
		return fmt.Errorf("draw the chart: %w", err)
	}
	around := figures.FindSubmatchIndex(p.content)
	page := fmt.Appendf(nil, "%s\n%s\n%s", p.content[:around[3]], r.Markdown(), p.content[around[4]:])
	for name, content := range map[string][]byte{"benchmarks.md": page, "benchmarks.svg": chart} {
		const readable = 0o644
		if err := os.WriteFile(filepath.Join(p.dir, name), content, readable); err != nil {
			return fmt.Errorf("write the figures: %w", err)
		}
	}
	return nil
}
