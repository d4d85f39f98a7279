package report

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"text/template"
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

//go:embed chart.svg.tmpl
var chartText string

// The template's html function escapes texts for XML, too.
var chartTemplate = template.Must(template.New("chart").Parse(chartText))

// Group is a group of bars of the chart, for a fresh event and for a duplicate.
type Group struct {
	Name             string
	Fresh, Duplicate Bar
}

// Bars returns the bars from the top.
func (g Group) Bars() []Bar { return []Bar{g.Fresh, g.Duplicate} }

// Bar is a bar of the chart.
type Bar struct {
	Label string
	Value float64
}

// Positions in the chart, in pixels.
const (
	longestBar = 440
	firstGroup = 76
	groupStep  = 52
	footer     = 40
)

// Width returns the length of a bar that is scaled to the longest one.
func (r *Report) Width(b Bar) float64 {
	highest := b.Value
	for _, g := range r.Chart {
		highest = max(highest, g.Fresh.Value, g.Duplicate.Value)
	}
	return b.Value / highest * longestBar
}

// Y returns the position of group i, or of the end of the groups.
func (r *Report) Y(i int) int { return firstGroup + i*groupStep }

// Height returns the height of the chart.
func (r *Report) Height() int { return r.Y(len(r.Chart)) + footer }

// svg draws the chart.
func (r *Report) svg() ([]byte, error) {
	var b bytes.Buffer
	err := chartTemplate.Execute(&b, r)
	return b.Bytes(), err
}
