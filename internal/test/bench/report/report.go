// Package report holds the tables of a benchmark run, prints them, and writes them
// and a chart into the documentation.
package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Full is the name of the sizes of a whole run. Only a whole run belongs into the
// documentation without a warning.
const Full = "usual"

// Report is the result of a run.
type Report struct {
	Machine Machine
	// Sizes is the name of the run's sizes.
	Sizes    string
	Duration time.Duration
	Tables   []*Table
	// Chart has a group of bars for each contender. The first group is highlighted.
	Chart []Group
}

// Machine describes the place of a run. Postgres is empty without that system.
type Machine struct {
	CPU, Go, Spanner, Postgres string
	// Load is the load average of the minute before the run.
	Load string
	// Date is the day of the run, in UTC.
	Date string
}

// Table has a row for each contender or case, and a column for each figure.
type Table struct {
	// Note explains the figures.
	Title, Note string
	// Labels are the heads of the columns that identify a row, Columns those of the figures.
	Labels, Columns []string
	Rows            []*Row
}

// Row is a row of a table.
type Row struct {
	Labels []string
	// Cells are the figures by their columns.
	Cells map[string]*Cell
}

// Cell is a text or a figure.
type Cell struct {
	Text string
	// Rounds are the values of a figure, a value for each round.
	Rounds []float64
	// Ratios are the quotients of the values and another figure's of the same round: a
	// disturbance of a round affects both.
	Ratios []float64
}

// String returns the median, the range if the rounds differ, and the ratio.
func (c *Cell) String() string {
	if len(c.Rounds) == 0 {
		return c.Text
	}
	s := number(Median(c.Rounds))
	if low, high := slices.Min(c.Rounds), slices.Max(c.Rounds); low != high {
		s += fmt.Sprintf(" (%s to %s)", number(low), number(high))
	}
	if len(c.Ratios) > 0 {
		s += fmt.Sprintf(", × %.2f", Median(c.Ratios))
	}
	return s
}

// number prints about three digits.
func number(f float64) string {
	switch {
	case f == float64(int64(f)) || f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// Median returns the median of values, which must not be empty.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile returns the value with the given share of the values below it, interpolated
// between two values. Values must not be empty.
func Quantile(values []float64, share float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := share * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// Table returns the table with a title. The table must exist.
func (r *Report) Table(title string) *Table {
	return r.Tables[slices.IndexFunc(r.Tables, func(t *Table) bool { return t.Title == title })]
}

// Text sets the text of a cell of the row with the given labels. Like the other methods
// it appends a new row or column.
func (t *Table) Text(column, text string, labels ...string) { t.cell(column, labels).Text = text }

// Add adds the value of a round to a cell.
func (t *Table) Add(column string, value float64, labels ...string) {
	c := t.cell(column, labels)
	c.Rounds = append(c.Rounds, value)
}

// AddCompared adds the value of a round, and its ratio to base unless that is 0.
func (t *Table) AddCompared(column string, value, base float64, labels ...string) {
	t.Add(column, value, labels...)
	if base != 0 {
		c := t.cell(column, labels)
		c.Ratios = append(c.Ratios, value/base)
	}
}

// Find returns a cell of the row with the given labels; nil if it is absent.
func (t *Table) Find(column string, labels ...string) *Cell {
	if row := t.row(labels); row != nil {
		return row.Cells[column]
	}
	return nil
}

func (t *Table) cell(column string, labels []string) *Cell {
	row := t.row(labels)
	if row == nil {
		row = &Row{Labels: labels, Cells: map[string]*Cell{}}
		t.Rows = append(t.Rows, row)
	}
	if !slices.Contains(t.Columns, column) {
		t.Columns = append(t.Columns, column)
	}
	if row.Cells[column] == nil {
		row.Cells[column] = &Cell{}
	}
	return row.Cells[column]
}

func (t *Table) row(labels []string) *Row {
	if i := slices.IndexFunc(t.Rows, func(r *Row) bool { return slices.Equal(r.Labels, labels) }); i >= 0 {
		return t.Rows[i]
	}
	return nil
}

// markdown returns the table with aligned columns. A missing cell is empty.
func (t *Table) markdown() string {
	w := table.NewWriter()
	w.Style().Markdown.PadContent = true
	line := func(labels []string, cell func(column string) any) (line table.Row) {
		for _, label := range labels {
			line = append(line, label)
		}
		for _, column := range t.Columns {
			line = append(line, cell(column))
		}
		return line
	}
	w.AppendHeader(line(t.Labels, func(column string) any { return column }))
	for _, r := range t.Rows {
		w.AppendRow(line(r.Labels, func(column string) any {
			if c := r.Cells[column]; c != nil {
				return c
			}
			return ""
		}))
	}
	return w.RenderMarkdown()
}

// Markdown returns the report as Markdown.
func (r *Report) Markdown() string {
	m := r.Machine
	servers := m.Spanner
	if m.Postgres != "" {
		servers += "; PostgreSQL " + m.Postgres
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Run with %s sizes of %s on %s, %s; %s; duration %s, load average before the run %s.\n",
		r.Sizes, m.Date, m.CPU, m.Go, servers, r.Duration.Round(time.Second), m.Load)
	if r.Sizes != Full {
		fmt.Fprintf(&b, "\n**This run is not a full run (%s). Its figures are less precise.**\n", r.Sizes)
	}
	for _, t := range r.Tables {
		fmt.Fprintf(&b, "\n### %s\n\n", t.Title)
		if t.Note != "" {
			b.WriteString(t.Note + "\n\n")
		}
		b.WriteString(t.markdown() + "\n")
	}
	return b.String()
}
