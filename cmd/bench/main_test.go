package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/test/bench"
	"github.com/settleonce/settleonce/internal/test/bench/pgcluster"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

// TestMain runs as the process that is killed, where it is told to.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		os.Exit(run(context.Background(), os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
	}
	os.Exit(m.Run())
}

// call runs the program.
func call(t *testing.T, args ...string) (code int, out, errText string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, streams{in: strings.NewReader(""), out: &stdout, err: &stderr, child: []string{self, "child"}})
	return code, stdout.String(), stderr.String()
}

// page is a directory with an empty page.
func newPage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := "# Page\n\nbefore\n" + figuresBegin + "\n\nold figures\n" + figuresEnd + "\nafter\n"
	if err := os.WriteFile(filepath.Join(dir, docsFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRun(t *testing.T) {
	t.Parallel()
	dir := newPage(t)
	code, out, errText := call(t, "--tiny", "--json", "--rows", "70", "--docs", dir, "--module", filepath.Join("..", ".."))
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errText)
	}
	var report bench.Report
	if err := json.Unmarshal([]byte(out), &report, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	takenPart := 0
	for _, c := range report.Contenders {
		if c.Missing == "" {
			takenPart++
		} else if c.Missing != pgcluster.ErrNotFound.Error() {
			t.Errorf("%s is missing: %s", c.Key, c.Missing)
		}
	}
	sizes := report.Sizes
	for _, measured := range []struct {
		what      string
		got, want int
	}{
		{"wire", len(report.Wire), 3 * takenPart},
		{"cpu", len(report.CPU), takenPart},
		{"network", len(report.Network), len(bench.Tiny.RoundTrips)},
		{"latency", len(report.Latency), 2 * len(bench.Tiny.RoundTrips) * takenPart},
		{"throughput", len(report.Throughput), len(sizes.InFlight) * takenPart},
		{"growth", len(report.Growth), len(sizes.Rows)*takenPart + 1},
		{"storm", len(report.Storm), 4},
		{"crashes", len(report.Crashes), takenPart},
	} {
		if measured.got != measured.want {
			t.Errorf("%s: %d figures, want %d", measured.what, measured.got, measured.want)
		}
	}
	checkFigures(t, report)
	checkDocs(t, dir)
}

// checkFigures looks at the figures that do not depend on the machine.
func checkFigures(t *testing.T, r bench.Report) {
	t.Helper()
	trips := map[string]float64{
		"settle_once fresh": 1, "settle_once duplicate": 2, "settle_once conflict": 3,
		"transaction_only fresh": 2, "transaction_only duplicate": 2, "transaction_only conflict": 3,
		"textbook fresh": 4, "textbook duplicate": 2, "textbook conflict": 2,
		"store_then_effect fresh": 6, "store_then_effect duplicate": 2, "store_then_effect conflict": 2,
		"postgres fresh": 4, "postgres duplicate": 4, "postgres conflict": 4,
	}
	for _, w := range r.Wire {
		key := w.Contender + " " + w.Event
		if want := trips[key]; w.RoundTrips != want || w.LeastTrips != w.MostTrips {
			t.Errorf("%s: %v round trips, %d to %d, want %v", key, w.RoundTrips, w.LeastTrips, w.MostTrips, want)
		}
		if w.Sent < 100 || w.Received < 50 || w.Commits < 1 {
			t.Errorf("%s: %+v", key, w)
		}
	}
	for _, l := range r.Latency {
		// The network is waited for once at least for each round trip, on any machine.
		if least := l.RoundTripMillis * trips[l.Contender+" "+l.Event]; l.Millis.Low < least {
			t.Errorf("%s, %s: %v ms, and the network alone takes %v", l.Contender, l.Event, l.Millis.Low, least)
		}
	}
	for _, c := range r.Crashes {
		met := 0
		for _, n := range c.Points {
			met += n
		}
		if c.Correct+c.Lost+c.Doubled != c.Kills || c.Lost != 0 || met != c.Kills {
			t.Errorf("%s: %+v", c.Contender, c)
		}
		if c.Contender != "store_then_effect" && c.Correct != c.Kills {
			t.Errorf("%s: %+v", c.Contender, c)
		}
	}
	if c := r.ColdStart; c == nil || len(c.Programs) != 3 || len(c.Inits) < 3 {
		t.Errorf("cold start: %+v", c)
	} else if function, empty := c.Programs[0], c.Programs[2]; function.Answered.Median <= function.Listening.Median || function.Packages <= empty.Packages {
		t.Errorf("cold start: %+v", c.Programs)
	}
	if r.Floor == nil || r.Floor.Decode.Median <= 0 || r.Floor.Client.Median <= r.Floor.Decode.Median || r.Floor.DecodeAllocations > 20 {
		t.Errorf("floor: %+v", r.Floor)
	}
	if len(r.Claims) < 10 {
		t.Errorf("%d claims", len(r.Claims))
	}
}

func checkDocs(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, docsFile))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, want := range []string{"# Page\n\nbefore\n" + figuresBegin, figuresEnd + "\nafter\n", "### On the wire", "| Settle Once | fresh | 1 | 1 |", "no whole run of the usual sizes (tiny, changed)"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "old figures") {
		t.Error("the old figures are still there")
	}
	chart, err := os.Open(filepath.Join(dir, chartFile))
	if err != nil {
		t.Fatal(err)
	}
	defer chart.Close()
	checkChart(t, chart)
}

