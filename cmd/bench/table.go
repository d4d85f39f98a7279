package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/settleonce/settleonce/internal/test/bench"
)

// sheet is one table of a report, for the terminal and for Markdown.
type sheet struct {
	title string
	// note says what the figures are.
	note string
	head []string
	rows [][]string
}

// names tells the contenders' names by their keys.
func names(r bench.Report) map[string]string {
	found := map[string]string{}
	for _, c := range r.Contenders {
		found[c.Key] = c.Name
	}
	return found
}

// sheets are the tables of a report; those without figures are left out.
func sheets(r bench.Report) []sheet {
	all := []sheet{
		contenderSheet(r), claimSheet(r), wireSheet(r), latencySheet(r, bench.EventFresh), latencySheet(r, bench.EventDuplicate),
		throughputSheet(r), cpuSheet(r), growthSheet(r), stormSheet(r), crashSheet(r), coldStartSheet(r), initSheet(r), floorSheet(r),
	}
	return slices.DeleteFunc(all, func(s sheet) bool { return len(s.rows) == 0 })
}

func contenderSheet(r bench.Report) sheet {
	s := sheet{title: "Contenders", head: []string{"contender", "how"}}
	for _, c := range r.Contenders {
		about := c.About
		if c.Missing != "" {
			about = "LEFT OUT: " + c.Missing
		}
		s.rows = append(s.rows, []string{c.Name, about})
	}
	return s
}

func claimSheet(r bench.Report) sheet {
	s := sheet{
		title: "What the run has to show", head: []string{"Settle Once", "limit", "found", "holds"},
		note: "The limits are for a quiet machine and the usual sizes. Throughput and the comparisons with others are in front of the emulator, whose own work is part of them.",
	}
	for _, c := range r.Claims {
		holds := "yes"
		if !c.Holds {
			holds = "NO"
		}
		s.rows = append(s.rows, []string{c.Text, c.Limit, c.Found, holds})
	}
	return s
}

func wireSheet(r bench.Report) sheet {
	s := sheet{
		title: "On the wire", head: []string{"contender", "event", "round trips", "commits", "bytes sent", "bytes received"},
		note: "Round trips are RPCs for Spanner. Connections are open and statements prepared; bytes are those of the TCP connections, headers of gRPC included.",
	}
	name := names(r)
	for _, w := range r.Wire {
		trips := number(w.RoundTrips)
		if w.LeastTrips != w.MostTrips {
			trips = fmt.Sprintf("%.1f (%d to %d)", w.RoundTrips, w.LeastTrips, w.MostTrips)
		}
		s.rows = append(s.rows, []string{name[w.Contender], w.Event, trips, number(w.Commits), fmt.Sprintf("%.0f", w.Sent), fmt.Sprintf("%.0f", w.Received)})
	}
	return s
}

func latencySheet(r bench.Report, event string) sheet {
	s := sheet{
		title: "Latency of a " + event + " event", head: []string{"contender"},
		note: "Milliseconds, one event at a time: median of the rounds' medians (least to greatest), and how many times that of Settle Once, by the network's round trip.",
	}
	rows := map[string][]string{}
	for _, l := range r.Latency {
		if l.Event != event {
			continue
		}
		if l.Contender == bench.Baseline {
			s.head = append(s.head, fmt.Sprintf("%g ms", l.RoundTripMillis))
		}
		rows[l.Contender] = append(rows[l.Contender], withRatio(l.Millis, l.Ratio, l.Contender))
	}
	s.rows = byContender(r, rows)
	if event == bench.EventFresh && len(r.Network) > 0 {
		trip := []string{"a byte there and back"}
		for _, n := range r.Network {
			trip = append(trip, spread(n.Millis, 2))
		}
		s.rows = append([][]string{trip}, s.rows...)
	}
	return s
}

func throughputSheet(r bench.Report) sheet {
	s := sheet{
		title: "Throughput", head: []string{"contender"},
		note: "Fresh events a second, by the number of deliveries in flight, on loopback; and the share of Settle Once's. The emulator runs one read-write transaction at a time.",
	}
	rows := map[string][]string{}
	for _, t := range r.Throughput {
		if t.Contender == bench.Baseline {
			s.head = append(s.head, fmt.Sprintf("%d in flight", t.InFlight))
		}
		cell := fmt.Sprintf("%.0f (%.0f to %.0f)", t.PerSecond.Median, t.PerSecond.Low, t.PerSecond.High)
		if t.Contender != bench.Baseline {
			cell += fmt.Sprintf(", × %.2f", t.Ratio.Median)
		}
		rows[t.Contender] = append(rows[t.Contender], cell)
	}
	s.rows = byContender(r, rows)
	return s
}

