package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// The forms of a result.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputCSV   = "csv"
)

const (
	// boxColumns is the width of a table in a box, leastWords the least of its last
	// column.
	boxColumns = 100
	leastWords = 24
	// pageColumns is the width of what is fitted to a terminal, where there is none.
	pageColumns = 80
)

// init lets go-pretty colour whatever it is told to: which streams get colours is
// decided here, by [streams.paint].
func init() { text.EnableColors() }

// outputFlags are the flags for the form of a result.
type outputFlags struct {
	form  string // what --output says
	forms []string
	short map[string]*bool // --json and --csv, by the form
}

// register adds --output with the given forms, and --json and --csv for those
// that are among them. The first form is the default.
func (f *outputFlags) register(cmd *cobra.Command, forms ...string) {
	f.forms, f.short = forms, map[string]*bool{}
	flags, exclusive := cmd.Flags(), []string{"output"}
	flags.StringVar(&f.form, "output", forms[0], "`form` of the result: "+inWords(forms))
	for _, form := range forms {
		if form != outputTable {
			f.short[form] = flags.Bool(form, false, "the same as --output "+form)
			exclusive = append(exclusive, form)
		}
	}
	cmd.MarkFlagsMutuallyExclusive(exclusive...)
	completeWords(cmd, "output", forms...)
}

// check finds a form that there is not, and takes --json and --csv for the form
// that they name.
func (f *outputFlags) check() error {
	for form, given := range f.short {
		if *given {
			f.form = form
		}
	}
	if !slices.Contains(f.forms, f.form) {
		return wrongf("output", "--output is %q; give %s", f.form, inWords(f.forms))
	}
	return nil
}

// inWords lists alternatives.
func inWords(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// completeWords lets shells complete a flag's value.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag: a fault of the program
	}
}

// interruptible runs f with a context that SIGINT and SIGTERM end. An f that
// fails after one of them was interrupted.
func interruptible(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return &codedError{code: exitInterrupted, err: errInterrupted}
	}
	return err
}

// terminalColumns returns the width of the terminal behind f, or 0 if there is none.
func terminalColumns(f *os.File) int {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return 0
	}
	columns, _, err := term.GetSize(fd)
	if err != nil || columns <= 0 {
		return pageColumns // a terminal that does not tell its size
	}
	return columns
}

// columns is the width to which results are fitted.
func (s streams) columns() int {
	if s.outColumns == 0 {
		return pageColumns
	}
	return max(s.outColumns, 40) // nothing is readable in less
}

// paint colours text of the result, where that goes to a terminal that wants
// colours.
func (s streams) paint(colors text.Colors, words string) string {
	if s.outColumns == 0 || len(colors) == 0 || s.getenv("NO_COLOR") != "" || s.getenv("TERM") == "dumb" {
		return words
	}
	return colors.Sprint(words)
}

// visible writes what could make a terminal do something, or show something else
// than what is there, as an escape: control characters and line breaks, characters
// that are not to be seen or turn the direction of text, and what is not UTF-8.
func visible(words string) string {
	if strings.IndexFunc(words, hidden) < 0 && utf8.ValidString(words) {
		return words
	}
	var b strings.Builder
	for i := 0; i < len(words); {
		r, size := utf8.DecodeRuneInString(words[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, words[i])
		case !hidden(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += size
	}
	return b.String()
}

func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// printJSON writes value as one line.
func printJSON(out io.Writer, value any) error {
	line, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return failf("encode the result: %w", err)
	}
	return write(out, visibleJSON(string(line))+"\n")
}

// visibleJSON is JSON with the same value, in which the hidden characters of its
// strings are escaped: JSON itself asks for that only below U+0020.
func visibleJSON(line string) string {
	if strings.IndexFunc(line, hidden) < 0 {
		return line
	}
	var b strings.Builder
	for _, r := range line {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default: // as JSON has it, two surrogates
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		}
	}
	return b.String()
}

// write writes a part of the result.
func write(out io.Writer, words string) error {
	if _, err := io.WriteString(out, words); err != nil {
		return failf("write the result to standard output: %w", err)
	}
	return nil
}

// counted is a number of things: one of them, or many, whose name has an s.
func counted[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(int64(n)) + " " + one + "s"
}

