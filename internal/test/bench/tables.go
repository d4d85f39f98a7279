package main

import (
	"fmt"
	"slices"

	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// The titles of the tables.
const (
	titleContenders = "Contenders"
	titleLimits     = "Limits"
	titleWire       = "On the wire"
	titleFresh      = "Latency of a fresh event"
	titleDuplicate  = "Latency of a duplicate event"
	titleThroughput = "Throughput"
	titleCPU        = "Client CPU of a fresh event"
	titleGrowth     = "Growth"
	titleStorm      = "Other events during a storm of one settlement"
	titleFairness   = "Fresh events beside conflicts"
	titleInput      = "Largest requests"
	titleCrashes    = "After a crash"
	titleColdStart  = "Cold start"
	titleBaseline   = "Baseline"
)

const latencyNote = "Milliseconds by the network's round trip, one event at a time: median of the rounds' medians (range), and the ratio to Settle Once."

// newTables returns the empty tables in the order of the report.
func newTables() []*report.Table {
	byContender := []string{"contender"}
	return []*report.Table{
		{Title: titleContenders, Labels: byContender},
		{Title: titleLimits, Labels: []string{settleOnce}, Note: "The limits apply to a quiet machine and the usual sizes. " +
			"Throughput and the comparisons include the emulator's own work."},
		{Title: titleWire, Labels: []string{"contender", "event"}, Note: "Round trips are RPCs for Spanner. " +
			"Connections are open and statements prepared. Bytes are those of the TCP connections, with gRPC's headers."},
		{Title: titleFresh, Labels: byContender, Note: latencyNote},
		{Title: titleDuplicate, Labels: byContender, Note: latencyNote},
		{Title: titleThroughput, Labels: byContender, Note: "Fresh events a second by the number of deliveries in flight, on loopback, and the ratio to Settle Once. " +
			"The emulator runs one read-write transaction at a time."},
		{Title: titleCPU, Labels: byContender, Note: "User and system time of the client's process: median (range), and the ratio to Settle Once."},
		{Title: titleGrowth, Labels: []string{"contender", "rows"}, Note: "By the number of stored settlements, and the ratio to the first number. " +
			"Each number has its own database, and they take turns. The emulator scans whole tables in a query by key; Spanner seeks. " +
			"For Spanner the constant number of round trips counts."},
		{Title: titleStorm, Labels: byContender, Note: "Latency of other settlements: calm, and during a wave of concurrent deliveries of one settlement. " +
			"RPCs include both. One process handles all deliveries of a wave, so other events also wait for its CPU."},
		{Title: titleFairness, Labels: []string{"beside"}, Note: "Latency of fresh events at one instance with 32 slots, and the ratio to the first row: " +
			"the same writes without a common settlement. The median of the rounds."},
		{Title: titleCrashes, Labels: byContender, Note: "A process is killed at each step of a delivery equally often, and the message is delivered again. " +
			"Waited: deliveries that the contender rejected until the record in progress had expired."},
		{Title: titleColdStart, Labels: []string{"function"}, Note: "From the start of the process. The first answer of the function with clients, less that of the empty one, is the clients' price."},
		{Title: titleInput, Labels: []string{"16 MiB of"}, Note: "One request to SettlePayout in a new process, less an ordinary request in another: " +
			"user and system time, and the peak of the resident memory. The costliest of all requests are shown."},
		{Title: titleBaseline, Labels: []string{"work on one event"}, Note: fmt.Sprintf("A message of %d bytes. "+
			"Up to the network: an interceptor answers each Commit. Ratio: to SHA-256 and the scan together.", len(contender.Message(1).Message.Data))},
	}
}

// limit bounds one figure of the report, or without a row the largest one of a column.
type limit struct {
	text          string
	title, column string
	row           []string
	value         func(*report.Cell) float64
	sign          string // ≤ or ≥
	bound         float64
}

func median(c *report.Cell) float64  { return report.Median(c.Rounds) }
func highest(c *report.Cell) float64 { return slices.Max(c.Rounds) }
func ratio(c *report.Cell) float64   { return report.Median(c.Ratios) }
func inverse(c *report.Cell) float64 { return 1 / ratio(c) }

// The contenders of the comparisons.
const (
	rival            = "SELECT, two INSERTs"
	leastTransaction = "transaction only"
)

const columnRPCs = "round trips"

// limits apply to a quiet machine and the usual sizes; noise can break them in a quick
// run.
func (s sizes) limits() []limit {
	rows := slices.Concat(s.rows, s.moreRows)
	first, last := fmt.Sprint(rows[0]), fmt.Sprint(rows[len(rows)-1])
	grown := fmt.Sprintf("event with %s rows, times that with %s", last, first)
	limits := []limit{
		atMostRPCs(fresh, 1), atMostRPCs(unsettled, 2), atMostRPCs(duplicate, 2), atMostRPCs(duplicateAgain, 1),
		atMostRPCs(conflict, 5), atMostRPCs(conflictAgain, 3), atMostRPCs(quarantinedAgain, 1),
		{"fresh event at 5 ms, in measured round trips", titleFresh, "5 ms", []string{inRoundTrips}, median, "≤", 1.2},
		{"duplicate at 5 ms, in measured round trips", titleDuplicate, "5 ms", []string{inRoundTrips}, median, "≤", 2.2},
		{"duplicate at 5 ms, times " + leastTransaction, titleDuplicate, "5 ms", []string{leastTransaction}, inverse, "≤", 1.1},
		{"duplicate on loopback, times " + leastTransaction, titleDuplicate, "0 ms", []string{leastTransaction}, inverse, "≤", 1.2},
		{"fresh event at 5 ms, times faster than " + rival, titleFresh, "5 ms", []string{rival}, ratio, "≥", 3},
		{"throughput with 64 in flight, times that of " + rival, titleThroughput, "64 in flight", []string{rival}, inverse, "≥", 3},
		{"decode, validate and hash, µs", titleBaseline, "µs", []string{workDecode}, median, "≤", 6},
		{"decode, validate and hash, allocations", titleBaseline, "allocations", []string{workDecode}, median, "≤", 20},
		{"cold start, times that of a function that opens the clients", titleColdStart, columnRatio, []string{functionSettle}, median, "≤", 1.1},
		{"fresh " + grown, titleGrowth, columnFresh, []string{settleOnce, last}, ratio, "≤", 1.3},
		{"duplicate " + grown, titleGrowth, columnDuplicate, []string{settleOnce, last}, ratio, "≤", 1.3},
		{"largest request, CPU seconds", titleInput, columnCPU, nil, median, "≤", 0.5},
		{"largest request, MB of memory", titleInput, columnMemory, nil, median, "≤", 80},
		{fmt.Sprintf("correct after %d kills", s.kills), titleCrashes, "correct", []string{settleOnce}, median, "≥", float64(s.kills)},
	}
	for _, b := range backgrounds[1:] {
		for _, column := range []string{columnP95, columnP99} {
			limits = append(limits, limit{fmt.Sprintf("fresh event beside %s: %s, times the first row's", b.name, column[:3]), titleFairness, column, []string{b.name}, ratio, "≤", 3})
		}
	}
	return limits
}

func atMostRPCs(e kind, most float64) limit {
	return limit{"RPCs: " + e.name, titleWire, columnRPCs, []string{settleOnce, e.name}, highest, "≤", most}
}

// checkLimits fills the table of limits, as far as the run has the figures.
func (r *run) checkLimits() {
	t := r.report.Table(titleLimits)
	for _, l := range r.sizes.limits() {
		var values []float64
		for _, row := range r.report.Table(l.title).Rows {
			if cell := row.Cells[l.column]; cell != nil && (l.row == nil || slices.Equal(row.Labels, l.row)) {
				values = append(values, l.value(cell))
			}
		}
		if values == nil {
			continue
		}
		found, holds := slices.Max(values), "yes"
		if l.sign == "≤" && found > l.bound || l.sign == "≥" && found < l.bound {
			holds = "NO"
		}
		t.Text("limit", fmt.Sprintf("%s %g", l.sign, l.bound), l.text)
		t.Add("found", found, l.text)
		t.Text("holds", holds, l.text)
	}
}

// chart shows latency and round trips of a fresh event and of its duplicate.
func (r *run) chart() (groups []report.Group) {
	bar := func(title, kind, name string) (b report.Bar) {
		latency, trips := r.report.Table(title).Find("5 ms", name), r.report.Table(titleWire).Find(columnRPCs, name, kind)
		if latency == nil || trips == nil {
			return report.Bar{}
		}
		label := fmt.Sprintf("%.1f ms, %.0f round trips", median(latency), median(trips))
		if median(trips) == 1 {
			label = label[:len(label)-len("s")]
		}
		return report.Bar{Label: label, Value: median(latency)}
	}
	for _, c := range r.contenders {
		g := report.Group{Name: c.Name, Fresh: bar(titleFresh, fresh.name, c.Name), Duplicate: bar(titleDuplicate, duplicate.name, c.Name)}
		if g.Fresh.Label != "" {
			groups = append(groups, g)
		}
	}
	return groups
}