func cpuSheet(r bench.Report) sheet {
	s := sheet{
		title: "Client CPU of a fresh event", head: []string{"contender", "µs", "allocations", "times Settle Once"},
		note: "User and system time of the client's process, less what it uses when idle: median (least to greatest).",
	}
	name := names(r)
	for _, c := range r.CPU {
		s.rows = append(s.rows, []string{name[c.Contender], spread(c.MicrosEvent, 0), fmt.Sprintf("%.0f", c.Allocations.Median), spread(c.Ratio, 2)})
	}
	return s
}

func growthSheet(r bench.Report) sheet {
	s := sheet{
		title: "Growth", head: []string{"contender", "rows", "round trips", "fresh, ms", "times the first", "client µs", "duplicate, ms"},
		note: "With so many settlements stored already. Each number of rows has a database of its own, and they take turns. A query by key makes the emulator look through whole tables" + perSettlement(r) + ": that is the emulator's and not Spanner's, and duplicates are not timed where they would take minutes. What counts for Spanner is that the round trips do not grow.",
	}
	name := names(r)
	for _, g := range r.Growth {
		s.rows = append(s.rows, []string{
			name[g.Contender], fmt.Sprint(g.Rows), number(g.RoundTrips), spread(g.Millis, 2), spread(g.Ratio, 2),
			spread(g.MicrosCPU, 0), spread(g.DuplicateMillis, 2),
		})
	}
	return s
}

// perSettlement tells how much longer a duplicate takes for each settlement that is
// stored already.
func perSettlement(r bench.Report) string {
	var timed []bench.Growth
	for _, g := range r.Growth {
		if g.Contender == bench.Baseline && g.DuplicateMillis.Rounds > 0 {
			timed = append(timed, g)
		}
	}
	if len(timed) < 2 {
		return ""
	}
	first, last := timed[0], timed[len(timed)-1]
	const microseconds = 1000
	each := (last.DuplicateMillis.Median - first.DuplicateMillis.Median) * microseconds / float64(last.Rows-first.Rows)
	return fmt.Sprintf(", %.0f µs a settlement for Settle Once's four", each)
}

func stormSheet(r bench.Report) sheet {
	s := sheet{
		title: "Others during a storm of one settlement", head: []string{"contender", "waves", "a wave, ms", "RPCs", "calm p50 / p99 / max, ms", "in a wave p50 / p99 / max, ms", "events"},
		note: "Latency of other settlements, without a storm, and begun behind a wave of deliveries of one settlement or while it goes on. RPCs are those of both. All deliveries of a wave are at one process, so others also wait for what it computes.",
	}
	for _, t := range r.Storm {
		s.rows = append(s.rows, []string{
			t.Name, fmt.Sprintf("%d × %d", t.Waves(), t.AtOnce), spread(t.Wave, 0), fmt.Sprint(t.RPCs), threeOf(t.Calm), threeOf(t.During), fmt.Sprint(t.During.Events),
		})
	}
	return s
}

// mostPoints is how many steps are named one by one.
const mostPoints = 8

func crashSheet(r bench.Report) sheet {
	s := sheet{
		title: "What a crash leaves", head: []string{"contender", "kills", "correct", "lost", "doubled", "had to wait", "where"},
		note: "A process is killed at each step of a delivery equally often, the message is delivered again, and the ledger is counted. Had to wait: the delivery after the crash was refused until the record in progress had expired.",
	}
	name := names(r)
	for _, c := range r.Crashes {
		var points []string
		for _, point := range slices.Sorted(maps.Keys(c.Points)) {
			points = append(points, fmt.Sprintf("%s %d", point, c.Points[point]))
		}
		if len(points) > mostPoints {
			points = []string{fmt.Sprintf("%d different turns of the conversation", len(points))}
		}
		s.rows = append(s.rows, []string{
			name[c.Contender], fmt.Sprint(c.Kills), fmt.Sprint(c.Correct), fmt.Sprint(c.Lost), fmt.Sprint(c.Doubled), fmt.Sprint(c.Waited),
			strings.Join(points, ", "),
		})
	}
	return s
}

// programNames are the functions' names on paper.
var programNames = map[string]string{
	"function": "SettlePayout, first settled event", "spanner": "opens the client, reads one row", "empty": "does nothing",
}

