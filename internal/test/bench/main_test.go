package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/bench/contender"
	"github.com/settleonce/settleonce/internal/test/bench/report"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

// The test binary is also the child process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		os.Exit(runChild(context.Background(), os.Args[2:]))
	}
	os.Exit(m.Run())
}

var tiny = sizes{
	name: "tiny", rounds: 1, events: 2, cpuEvents: 5,
	roundTrips: []time.Duration{0, 5 * time.Millisecond},
	inFlight:   []int{1, 64}, turn: 20 * time.Millisecond,
	rows: []int{10, 50}, moreRows: []int{70}, kills: 2,
	storm: 10, stormPause: 5 * time.Millisecond, requests: 5, starts: 1, loop: time.Millisecond,
}

func TestTinyRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "benchmarks.md")
	const before, after = "before\n<!-- figures: written by make bench, not by hand -->\n", "<!-- end of the figures -->\nafter\n"
	if err := os.WriteFile(path, []byte(before+"old figures\n"+after), 0o600); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	tinyRun := &run{sizes: tiny, progress: t.Output()}
	tinyRun.sizes.name = report.Full
	if err := tinyRun.publish(t.Context(), &printed, dir); err != nil {
		t.Fatal(err)
	}
	r := &tinyRun.report
	checkSizes(t, r)
	checkWire(t, r)
	checkCrashes(t, r)
	checkColdStart(t, r)
	checkBaseline(t, r)
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := before + "\n" + printed.String() + "\n" + after; string(page) != want {
		t.Errorf("the page:\n%s\nwant:\n%s", page, want)
	}
	if !strings.Contains(printed.String(), "### "+titleWire) {
		t.Errorf("printed:\n%s", &printed)
	}
	chart, err := os.ReadFile(filepath.Join(dir, "benchmarks.svg"))
	if bars := strings.Count(string(chart), "<rect"); err != nil || bars < 4 {
		t.Errorf("%d bars, %v", bars, err)
	}
}

// checkSizes counts rows and columns.
func checkSizes(t *testing.T, r *report.Report) {
	t.Helper()
	contenders := len(contender.All())
	for _, row := range r.Table(titleContenders).Rows {
		if text := row.Cells["method"].Text; strings.HasPrefix(text, leftOut) {
			contenders--
			if text != leftOut+contender.ErrNoPostgres.Error() {
				t.Errorf("%s is %s", row.Labels, text)
			}
		}
	}
	for title, want := range map[string][2]int{
		titleLimits:     {len(tiny.limits()), 3},
		titleWire:       {3*contenders + len(furtherEvents), 4},
		titleCPU:        {contenders, 2},
		titleFresh:      {contenders + 2, len(tiny.roundTrips)},
		titleDuplicate:  {contenders + 2, len(tiny.roundTrips)},
		titleThroughput: {contenders, len(tiny.inFlight)},
		titleGrowth:     {len(tiny.rows)*contenders + 1, 3},
		titleStorm:      {4, 6},
		titleFairness:   {3, 4},
		titleInput:      {5, 3},
		titleCrashes:    {contenders, 6},
		titleColdStart:  {3, 6},
		titleBaseline:   {4, 2},
	} {
		table := r.Table(title)
		if got := [2]int{len(table.Rows), len(table.Columns)}; got != want {
			t.Errorf("%s: rows and columns %v, want %v", title, got, want)
		}
	}
}

func medianOf(t *testing.T, r *report.Report, title, column string, labels ...string) float64 {
	t.Helper()
	cell := r.Table(title).Find(column, labels...)
	if cell == nil || len(cell.Rounds) == 0 {
		t.Fatalf("%s, %v: no figure of %s", title, labels, column)
	}
	return median(cell)
}

