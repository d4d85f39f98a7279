package report

import (
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func newReport() *Report {
	t := &Table{Title: "Latency", Note: "Milliseconds.", Labels: []string{"contender"}}
	t.Set("0 ms", Figure(3, 1, 2), "a & b")
	t.Set("0 ms", Cell{Figure: Summarise([]float64{123.4}), Ratio: Summarise([]float64{4})}, "c|d")
	t.Set("5 ms", Cell{}, "c|d")
	return &Report{
		Sizes: "quick", Machine: Machine{CPU: `<&">`}, Tables: []*Table{t},
		Chart: []Bar{{Name: "a & b", Label: "5 ms", Value: 5}, {Name: "c|d", Label: "10 ms", Value: 10}},
	}
}

func TestPrintsTables(t *testing.T) {
	t.Parallel()
	const want = `### Latency

Milliseconds.

| contender | 0 ms             | 5 ms         |
| --------- | ---------------- | ------------ |
| a & b     | 2 (1 to 3)       |              |
| c\|d      | 123, × 4.00      | not measured |
`
	got := newReport().Markdown()
	squeeze := func(s string) string { return strings.Join(strings.Fields(strings.ReplaceAll(s, "-", "")), " ") }
	if !strings.Contains(squeeze(got), squeeze(want)) {
		t.Errorf("tables:\n%s\nwant:\n%s", got, want)
	}
	if !strings.Contains(got, "not a full run (quick)") {
		t.Error("no warning about the sizes")
	}
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]string{0: "0", 1: "1", 0.123: "0.12", 12.34: "12.3", 123.4: "123", 1e6: "1000000"} {
		if got := number(value); got != want {
			t.Errorf("%v: %s, want %s", value, got, want)
		}
	}
}

func TestChartEscapesTexts(t *testing.T) {
	t.Parallel()
	svg, err := newReport().svg()
	if err != nil {
		t.Fatal(err)
	}
	var chart struct {
		Bars []struct {
			Texts []string `xml:"text"`
			Rect  struct {
				Width string `xml:"width,attr"`
			} `xml:"rect"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal(svg, &chart); err != nil {
		t.Fatalf("%v\n%s", err, svg)
	}
	if len(chart.Bars) != 2 || chart.Bars[0].Texts[0] != "a & b" || chart.Bars[0].Rect.Width != "220.0" || chart.Bars[1].Rect.Width != "440.0" {
		t.Errorf("bars %+v", chart.Bars)
	}
}

func TestRejectsPageWithoutMarkers(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- figures: written by make bench, not by hand -->\n", "<!-- end of the figures -->"
	for content, want := range map[string]error{"": errNoMarkers, begin: errNoMarkers, end + begin: errNoMarkers, begin + end: nil} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "benchmarks.md"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenPage(dir); !errors.Is(err, want) {
			t.Errorf("%q: %v", content, err)
		}
	}
}
