package main

import (
	"fmt"

	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// limit bounds one figure of the report.
type limit struct {
	text          string
	title, column string
	row           []string
	value         func(report.Cell) float64
	sign          string // ≤ or ≥
	bound         float64
}

func median(c report.Cell) float64       { return c.Figure.Median }
func highest(c report.Cell) float64      { return c.Figure.High }
func ratio(c report.Cell) float64        { return c.Ratio.Median }
func inverseRatio(c report.Cell) float64 { return 1 / c.Ratio.Median }

const rival = "SELECT, two INSERTs"

// limits apply to a quiet machine and the usual sizes; noise can break them in a quick
// run.
var limits = []limit{
	{"RPCs of a fresh event", titleWire, "round trips", []string{settleOnce, eventFresh}, highest, "≤", 1},
	{"RPCs of a duplicate event", titleWire, "round trips", []string{settleOnce, eventDuplicate}, highest, "≤", 2},
	{"RPCs of a conflict event", titleWire, "round trips", []string{settleOnce, eventConflict}, highest, "≤", 3},
	{"fresh event at 5 ms, in measured round trips", titleFresh, "5 ms", []string{inRoundTrips}, median, "≤", 1.2},
	{"fresh event at 5 ms, times faster than " + rival, titleFresh, "5 ms", []string{rival}, ratio, "≥", 3},
	{"throughput with 64 in flight, times that of " + rival, titleThroughput, "64 in flight", []string{rival}, inverseRatio, "≥", 3},
	{"decode, validate and hash, µs", titleBaseline, "µs", []string{"decode, validate, hash"}, median, "≤", 6},
	{"decode, validate and hash, allocations", titleBaseline, "allocations", []string{"decode, validate, hash"}, median, "≤", 20},
	{"cold start, times that of an empty function", titleColdStart, "ratio", []string{programNames["empty"]}, median, "≤", 1.5},
}

// checkLimits fills the table of limits, as far as the run has the figures.
func (r *run) checkLimits() {
	for _, l := range limits {
		if cell, ok := r.report.Table(l.title).Find(l.column, l.row...); ok {
			value := l.value(cell)
			r.addLimit(l.text, l.sign, l.bound, value)
		}
	}
	var sizes []string
	for _, row := range r.report.Table(titleGrowth).Rows {
		if row.Labels[0] == settleOnce {
			sizes = append(sizes, row.Labels[1])
		}
	}
	if n := len(sizes); n > 1 {
		cell, _ := r.report.Table(titleGrowth).Find("ratio to the first", settleOnce, sizes[n-1])
		r.addLimit(fmt.Sprintf("fresh event with %s rows, times that with %s", sizes[n-1], sizes[0]), "≤", 1.3, median(cell))
	}
	if cell, ok := r.report.Table(titleCrashes).Find("correct", settleOnce); ok {
		r.addLimit(fmt.Sprintf("correct after %d kills", r.sizes.kills), "≥", float64(r.sizes.kills), median(cell))
	}
}

func (r *run) addLimit(text, sign string, bound, found float64) {
	holds := "yes"
	if sign == "≤" && found > bound || sign == "≥" && found < bound {
		holds = "NO"
	}
	t := r.report.Table(titleLimits)
	t.Set("limit", report.Text("%s %g", sign, bound), text)
	t.Set("found", report.Figure(found), text)
	t.Set("holds", report.Text("%s", holds), text)
}
