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
	for _, value := range []float64{3, 1, 2} {
		t.AddCompared("0 ms", value, 0, "a & b")
	}
	// A disturbance of the second round does not change its ratio.
	t.AddCompared("0 ms", 123.4, 30.85, "c|d")
	t.AddCompared("0 ms", 1234, 308.5, "c|d")
	t.Text("5 ms", "none", "c|d")
	return &Report{
		Sizes: "quick", Machine: Machine{CPU: `<&">`}, Tables: []*Table{t},
		Chart: []Group{
			{Name: "a & b", Fresh: Bar{Label: "5 ms", Value: 5}, Duplicate: Bar{Label: "7 ms", Value: 7.5}},
			{Name: "c|d", Fresh: Bar{Label: "1 ms", Value: 1}, Duplicate: Bar{Label: "10 ms", Value: 10}},
		},
	}
}

func TestPrintsTables(t *testing.T) {
	t.Parallel()
	const want = `### Latency

Milliseconds.

| contender | 0 ms             | 5 ms         |
| --------- | ---------------- | ------------ |
| a & b     | 2 (1 to 3)       |              |
| c\|d      | 679 (123 to 1234), × 4.00 | none |
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

func TestQuantiles(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []float64
		share  float64
		want   float64
	}{
		{[]float64{7}, 0.99, 7},
		{[]float64{9, 1, 2}, 0.5, 2},
		{[]float64{4, 1, 2, 9}, 0.5, 3},
		{[]float64{4, 1, 2, 9, 6}, 0.75, 6},
		{[]float64{4, 1, 2, 9}, 1, 9},
	} {
		if got := Quantile(test.values, test.share); got != test.want {
			t.Errorf("%v of %v: %v, want %v", test.share, test.values, got, test.want)
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
		Groups []struct {
			Name string `xml:"text"`
			Bars []struct {
				Rect struct {
					Width string `xml:"width,attr"`
				} `xml:"rect"`
			} `xml:"g"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal(svg, &chart); err != nil {
		t.Fatalf("%v\n%s", err, svg)
	}
	if len(chart.Groups) != 2 || len(chart.Groups[0].Bars) != 2 {
		t.Fatalf("groups %+v", chart.Groups)
	}
	first := chart.Groups[0]
	if first.Name != "a & b" || first.Bars[0].Rect.Width != "220.0" || first.Bars[1].Rect.Width != "330.0" {
		t.Errorf("the first group: %+v", first)
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