// checkWire checks the round trips, which do not depend on the machine, and that the
// simulated network delays every one of them.
func checkWire(t *testing.T, r *report.Report) {
	t.Helper()
	trips := map[string]float64{
		"Settle Once fresh": 1, "Settle Once duplicate": 2, "Settle Once conflict": 5,
		"Settle Once redelivered, not settled": 2, "Settle Once duplicate, redelivered": 1, "Settle Once known conflict, redelivered": 3,
		"Settle Once quarantined": 1, "Settle Once known in quarantine": 1,
		"transaction only fresh": 2, "transaction only duplicate": 2, "transaction only conflict": 3,
		"SELECT, two INSERTs fresh": 4, "SELECT, two INSERTs duplicate": 2, "SELECT, two INSERTs conflict": 2,
		"store, effect, update fresh": 6, "store, effect, update duplicate": 2, "store, effect, update conflict": 2,
		"PostgreSQL fresh": 4, "PostgreSQL duplicate": 4, "PostgreSQL conflict": 4,
	}
	for _, row := range r.Table(titleWire).Rows {
		key := strings.Join(row.Labels, " ")
		got := row.Cells["round trips"].Rounds
		if want := trips[key]; slices.Min(got) != want || slices.Max(got) != want {
			t.Errorf("%s: %v round trips, want %v", key, got, want)
		}
		if median(row.Cells["bytes sent"]) < 100 || median(row.Cells["bytes received"]) < 50 {
			t.Errorf("%s: %v", key, row.Cells)
		}
	}
	for kind, title := range map[string]string{fresh.name: titleFresh, duplicate.name: titleDuplicate} {
		for _, row := range r.Table(title).Rows {
			least := 5 * trips[row.Labels[0]+" "+kind]
			if got := medianOf(t, r, title, "5 ms", row.Labels...); got < least {
				t.Errorf("%s, %v: %v ms, but the network alone takes %v", title, row.Labels, got, least)
			}
		}
	}
}

func checkCrashes(t *testing.T, r *report.Report) {
	t.Helper()
	for _, row := range r.Table(titleCrashes).Rows {
		n := func(column string) float64 { return median(row.Cells[column]) }
		if n("kills") != float64(tiny.kills) || n("correct")+n("lost")+n("doubled") != n("kills") || n("lost") != 0 {
			t.Errorf("%v: %v", row.Labels, row.Cells)
		}
		if row.Labels[0] != "store, effect, update" && n("correct") != n("kills") {
			t.Errorf("%v: %v", row.Labels, row.Cells)
		}
		steps := row.Cells["steps"].Text
		if row.Labels[0] == settleOnce && steps != "after Commit 1, before Commit 1" {
			t.Errorf("%v: killed at %s", row.Labels, steps)
		}
	}
}

func checkColdStart(t *testing.T, r *report.Report) {
	t.Helper()
	listening, answered := medianOf(t, r, titleColdStart, "listening, ms", functionSettle), medianOf(t, r, titleColdStart, "first answer, ms", functionSettle)
	if answered <= listening {
		t.Errorf("cold start: listening after %v, answered after %v", listening, answered)
	}
	if medianOf(t, r, titleColdStart, "packages", functionSettle) <= medianOf(t, r, titleColdStart, "packages", functionEmpty) {
		t.Error("cold start: the empty function has no fewer packages")
	}
}

func checkBaseline(t *testing.T, r *report.Report) {
	t.Helper()
	decode := medianOf(t, r, titleBaseline, "allocations", workDecode)
	client := medianOf(t, r, titleBaseline, "allocations", workAll)
	if decode > 20 || client <= decode {
		t.Errorf("baseline: %v allocations to decode, %v up to the network", decode, client)
	}
	for _, row := range r.Table(titleBaseline).Rows {
		if slices.Min(row.Cells["µs"].Rounds) <= 0 {
			t.Errorf("baseline: %v takes %v", row.Labels, row.Cells["µs"])
		}
	}
}