func coldStartSheet(r bench.Report) sheet {
	s := sheet{title: "Cold start", head: []string{"function", "listening, ms", "first answer, ms", "program, MB", "packages"}}
	if c := r.ColdStart; c != nil {
		s.note = fmt.Sprintf("From the start of the process. SettlePayout takes %s times as long as a function that does nothing, and %s times as long as one that only opens the Spanner client.",
			spread(c.Ratio, 2), spread(c.RatioSpanner, 2))
		for _, p := range c.Programs {
			s.rows = append(s.rows, []string{
				programNames[p.Name], spread(p.Listening, 1), spread(p.Answered, 1), fmt.Sprintf("%.1f", p.Megabytes), fmt.Sprint(p.Packages),
			})
		}
	}
	return s
}

func initSheet(r bench.Report) sheet {
	s := sheet{
		title: "What a cold start initialises", head: []string{"package", "ms", "allocations"},
		note: "Of SettlePayout, in one start, as Go's runtime traces it. The packages of this module come first, then the greatest of the others.",
	}
	if c := r.ColdStart; c != nil {
		for _, one := range c.Inits {
			s.rows = append(s.rows, []string{one.Package, fmt.Sprintf("%.2f", one.Millis), fmt.Sprint(one.Allocations)})
		}
	}
	return s
}

func floorSheet(r bench.Report) sheet {
	s := sheet{title: "The floor", head: []string{"work on one event", "µs", "allocations"}}
	if f := r.Floor; f != nil {
		s.note = fmt.Sprintf("A message of %d bytes. Decoding, validating and hashing takes %s times SHA-256 and a bare scan together. Up to the network: a Commit is answered at once, by an interceptor.",
			f.MessageBytes, spread(f.Ratio, 1))
		s.rows = [][]string{
			{"decode, validate, hash", spread(f.Decode, 2), fmt.Sprintf("%.0f", f.DecodeAllocations)},
			{"all up to the network", spread(f.Client, 1), fmt.Sprintf("%.0f", f.ClientAllocations)},
			{"SHA-256 of the bytes", spread(f.SHA256, 2), ""},
			{"scan of the JSON tokens", spread(f.Scan, 2), ""},
		}
	}
	return s
}

// byContender returns the rows in the contenders' order.
func byContender(r bench.Report, rows map[string][]string) [][]string {
	var ordered [][]string
	for _, c := range r.Contenders {
		if cells := rows[c.Key]; cells != nil {
			ordered = append(ordered, append([]string{c.Name}, cells...))
		}
	}
	return ordered
}

func withRatio(s, ratio bench.Summary, key string) string {
	if key == bench.Baseline {
		return spread(s, 2)
	}
	return fmt.Sprintf("%s, × %.1f", spread(s, 2), ratio.Median)
}

func spread(s bench.Summary, digits int) string {
	if s.Rounds == 0 {
		return "not timed"
	}
	return fmt.Sprintf("%.*f (%.*f to %.*f)", digits, s.Median, digits, s.Low, digits, s.High)
}

func threeOf(q bench.Quantiles) string { return fmt.Sprintf("%.1f / %.1f / %.1f", q.P50, q.P99, q.Max) }

// number leaves out a fraction that is none.
func number(f float64) string {
	if rounded := fmt.Sprintf("%.2f", f); !strings.HasSuffix(rounded, ".00") {
		return rounded
	}
	return fmt.Sprintf("%.0f", f)
}

// tables are a report for a terminal.
func tables(r bench.Report) string {
	var page strings.Builder
	for _, s := range sheets(r) {
		t := table.NewWriter()
		t.SetStyle(table.StyleLight)
		t.Style().Format.Header = text.FormatDefault
		t.SetTitle(s.title)
		t.AppendHeader(cells(s.head))
		for _, row := range s.rows {
			t.AppendRow(cells(row))
		}
		const wide = 62
		var columns []table.ColumnConfig
		for i := range s.head {
			columns = append(columns, table.ColumnConfig{Number: i + 1, WidthMax: wide, WidthMaxEnforcer: text.WrapSoft})
		}
		t.SetColumnConfigs(columns)
		page.WriteString(t.Render() + "\n")
		if s.note != "" {
			page.WriteString(text.WrapSoft(s.note, 110) + "\n")
		}
		page.WriteString("\n")
	}
	fmt.Fprintf(&page, "%s, in %s; load before it: %.2f\n", machine(r), seconds(r.Seconds), r.Machine.Load)
	return page.String()
}

func cells(values []string) table.Row {
	row := table.Row{}
	for _, value := range values {
		row = append(row, value)
	}
	return row
}

// machine says where the figures are from.
func machine(r bench.Report) string {
	m := r.Machine
	line := fmt.Sprintf("%s run of %s on %d × %s, %s, %s; %s", r.Sizes.Name, m.Date, m.CPUs, m.CPU, m.OS, m.Go, m.Spanner)
	if m.Postgres != "" {
		line += "; " + m.Postgres
	}
	return line
}