// oneOr chooses the words for one thing, or for any other number of them.
func oneOr(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// boxed returns rows in a box of at most boxColumns: the last column is wrapped to
// what the others leave, but not to less than leastWords.
func boxed(head []string, rows [][]string, configs ...table.ColumnConfig) string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	last := len(head)
	left := boxColumns - boxLines(last)
	for i, width := range needs(append([][]string{head}, rows...))[:last-1] {
		for _, c := range configs {
			if c.Number == i+1 && c.WidthMax > 0 {
				width = min(width, c.WidthMax)
			}
		}
		left -= width
	}
	t.SetColumnConfigs(append(configs, table.ColumnConfig{Number: last, WidthMax: max(left, leastWords), WidthMaxEnforcer: text.WrapSoft}))
	t.AppendHeader(toRow(head))
	for _, row := range rows {
		t.AppendRow(toRow(row))
	}
	return t.Render() + "\n"
}

// filled makes lines of words. A word that is too long for a line stands alone.
func filled(words []string, columns int) (lines []string) {
	for _, word := range words {
		if last := len(lines) - 1; last >= 0 && len(lines[last])+1+len(word) <= columns {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

// boxLines is how many columns the lines and the blanks of a box take.
func boxLines(columns int) int { return 3*columns + 1 }

// needs returns how wide each column of rows is.
func needs(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for i, value := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], text.LongestLineLen(value))
		}
	}
	return widths
}

func toRow(values []string) table.Row {
	row := make(table.Row, len(values))
	for i, value := range values {
		row[i] = value
	}
	return row
}

// column is one of the columns of rows that are printed as they come.
type column struct {
	name string
	// right aligns to the right, as numbers are.
	right bool
	// fixed keeps values in one line as long as others can be wrapped.
	fixed bool
	// prose is wrapped between words, other text anywhere.
	prose bool
	// optional leaves the column out where a value of any column would have to be
	// broken; JSON and CSV have it all the same.
	optional bool
	// colors gives a value its colours; nil: none.
	colors func(value string) text.Colors
}

// pageRows is how many rows a page of a table has: its columns are as wide as
// these need.
const pageRows = 100

// rowPrinter prints any number of rows, as a table that is fitted to the width of
// the terminal or as CSV. It holds one page of them.
type rowPrinter struct {
	s       streams
	columns []column
	csv     *csv.Writer // nil: a table
	page    [][]string
	pages   int
}

func newRowPrinter(s streams, form string, columns []column) *rowPrinter {
	p := &rowPrinter{s: s, columns: columns}
	if form == outputCSV {
		p.csv = csv.NewWriter(s.out)
	}
	return p
}

// print prints a row.
func (p *rowPrinter) print(row ...string) error {
	for i := range row {
		row[i] = visible(row[i])
	}
	if p.csv != nil {
		return p.printCSV(row)
	}
	p.page = append(p.page, row)
	if len(p.page) == pageRows {
		return p.printPage()
	}
	return nil
}

// flush prints what is left. Without any row a table is the words of nothing, and
// CSV its head.
func (p *rowPrinter) flush(nothing string) error {
	switch {
	case p.csv != nil:
		if p.pages == 0 {
			if err := p.csv.Write(p.head()); err != nil {
				return failf("write the result to standard output: %w", err)
			}
		}
		p.csv.Flush()
		if err := p.csv.Error(); err != nil {
			return failf("write the result to standard output: %w", err)
		}
		return nil
	case len(p.page) > 0:
		return p.printPage()
	case p.pages == 0:
		return write(p.s.out, nothing+"\n")
	}
	return nil
}

func (p *rowPrinter) head() []string {
	var names []string
	for _, c := range p.columns {
		names = append(names, c.name)
	}
	return names
}

func (p *rowPrinter) printCSV(row []string) error {
	var err error
	if p.pages == 0 {
		err = p.csv.Write(p.head())
	}
	p.pages++
	if err = errors.Join(err, p.csv.Write(row)); err != nil {
		return failf("write the result to standard output: %w", err)
	}
	return nil
}

// printPage prints the rows of a page under the names of the columns.
func (p *rowPrinter) printPage() error {
	var gap string
	if p.pages > 0 {
		gap = "\n"
	}
	rows := p.page
	p.page = p.page[:0]
	p.pages++
	return write(p.s.out, gap+layOut(p.s, p.columns, rows, true)+"\n")
}

// columnGap stands between two columns.
const columnGap = 2

