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
	// Chart has the bars of the chart. The first one is highlighted.
	Chart []Bar
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
	Cells map[string]Cell
}

// Cell is a text or a figure.
type Cell struct {
	Text   string
	Figure Summary
	// Ratio is the quotient of the figure and Settle Once's.
	Ratio Summary
}

// Text returns a cell with a text.
func Text(format string, args ...any) Cell { return Cell{Text: fmt.Sprintf(format, args...)} }

// Figure returns a cell that summarises rounds.
func Figure(rounds ...float64) Cell { return Cell{Figure: Summarise(rounds)} }

// String returns the median, the range if the rounds differ, and the ratio.
func (c Cell) String() string {
	f := c.Figure
	switch {
	case c.Text != "":
		return c.Text
	case f.Rounds == 0:
		return "not measured"
	}
	s := number(f.Median)
	if f.Low != f.High {
		s += fmt.Sprintf(" (%s to %s)", number(f.Low), number(f.High))
	}
	if c.Ratio.Rounds > 0 {
		s += fmt.Sprintf(", × %.2f", c.Ratio.Median)
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

// Table returns the table with a title. The table must exist.
func (r *Report) Table(title string) *Table {
	return r.Tables[slices.IndexFunc(r.Tables, func(t *Table) bool { return t.Title == title })]
}

// Set sets a cell of the row with the given labels. It appends a new row or column.
func (t *Table) Set(column string, c Cell, labels ...string) {
	row := t.row(labels)
	if row == nil {
		row = &Row{Labels: labels, Cells: map[string]Cell{}}
		t.Rows = append(t.Rows, row)
	}
	if !slices.Contains(t.Columns, column) {
		t.Columns = append(t.Columns, column)
	}
	row.Cells[column] = c
}

// Find returns a cell of the row with the given labels.
func (t *Table) Find(column string, labels ...string) (c Cell, ok bool) {
	row := t.row(labels)
	if row == nil {
		return Cell{}, false
	}
	c, ok = row.Cells[column]
	return c, ok
}

func (t *Table) row(labels []string) *Row {
	for _, row := range t.Rows {
		if slices.Equal(row.Labels, labels) {
			return row
		}
	}
	return nil
}

// markdown returns the table with aligned columns. A missing cell is empty.
func (t *Table) markdown() string {
	w := table.NewWriter()
	w.Style().Markdown.PadContent = true
	var header table.Row
	for _, head := range slices.Concat(t.Labels, t.Columns) {
		header = append(header, head)
	}
	w.AppendHeader(header)
	for _, r := range t.Rows {
		var row table.Row
		for _, label := range r.Labels {
			row = append(row, label)
		}
		for _, column := range t.Columns {
			if c, ok := r.Cells[column]; ok {
				row = append(row, c)
			} else {
				row = append(row, "")
			}
		}
		w.AppendRow(row)
	}
	return w.RenderMarkdown()
}

// Markdown returns the report as Markdown.
func (r *Report) Markdown() string {
	m := r.Machine
	servers := m.Spanner
	if m.Postgres != "" {
		servers += "; " + m.Postgres
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
