package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/settleonce/settleonce/internal/test/bench"
)

// The lines between which a run writes its figures.
const (
	figuresBegin = "<!-- figures: written by make bench, not by hand -->"
	figuresEnd   = "<!-- end of the figures -->"
)

const (
	docsFile  = "benchmarks.md"
	chartFile = "benchmarks.svg"
)

// errNoMarkers reports a page in which the figures have no place.
var errNoMarkers = errors.New("the page lacks the lines between which the figures stand")

// writeDocs writes the figures into a directory's page, and draws the chart.
func writeDocs(dir string, r bench.Report) error {
	text, err := readPage(dir)
	if err != nil {
		return err
	}
	chart, err := drawChart(r)
	if err != nil {
		return fmt.Errorf("draw the chart: %w", err)
	}
	const readable = 0o644
	if err := os.WriteFile(filepath.Join(dir, docsFile), text.with(markdown(r)), readable); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, chartFile), chart, readable); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	return nil
}

// page is a page without its figures.
type page struct{ before, after []byte }

// readPage reads a directory's page.
func readPage(dir string) (page, error) {
	path := filepath.Join(dir, docsFile)
	text, err := os.ReadFile(path) //nolint:gosec // the directory is the user's choice
	if err != nil {
		return page{}, fmt.Errorf("write the figures: %w", err)
	}
	before, rest, begins := bytes.Cut(text, []byte(figuresBegin))
	_, after, ends := bytes.Cut(rest, []byte(figuresEnd))
	if !begins || !ends {
		return page{}, fmt.Errorf("write the figures into %s: %w: %s and %s", path, errNoMarkers, figuresBegin, figuresEnd)
	}
	return page{before, after}, nil
}

// with puts figures in the place of those that were there.
func (p page) with(figures string) []byte {
	return fmt.Appendf(nil, "%s%s\n\n%s\n%s%s", p.before, figuresBegin, figures, figuresEnd, p.after)
}

// markdown is a report as Markdown.
func markdown(r bench.Report) string {
	var text strings.Builder
	fmt.Fprintf(&text, "A %s; it took %s, and the load average before it was %.2f.\n", machine(r), seconds(r.Seconds), r.Machine.Load)
	if r.Sizes.Name != bench.Usual.Name {
		fmt.Fprintf(&text, "\n**This was no whole run of the usual sizes (%s): its figures say less.**\n", r.Sizes.Name)
	}
	for _, s := range sheets(r) {
		fmt.Fprintf(&text, "\n### %s\n\n", s.title)
		if s.note != "" {
			text.WriteString(s.note + "\n\n")
		}
		text.WriteString(markdownRow(s.head))
		text.WriteString(strings.Repeat("| --- ", len(s.head)) + "|\n")
		for _, row := range s.rows {
			text.WriteString(markdownRow(row))
		}
	}
	return text.String()
}

func markdownRow(cells []string) string {
	escaped := make([]string, len(cells))
	for i, cell := range cells {
		escaped[i] = strings.ReplaceAll(cell, "|", `\|`)
	}
	return "| " + strings.Join(escaped, " | ") + " |\n"
}
