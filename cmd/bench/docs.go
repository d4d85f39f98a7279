package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/settleonce/settleonce/internal/bench"
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
	path := filepath.Join(dir, docsFile)
	page, err := os.ReadFile(path) //nolint:gosec // the directory is the user's choice
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	page, err = withFigures(page, markdown(r))
	if err != nil {
		return fmt.Errorf("write the figures into %s: %w", path, err)
	}
	chart, err := drawChart(r)
	if err != nil {
		return fmt.Errorf("draw the chart: %w", err)
	}
	const readable = 0o644
	if err := os.WriteFile(path, page, readable); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, chartFile), chart, readable); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	return nil
}

// withFigures puts the figures in the place of those that are there.
func withFigures(page []byte, figures string) ([]byte, error) {
	before, rest, found := bytes.Cut(page, []byte(figuresBegin))
	if !found {
		return nil, fmt.Errorf("%w: %s", errNoMarkers, figuresBegin)
	}
	_, after, found := bytes.Cut(rest, []byte(figuresEnd))
	if !found {
		return nil, fmt.Errorf("%w: %s", errNoMarkers, figuresEnd)
	}
	return fmt.Appendf(nil, "%s%s\n\n%s\n%s%s", before, figuresBegin, figures, figuresEnd, after), nil
}

// markdown is a report as Markdown.
func markdown(r bench.Report) string {
	var page strings.Builder
	fmt.Fprintf(&page, "A %s; it took %s, and the load average before it was %.2f.\n", machine(r), seconds(r.Seconds), r.Machine.Load)
	if r.Sizes.Name != bench.Usual.Name {
		fmt.Fprintf(&page, "\n**This was a %s run: it shows that everything works, and its figures say little.**\n", r.Sizes.Name)
	}
	for _, s := range sheets(r) {
		fmt.Fprintf(&page, "\n### %s\n\n", s.title)
		if s.note != "" {
			page.WriteString(s.note + "\n\n")
		}
		page.WriteString(markdownRow(s.head))
		page.WriteString(strings.Repeat("| --- ", len(s.head)) + "|\n")
		for _, row := range s.rows {
			page.WriteString(markdownRow(row))
		}
	}
	return page.String()
}

func markdownRow(cells []string) string {
	escaped := make([]string, len(cells))
	for i, cell := range cells {
		escaped[i] = strings.ReplaceAll(cell, "|", `\|`)
	}
	return "| " + strings.Join(escaped, " | ") + " |\n"
}
