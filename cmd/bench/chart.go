package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/settleonce/settleonce/internal/test/bench"
)

//go:embed chart.svg.tmpl
var chartText string

// chartTemplate draws bars. Its text is escaped by html, as XML wants it too.
var chartTemplate = template.Must(template.New("chart").Parse(chartText))

// chartRoundTrip is the network of the chart's latencies, in milliseconds.
const chartRoundTrip = 5.0

// The chart's measures, in pixels of its own.
const (
	chartWidth  = 860
	barTop      = 96 // of the first bar
	barStep     = 34
	barWidest   = 190
	chartBottom = 58
	leftPanel   = 176 // where its bars begin
	rightPanel  = 560
)

// chart is what the template draws.
type chart struct {
	Width, Height int
	RoundTrip     float64
	Machine       []string // lines
	Footer        int      // y of the first of them
	Left, Right   int
	Rows          []chartRow
}

// chartRow is one contender.
type chartRow struct {
	Name  string
	First bool // Settle Once
	Y     int
	// Latency and Trips are empty where there is no figure.
	Latency, Trips *chartBar
}

// chartBar is a bar with its label. Low and High are the ends of the spread.
type chartBar struct {
	Length, Low, High float64
	Label             string
	LabelX            float64
}

// drawChart draws the fresh event's latency and its round trips.
func drawChart(r bench.Report) ([]byte, error) {
	c := chart{Width: chartWidth, RoundTrip: chartRoundTrip, Left: leftPanel, Right: rightPanel, Machine: strings.SplitN(machine(r), "; ", 2)}
	latencies, trips := map[string]bench.Summary{}, map[string]float64{}
	var slowest, most float64
	for _, l := range r.Latency {
		if l.Event == bench.EventFresh && l.RoundTripMillis == chartRoundTrip {
			latencies[l.Contender] = l.Millis
			slowest = max(slowest, l.Millis.High)
		}
	}
	for _, w := range r.Wire {
		if w.Event == bench.EventFresh {
			trips[w.Contender] = w.RoundTrips
			most = max(most, w.RoundTrips)
		}
	}
	for _, e := range r.Contenders {
		if e.Missing != "" {
			continue
		}
		row := chartRow{Name: e.Name, First: e.Key == bench.Baseline, Y: barTop + barStep*len(c.Rows)}
		if s, ok := latencies[e.Key]; ok {
			row.Latency = scaled(s.Median, s.Low, s.High, slowest, fmt.Sprintf("%.1f ms", s.Median))
		}
		if n, ok := trips[e.Key]; ok {
			row.Trips = scaled(n, n, n, most, number(n))
		}
		c.Rows = append(c.Rows, row)
	}
	c.Footer = barTop + barStep*len(c.Rows) + chartBottom/3
	c.Height = barTop + barStep*len(c.Rows) + chartBottom
	var svg bytes.Buffer
	err := chartTemplate.Execute(&svg, c)
	return svg.Bytes(), err
}

// scaled scales a bar so that the greatest of all fits.
func scaled(value, low, high, greatest float64, label string) *chartBar {
	const gap = 8
	scale := barWidest / greatest
	return &chartBar{Length: value * scale, Low: low * scale, High: high * scale, Label: label, LabelX: high*scale + gap}
}
