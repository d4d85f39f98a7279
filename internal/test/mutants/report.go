package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// most is how many tests of one test function are named in the table.
const most = 3

// report prints the table and what was not caught, and returns how many were.
func (r runner) report(verdicts []verdict) (caught int) {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"mutant", "caught by", "s"})
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 1, WidthMax: 34, WidthMaxEnforcer: text.WrapSoft}, {Number: 3, Align: text.AlignRight}})
	for _, v := range verdicts {
		t.AppendSeparator()
		by := strings.Join(byPackage(v.failed), "\n")
		if len(v.faults) == 0 {
			caught++
		} else {
			by = strings.Join(append([]string{"NOT CAUGHT"}, byPackage(v.failed)...), "\n")
		}
		t.AppendRow(table.Row{v.mutant.fault, by, fmt.Sprintf("%.1f", v.took.Seconds())})
	}
	r.print("%s\n", t.Render())
	for _, v := range verdicts {
		if len(v.faults) > 0 {
			r.print("\nnot caught: %s (%s)\n  breaks: %s\n  %s\n", v.mutant.name, v.mutant.fault, v.mutant.breaks, strings.Join(v.faults, "\n  "))
		}
	}
	return caught
}

// byPackage lists tests below their packages. Of more than a few subtests of one
// test the first are named and the others counted.
func byPackage(failed []id) []string {
	var (
		lines []string
		pkg   string
	)
	for i := 0; i < len(failed); {
		if failed[i].pkg != pkg {
			pkg = failed[i].pkg
			lines = append(lines, pkg)
		}
		parent, _, _ := strings.Cut(failed[i].test, "/")
		n := i
		for n < len(failed) && failed[n].pkg == pkg && strings.HasPrefix(failed[n].test+"/", parent+"/") {
			n++
		}
		for _, t := range failed[i:min(n, i+most)] {
			lines = append(lines, "  "+t.test)
		}
		if n > i+most {
			lines = append(lines, fmt.Sprintf("  and %d more of %s", n-i-most, parent))
		}
		i = n
	}
	return lines
}
