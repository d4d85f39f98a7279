package main

import (
	"fmt"

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
	titleCrashes    = "After a crash"
	titleColdStart  = "Cold start"
	titleInits      = "Initialisation in a cold start"
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
		{Title: titleCPU, Labels: byContender, Note: "User and system time of the client's process, without its idle use: median (range), and the ratio to Settle Once."},
		{Title: titleGrowth, Labels: []string{"contender", "rows"}, Note: "By the number of stored settlements. Each number has its own database, and they take turns. " +
			"The emulator scans whole tables in a query by key, four tables for Settle Once; Spanner seeks. Duplicates are not measured where they take minutes. " +
			"For Spanner the constant number of round trips counts."},
		{Title: titleStorm, Labels: byContender, Note: "Latency of other settlements: calm, and during a wave of concurrent deliveries of one settlement. " +
			"RPCs include both. One process handles all deliveries of a wave, so other events also wait for its CPU."},
		{Title: titleCrashes, Labels: byContender, Note: "A process is killed at each step of a delivery equally often, and the message is delivered again. " +
			"Waited: deliveries that the contender rejected until the record in progress had expired."},
		{Title: titleColdStart, Labels: []string{"function"}, Note: "From the start of the process. Ratio: the first answer of SettlePayout divided by that of the function."},
		{Title: titleInits, Labels: []string{"package"}, Note: "Of SettlePayout in one start, traced by Go's runtime: this module, then the slowest other packages."},
		{Title: titleBaseline, Labels: []string{"work on one event"}, Note: fmt.Sprintf("A message of %d bytes. "+
			"Up to the network: an interceptor answers each Commit. Ratio: to SHA-256 and the scan together.", len(contender.Message(1)))},
	}
}

// chart shows latency and round trips of a fresh event.
func (r *run) chart() (bars []report.Bar) {
	for _, c := range r.contenders {
		latency, ok := r.report.Table(titleFresh).Find("5 ms", c.Name)
		trips, ok2 := r.report.Table(titleWire).Find("round trips", c.Name, eventFresh)
		if ok && ok2 {
			label := roundTripLabel(latency.Figure.Median, trips.Figure.Median)
			bars = append(bars, report.Bar{Name: c.Name, Label: label, Value: latency.Figure.Median})
		}
	}
	return bars
}

func roundTripLabel(millis, trips float64) string {
	if trips == 1 {
		return fmt.Sprintf("%.1f ms, 1 round trip", millis)
	}
	return fmt.Sprintf("%.1f ms, %.0f round trips", millis, trips)
}
