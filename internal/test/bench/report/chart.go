package report

import (
	"bytes"
	_ "embed"
	"text/template"
)

//go:embed chart.svg.tmpl
var chartText string

// The template's html function escapes texts for XML, too.
var chartTemplate = template.Must(template.New("chart").Parse(chartText))

// Bar is a bar of the chart.
type Bar struct {
	Name, Label string
	Value       float64
}

// Positions in the chart, in pixels.
const (
	longestBar = 440
	firstBar   = 76
	barStep    = 34
	footer     = 58
)

// Width returns the length of a bar that is scaled to the longest one.
func (r *Report) Width(b Bar) float64 {
	highest := b.Value
	for _, other := range r.Chart {
		highest = max(highest, other.Value)
	}
	return b.Value / highest * longestBar
}

// Y returns the position of bar i, or of the end of the bars.
func (r *Report) Y(i int) int { return firstBar + i*barStep }

// Height returns the height of the chart.
func (r *Report) Height() int { return r.Y(len(r.Chart)) + footer }

// svg draws the chart.
func (r *Report) svg() ([]byte, error) {
	var b bytes.Buffer
	err := chartTemplate.Execute(&b, r)
	return b.Bytes(), err
}