// checkChart wants well-formed XML with a bar at least for each that needs nothing but
// the emulator, in either half.
func checkChart(t *testing.T, svg io.Reader) {
	t.Helper()
	bars, decoder := 0, xml.NewDecoder(svg)
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if element, ok := token.(xml.StartElement); ok && element.Name.Local == "rect" {
			bars++
		}
	}
	if bars < 8 {
		t.Errorf("%d bars in the chart", bars)
	}
}

func TestChartEscapes(t *testing.T) {
	t.Parallel()
	svg, err := drawChart(bench.Report{
		Machine:    bench.Machine{CPU: `<&">`},
		Contenders: []bench.Entrant{{Key: bench.Baseline, Name: "a & b"}},
		Latency:    []bench.Latency{{Contender: bench.Baseline, Event: bench.EventFresh, RoundTripMillis: chartRoundTrip, Millis: bench.Summary{Median: 5, Low: 4, High: 6}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		XMLName xml.Name
		Text    []string `xml:"text"`
	}
	if err := xml.Unmarshal(svg, &parsed); err != nil || !strings.Contains(strings.Join(parsed.Text, "\n"), "a & b") {
		t.Errorf("%v\n%s", err, svg)
	}
}

// TestInstance takes the emulator for an instance that it knows nothing about. It
// leaves no database there.
func TestInstance(t *testing.T) {
	bystander := emulatortest.Database(t, nil)
	instance, _, _ := strings.Cut(bystander, "/databases/")
	t.Setenv("SPANNER_EMULATOR_HOST", emulatortest.Spanner(t).GRPC)
	code, out, errText := call(t, "--tiny", "--json", "--only", "wire,latency,cold_start", "--instance", instance)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errText)
	}
	var report bench.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	for _, l := range report.Latency {
		if l.RoundTripMillis != 0 {
			t.Errorf("a simulated network in front of an instance: %+v", l)
		}
	}
	if len(report.Wire) < 12 || report.ColdStart != nil || !strings.Contains(report.Machine.Spanner, instance) {
		t.Errorf("%d figures on the wire, cold start %v, in front of %s", len(report.Wire), report.ColdStart, report.Machine.Spanner)
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

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--database", "projects/p/instances/i/databases/production"}, "only in databases that it has created"},
		{[]string{"--instance", "projects/p/instances/in/databases/production"}, "only in databases that it has created"},
		{[]string{"--only", "nothing"}, "it is none of"},
		{[]string{"--rows", "0"}, "--rows"},
		{[]string{"--kills", "-1"}, "--kills"},
		{[]string{"--kills", "0"}, "above 0"},
		{[]string{"--quik"}, "bench --help"},
		{[]string{"--docs", filepath.Join("testdata", "nowhere")}, "no such file"}, // before 15 minutes of measuring
		{[]string{"--quick", "--tiny"}, "quick"},
		{[]string{"argument"}, "argument"},
	} {
		if code, out, errText := call(t, test.args...); code != exitError || !strings.Contains(errText, test.want) || out != "" {
			t.Errorf("%v: exit code %d, %q, %q", test.args, code, out, errText)
		}
	}
}

func TestPageWithoutMarkers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", figuresBegin, figuresEnd + figuresBegin} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, docsFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readPage(dir); !errors.Is(err, errNoMarkers) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