func TestMarksExceededLimits(t *testing.T) {
	t.Parallel()
	r := &run{sizes: tiny, report: report.Report{Tables: newTables()}}
	for _, trips := range []float64{1, 2} {
		r.report.Table(titleWire).Add("round trips", trips, settleOnce, fresh.name)
	}
	r.report.Table(titleWire).Add("round trips", 2, settleOnce, duplicate.name)
	r.report.Table(titleThroughput).AddCompared("64 in flight", 5, 10, rival)
	r.checkLimits()
	var got []string
	for _, row := range r.report.Table(titleLimits).Rows {
		got = append(got, fmt.Sprintf("%s: %v, found %v, %v", row.Labels[0], row.Cells["limit"], row.Cells["found"], row.Cells["holds"]))
	}
	want := []string{
		"RPCs: fresh: ≤ 1, found 2, NO",
		"RPCs: duplicate: ≤ 2, found 2, yes",
		"throughput with 64 in flight, times that of SELECT, two INSERTs: ≥ 3, found 2, NO",
	}
	if !slices.Equal(got, want) {
		t.Errorf("limits %q, want %q", got, want)
	}
}

// The emulator takes the part of a real instance.
func TestInstanceRunDropsItsDatabases(t *testing.T) {
	bystander := emulatortest.Database(t, nil)
	instance, _, _ := strings.Cut(bystander, "/databases/")
	t.Setenv("SPANNER_EMULATOR_HOST", emulatortest.Spanner(t).GRPC)
	tinyRun := &run{sizes: tiny, only: []string{"wire", "latency", "cold_start"}, instance: instance, progress: t.Output()}
	if err := tinyRun.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &tinyRun.report
	if columns := r.Table(titleFresh).Columns; !slices.Equal(columns, []string{"0 ms"}) {
		t.Errorf("a simulated network in front of an instance: %v", columns)
	}
	coldStart := slices.ContainsFunc(r.Tables, func(table *report.Table) bool { return table.Title == titleColdStart })
	if rows := len(r.Table(titleWire).Rows); rows < 12 || coldStart || !strings.Contains(r.Machine.Spanner, instance) {
		t.Errorf("%d rows on the wire, cold start %v, in %s", rows, coldStart, r.Machine.Spanner)
	}
	admin, err := database.NewDatabaseAdminClient(t.Context(), emulatortest.Spanner(t).ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	var left []string
	for d, err := range admin.ListDatabases(t.Context(), &databasepb.ListDatabasesRequest{Parent: instance}).All() {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, d.GetName())
	}
	if len(left) != 1 || left[0] != bystander {
		t.Errorf("databases left: %v", left)
	}
}

func TestRejectsUsageErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--database", "projects/p/instances/i/databases/production"}, "not defined"},
		{[]string{"--instance", "projects/p/instances/in/databases/production"}, "only databases that it has created"},
		{[]string{"--only", "nothing"}, "unknown measure"},
		{[]string{"--quik"}, "bench --help"},
		{[]string{"argument"}, "argument"},
	} {
		var out, errText bytes.Buffer
		code := execute(t.Context(), test.args, term.Streams{Out: &out, Err: &errText})
		if code != term.ExitError || !strings.Contains(errText.String(), test.want) || out.Len() > 0 {
			t.Errorf("%v: exit code %d, %q, %q", test.args, code, &out, &errText)
		}
	}
}

func TestReadsThePageBeforeTheRun(t *testing.T) {
	t.Parallel()
	r := &run{sizes: usual}
	if err := r.publish(t.Context(), io.Discard, filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// Only a full run on the emulator may replace the figures of the documentation.
func TestSizesOfAChangedRun(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, report.Full},
		{[]string{"--quick"}, "quick"},
		{[]string{"--only", "wire"}, "usual, changed"},
		{[]string{"--only", "wire", "--quick"}, "quick, changed"},
		{[]string{"--instance", "projects/p/instances/in"}, "usual, changed"},
	} {
		r := &run{}
		if err := r.parse(test.args, io.Discard); err != nil || r.sizes.name != test.want {
			t.Errorf("%v: sizes %q, %v", test.args, r.sizes.name, err)
		}
	}
}