// layOut returns rows side by side in columns that are together no wider than the
// terminal.
func layOut(s streams, columns []column, rows [][]string, head bool) string {
	columns, rows = withoutOptional(columns, rows, head, s.columns())
	widths := fit(columns, rows, head, s.columns())
	t := table.NewWriter()
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = text.FormatDefault
	t.Style().Box.PaddingLeft, t.Style().Box.PaddingRight = "", strings.Repeat(" ", columnGap)
	t.SuppressTrailingSpaces()
	var configs []table.ColumnConfig
	for i, c := range columns {
		config := table.ColumnConfig{Number: i + 1, WidthMax: widths[i], WidthMaxEnforcer: wrapper(c)}
		if c.right {
			config.Align, config.AlignHeader = text.AlignRight, text.AlignRight
		}
		configs = append(configs, config)
	}
	t.SetColumnConfigs(configs)
	if head {
		var row table.Row
		for _, c := range columns {
			row = append(row, s.paint(text.Colors{text.Bold}, c.name))
		}
		t.AppendHeader(row)
	}
	for _, values := range rows {
		var row table.Row
		for i, value := range values {
			if colors := columns[i].colors; colors != nil {
				value = s.paint(colors(value), value)
			}
			row = append(row, value)
		}
		t.AppendRow(row)
	}
	return t.Render()
}

// wrapper wraps the values of a column.
func wrapper(c column) func(string, int) string {
	if c.prose {
		return text.WrapSoft
	}
	return text.WrapText
}

// leastColumns is to what width a column is cut down in favour of fixed ones.
const leastColumns = 8

// fit returns the widths of the columns: what they need, or where that is more than
// there is, less. First go what only a few long values need, then the widest
// columns are cut down to the same width, fixed ones last.
func fit(columns []column, rows [][]string, head bool, all int) []int {
	widths, usual := wanted(columns, rows, head)
	for total := rowWidth(widths); total > all && slices.Max(widths) > 1; total-- {
		widths[toCut(columns, widths, usual)]--
	}
	return widths
}

// withoutOptional leaves optional columns out, the last one first, as long as not
// everything has room.
func withoutOptional(columns []column, rows [][]string, head bool, all int) ([]column, [][]string) {
	for i := len(columns) - 1; i >= 0; i-- {
		if widths, _ := wanted(columns, rows, head); rowWidth(widths) <= all {
			break
		}
		if !columns[i].optional {
			continue
		}
		columns = slices.Delete(slices.Clone(columns), i, i+1)
		shorter := make([][]string, len(rows))
		for n, row := range rows {
			shorter[n] = slices.Delete(slices.Clone(row), i, i+1)
		}
		rows = shorter
	}
	return columns, rows
}

// wanted returns the widths with which nothing is broken, and those that nine of ten
// rows can do with.
func wanted(columns []column, rows [][]string, head bool) (widths, usual []int) {
	widths, usual = make([]int, len(columns)), make([]int, len(columns))
	for i, c := range columns {
		needs := make([]int, 0, len(rows)+1)
		for _, row := range rows {
			needs = append(needs, text.LongestLineLen(row[i]))
		}
		slices.Sort(needs)
		if len(needs) > 0 {
			widths[i], usual[i] = needs[len(needs)-1], needs[(len(needs)-1)*9/10]
		}
		if head {
			name := text.StringWidthWithoutEscSequences(c.name)
			widths[i], usual[i] = max(widths[i], name), max(usual[i], name)
		}
	}
	return widths, usual
}

// rowWidth is the width of columns and the gaps between them.
func rowWidth(widths []int) int {
	total := columnGap * (len(widths) - 1)
	for _, width := range widths {
		total += width
	}
	return total
}

// toCut returns the column that is cut down next. usual are the widths that nine of
// ten rows can do with.
func toCut(columns []column, widths, usual []int) int {
	widest := func(may func(i int) bool) int {
		found := -1
		for i := range columns {
			if may(i) && (found < 0 || widths[i] > widths[found]) {
				found = i
			}
		}
		return found
	}
	flexible := func(i int) bool { return !columns[i].fixed && widths[i] > leastColumns }
	return cmp.Or(
		1+widest(func(i int) bool { return flexible(i) && widths[i] > usual[i] }),
		1+widest(flexible),
		1+widest(func(int) bool { return true }),
	) - 1
}
