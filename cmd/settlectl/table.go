package main

import (
	"encoding/csv"
	"errors"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

const (
	// columnGap is the number of blanks between two columns.
	columnGap = 2
	// minTextColumns is the least width of free text that is folded.
	minTextColumns = 16
	// batchRows is the number of rows that a rowPrinter holds.
	batchRows = 100
)

func init() {
	// streams.Colors decides about colours, and the output must not depend on the locale.
	text.EnableColors()
	text.OverrideRuneWidthEastAsianWidth(false)
}

// column is a column of a table.
type column struct {
	name string
	// right aligns to the right, for numbers.
	right bool
	// text marks free text. A terminal folds it between words; all other values stay whole.
	text bool
	// spare marks a column that a terminal omits if it is too narrow for the whole table.
	spare bool
	// colors returns the colours of a value; nil: none.
	colors func(value string) text.Colors
}

// named returns columns that have only a name.
func named(names ...string) []column {
	columns := make([]column, len(names))
	for i, name := range names {
		columns[i].name = name
	}
	return columns
}

// paint colours a part of the result.
func (s streams) paint(colors text.Colors, words string) string {
	if !s.Colors || len(colors) == 0 {
		return words
	}
	return colors.Sprint(words)
}

// layout places rows side by side. Without a terminal, columns are as wide as their
// values. On a terminal, free text is folded to the space that the other columns leave.
type layout struct {
	s       streams
	columns []column
	widths  []int // of the rows so far: the next batch of rows stands below them
	narrow  bool  // without the spare columns, by the first batch
}

// layOut returns a whole table; head adds the names of the columns.
func layOut(s streams, columns []column, rows [][]string, head bool) string {
	l := layout{s: s, columns: columns}
	return l.render(rows, head)
}

// render returns the next rows.
func (l *layout) render(rows [][]string, head bool) string {
	l.fit(rows, head)
	t := table.NewWriter()
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = text.FormatDefault
	t.Style().Box.PaddingLeft, t.Style().Box.PaddingRight = "", strings.Repeat(" ", columnGap)
	t.SuppressTrailingSpaces()
	configs, names := make([]table.ColumnConfig, len(l.columns)), make(table.Row, len(l.columns))
	for i, c := range l.columns {
		configs[i] = table.ColumnConfig{Number: i + 1, WidthMin: l.widths[i], Hidden: l.narrow && c.spare}
		if c.right {
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		}
		names[i] = l.s.paint(text.Colors{text.Bold}, c.name)
	}
	t.SetColumnConfigs(configs)
	if head {
		t.AppendHeader(names)
	}
	for _, values := range rows {
		row := make(table.Row, len(values))
		for i, value := range values {
			row[i] = l.cell(i, value)
		}
		t.AppendRow(row)
	}
	return t.Render()
}

// cell returns a value of column i, folded and coloured.
func (l *layout) cell(i int, value string) string {
	lines := []string{value}
	if l.columns[i].text && text.StringWidthWithoutEscSequences(value) > l.widths[i] {
		lines = fold(value, l.widths[i])
	}
	if colors := l.columns[i].colors; colors != nil {
		for n := range lines {
			lines[n] = l.s.paint(colors(value), lines[n])
		}
	}
	return strings.Join(lines, "\n")
}

// fold breaks text between words. A word that is too long for a line stands alone.
func fold(value string, columns int) (lines []string) {
	for word := range strings.SplitSeq(value, " ") {
		last := len(lines) - 1
		if last >= 0 && text.StringWidthWithoutEscSequences(lines[last]+" "+word) <= columns {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// fit widens the columns to the rows. On a terminal it then omits the spare columns and
// narrows free text, the widest column first.
func (l *layout) fit(rows [][]string, head bool) {
	first := l.widths == nil
	if first {
		l.widths = make([]int, len(l.columns))
	}
	total := columnGap * (len(l.columns) - 1)
	for i, c := range l.columns {
		if head {
			l.widths[i] = max(l.widths[i], text.StringWidthWithoutEscSequences(c.name))
		}
		for _, row := range rows {
			l.widths[i] = max(l.widths[i], text.StringWidthWithoutEscSequences(row[i]))
		}
		total += l.widths[i]
	}
	l.narrow = l.narrow || first && l.s.OutColumns > 0 && total > l.s.OutColumns
	for i, c := range l.columns {
		if l.narrow && c.spare {
			total -= columnGap + l.widths[i]
		}
	}
	for ; l.s.OutColumns > 0 && total > l.s.OutColumns; total-- {
		widest := -1
		for i, c := range l.columns {
			if c.text && l.widths[i] > minTextColumns && (widest < 0 || l.widths[i] > l.widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return // the terminal breaks the lines
		}
		l.widths[widest]--
	}
}

// rowPrinter prints any number of rows, as a table or as CSV. It holds one batch of
// rows; a later batch can only widen a table's columns.
type rowPrinter struct {
	layout

	csv     *csv.Writer // nil: a table
	rows    [][]string  // of a table, not yet printed
	printed bool
}

func newRowPrinter(s streams, form string, columns []column) *rowPrinter {
	p := &rowPrinter{layout: layout{s: s, columns: columns}}
	if form == outputCSV {
		p.csv = csv.NewWriter(s.Out)
	}
	return p
}

// print prints a row.
func (p *rowPrinter) print(row ...string) error {
	for i := range row {
		row[i] = visible(row[i])
	}
	if p.csv != nil {
		return written(errors.Join(p.head(), p.csv.Write(row)))
	}
	p.rows = append(p.rows, row)
	if len(p.rows) == batchRows {
		return p.printRows()
	}
	return nil
}

// head writes the names of the columns as CSV, once.
func (p *rowPrinter) head() error {
	if p.printed {
		return nil
	}
	p.printed = true
	var names []string
	for _, c := range p.columns {
		names = append(names, c.name)
	}
	return p.csv.Write(names)
}

func (p *rowPrinter) printRows() error {
	rendered := p.render(p.rows, !p.printed)
	p.rows, p.printed = p.rows[:0], true
	return write(p.s.Out, rendered+"\n")
}

// flush prints the last rows. An empty table prints emptyText, empty CSV the names of
// its columns.
func (p *rowPrinter) flush(emptyText string) error {
	switch {
	case p.csv != nil:
		err := p.head()
		p.csv.Flush()
		return written(errors.Join(err, p.csv.Error()))
	case len(p.rows) > 0:
		return p.printRows()
	case !p.printed:
		return write(p.s.Out, emptyText+"\n")
	}
	return nil
}
