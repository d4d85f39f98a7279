// Package monitoring_test checks the files of this directory against the functions' log
// lines and against Google's API.
package monitoring_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/logging/apiv2/loggingpb"
	"cloud.google.com/go/monitoring/apiv3/v2/monitoringpb"
	"cloud.google.com/go/monitoring/dashboard/apiv1/dashboardpb"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	entries := allLines(t, slog.LevelDebug)
	metrics := readMetrics(t)
	all := func(holds func(name string, payload map[string]any) bool) []string {
		var names []string
		for name, e := range entries {
			if holds(name, e["jsonPayload"].(map[string]any)) {
				names = append(names, name)
			}
		}
		return names
	}
	delivered := all(func(name string, _ map[string]any) bool {
		return strings.HasSuffix(name, ": delivery acknowledged") || strings.HasSuffix(name, ": delivery not acknowledged") ||
			name == "misconfigured: configuration rejected"
	})
	attempts := all(func(name string, _ map[string]any) bool { return strings.HasSuffix(name, ": bank exchange completed") })
	reconciled := all(func(name string, _ map[string]any) bool { return strings.HasSuffix(name, ": reconciler run completed") })
	near := []string{
		"duplicate after 80 days: delivery acknowledged", "conflict after 80 days: delivery acknowledged", "expired: delivery acknowledged",
	}
	conflicts := []string{"conflict: delivery acknowledged", "conflict after 80 days: delivery acknowledged"}
	contradictions := append(
		all(func(name string, _ map[string]any) bool {
			return strings.HasPrefix(name, "sent, manual ") && strings.HasSuffix(name, "exchange completed")
		}),
		"confirmed, then rejected: bank exchange completed", "rejected, then confirmed: bank exchange completed", "asked, two transfers: bank exchange completed")
	entered := append( // all but uncertain
		all(func(name string, _ map[string]any) bool {
			return strings.HasSuffix(name, "exchange completed") && (strings.HasPrefix(name, "sent, accepted ") || strings.HasPrefix(name, "sent, rejected "))
		}),
		append(contradictions, "asked, pending: bank exchange completed", "asked, confirmed: bank exchange completed", "asked, returned: bank exchange completed",
			"asked, not found after the life of the key: bank exchange completed", "asked, rejected: bank exchange completed", "asked, attention: bank exchange completed")...)

	want := map[string][]string{
		"settleonce_settlements": delivered,
		"settleonce_duration":    delivered,
		"settleonce_publish_lag": delivered,
		"settleonce_conflicts":   conflicts,
		"settleonce_quarantined": {"quarantined: delivery acknowledged"},
		"settleonce_replay_age": append(append(near, conflicts[0]), "duplicate: delivery acknowledged", "known conflict: delivery acknowledged",
			"duplicate after 79 days: delivery acknowledged", "tampered: delivery acknowledged"),
		"settleonce_replays_near_horizon":      near,
		"settleonce_bank_attempts":             attempts,
		"settleonce_bank_instructions":         entered,
		"settleonce_bank_contradictions":       contradictions,
		"settleonce_bank_oldest_uncertain_age": reconciled,
		"settleonce_bank_manual":               reconciled,
		"settleonce_reconciler_runs":           reconciled,
		"settleonce_faults": {
			"panic: request panicked", "panic in a step: bank step panicked",
			"panic in a run: request panicked", "payout there: message misrouted",
			"tampered: delivery acknowledged",
		},
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(metrics))); diff != "" {
		t.Fatalf("metrics (-want +got):\n%s", diff)
	}
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelError, event.LevelCritical + 1} {
		logged := allLines(t, level)
		for name, m := range metrics {
			f, err := parseFilter(m.GetFilter())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var got []string
			for line, e := range logged {
				matches, err := f.matches(e)
				if err != nil {
					t.Errorf("%s on %s: %v", name, line, err)
				}
				if matches {
					got = append(got, line)
					checkExtractors(t, name, m, line, e)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(slices.Sorted(slices.Values(want[name])), got); diff != "" || len(got) == 0 {
				t.Errorf("LOG_LEVEL %v: %s matches (-want +got):\n%s", level, name, diff)
			}
		}
	}
}

// TestEveryRunCountsManualInstructions: the alert stays as long as one is manual, even if
// none is due and settlectl moved it there.
func TestEveryRunCountsManualInstructions(t *testing.T) {
	t.Parallel()
	metric := readMetrics(t)["settleonce_bank_manual"]
	filter, err := parseFilter(metric.GetFilter())
	if err != nil {
		t.Fatal(err)
	}
	f := newFunctions(t, slog.LevelDebug)
	runs := 0
	waiting := func(want float64) {
		t.Helper()
		runs++
		name := fmt.Sprintf("run %d", runs)
		f.reconcile(name, f.store, f.stepper(reconciler, f.store))
		line := f.entries[name+": reconciler run completed"]
		if matches, err := filter.matches(line); err != nil || !matches {
			t.Fatalf("%s is not counted: %v, %v", name, line, err)
		}
		if got := field(line, extractor.FindStringSubmatch(metric.GetValueExtractor())[1]); got != want {
			t.Errorf("%s: %v manual, want %v", name, got, want)
		}
	}
	waiting(0)
	f.bank.send = transfer.SendManual
	elsewhere := f.service(f.stepper(settler, f.store), f.store) // without a log line, as a step of settlectl
	elsewhere.Banking.Log = slog.New(slog.DiscardHandler)
	for _, id := range []string{"stl-1", "stl-2"} {
		if _, err := elsewhere.Deliver(t.Context(), settle.Delivery{Message: settle.Message{ID: id, Data: []byte(payoutJSON(id, 1, true))}}); err != nil {
			t.Fatal(err)
		}
	}
	waiting(2)
	f.now = f.now.Add(30 * 24 * time.Hour)
	waiting(2)
}

var extractor = regexp.MustCompile(`^EXTRACT\(([\w.]+)\)$`)

// checkExtractors checks that the value is a number and each label a text.
func checkExtractors(t *testing.T, name string, m *loggingpb.LogMetric, line string, e map[string]any) {
	t.Helper()
	extract := func(expression string) any {
		found := extractor.FindStringSubmatch(expression)
		if found == nil {
			t.Errorf("%s: extractor %s", name, expression)
			return nil
		}
		return field(e, found[1])
	}
	if m.GetValueExtractor() != "" {
		if v, is := extract(m.GetValueExtractor()).(float64); !is || v < 0 {
			t.Errorf("%s of %s: value %v, want a number", name, line, v)
		}
	}
	labels := map[string]bool{}
	for _, l := range m.GetMetricDescriptor().GetLabels() {
		labels[l.GetKey()] = true
	}
	for label, expression := range m.GetLabelExtractors() {
		if v, is := extract(expression).(string); !is || v == "" || !labels[label] {
			t.Errorf("%s of %s: label %s %q, declared %t", name, line, label, v, labels[label])
		}
	}
	if len(labels) != len(m.GetLabelExtractors()) {
		t.Errorf("%s: labels %v, extractors %v", name, labels, m.GetLabelExtractors())
	}
}

// TestFiltersSeeEveryLogMessage: a message in the source that allLines does not log could
// match a filter without a test.
func TestFiltersSeeEveryLogMessage(t *testing.T) {
	t.Parallel()
	// These are about an instance and not about a request; no metric counts them.
	elsewhere := []string{"instance start rejected", "Spanner emulator selected", "instance drain timed out", "telemetry export failed"}
	want := map[string]bool{}
	for _, text := range elsewhere {
		want[text] = true
	}
	for _, e := range allLines(t, slog.LevelDebug) {
		want[e["jsonPayload"].(map[string]any)["message"].(string)] = true
	}
	got := map[string]bool{}
	files := []string{"../../function.go"}
	for _, dir := range []string{"bank", "config", "event", "settle", "settle/transfer", "spannerstore", "telemetry"} {
		found, err := filepath.Glob("../../internal/" + dir + "/*.go")
		if err != nil || len(found) == 0 {
			t.Fatal(dir, err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			messages(t, name, got)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("messages (-logged here +in the source):\n%s", diff)
	}
}

// messages collects the messages that a file logs, which the linter keeps constant.
func messages(t *testing.T, name string, into map[string]bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		method, is := call.Fun.(*ast.SelectorExpr)
		if !is {
			return true
		}
		at, is := map[string]int{"LogAttrs": 2, "log": 2, "Error": 0}[method.Sel.Name]
		if !is || len(call.Args) <= at {
			return true
		}
		if text, is := call.Args[at].(*ast.BasicLit); is {
			message, err := strconv.Unquote(text.Value)
			if err != nil {
				t.Fatal(err)
			}
			into[message] = true
		}
		return true
	})
}

func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	metrics := readMetrics(t)
	files, err := filepath.Glob("alerts/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	watched := map[string]bool{}
	for _, name := range files {
		var policy monitoringpb.AlertPolicy
		readYAML(t, name, &policy)
		page := regexp.MustCompile(`Runbook: deploy/RUNBOOK\.md#(\S+)$`).FindStringSubmatch(policy.GetDocumentation().GetContent())
		if page == nil || !slices.Contains(anchors(t), page[1]) {
			t.Errorf("%s: no page in the runbook: %v", name, page)
		}
		if policy.GetSeverity() == monitoringpb.AlertPolicy_SEVERITY_UNSPECIFIED || len(policy.GetConditions()) == 0 {
			t.Errorf("%s: severity %v, %d conditions", name, policy.GetSeverity(), len(policy.GetConditions()))
		}
		for _, c := range policy.GetConditions() {
			text := c.GetConditionThreshold().GetFilter() + c.GetConditionAbsent().GetFilter()
			checkMonitoringFilter(t, name, text, metrics, watched)
			threshold := c.GetConditionThreshold()
			if threshold.GetEvaluationMissingData() != 0 && threshold.GetDuration().GetSeconds() < 60 {
				t.Errorf("%s: evaluationMissingData needs a duration of at least a minute", name)
			}
		}
	}
	for _, name := range []string{
		"settleonce_bank_contradictions", "settleonce_bank_oldest_uncertain_age", "settleonce_bank_manual", "settleonce_conflicts", "settleonce_quarantined", "settleonce_publish_lag",
		"settleonce_replays_near_horizon", "settleonce_reconciler_runs", "settleonce_bank_instructions", "settleonce_faults",
		"pubsub.googleapis.com/subscription/num_undelivered_messages", "pubsub.googleapis.com/subscription/oldest_unacked_message_age",
	} {
		if !watched[name] {
			t.Errorf("no alert watches %s", name)
		}
	}

	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard dashboardpb.Dashboard
	if err := protojson.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, tile := range dashboard.GetMosaicLayout().GetTiles() {
		for _, set := range tile.GetWidget().GetXyChart().GetDataSets() {
			query := set.GetTimeSeriesQuery().GetTimeSeriesFilter()
			checked := checkMonitoringFilter(t, tile.GetWidget().GetTitle(), query.GetFilter(), metrics, shown)
			for _, group := range query.GetAggregation().GetGroupByFields() {
				if metrics[checked].GetLabelExtractors()[strings.TrimPrefix(group, "metric.label.")] == "" {
					t.Errorf("%s: %s has no label %s", tile.GetWidget().GetTitle(), checked, group)
				}
			}
		}
	}
	for name := range metrics {
		if !shown[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}

// checkMonitoringFilter checks that the metric of a time series filter exists and has
// the labels. It returns the metric's name.
func checkMonitoringFilter(t *testing.T, where, text string, metrics map[string]*loggingpb.LogMetric, found map[string]bool) (name string) {
	t.Helper()
	f, err := parseFilter(text)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	for _, c := range f.comparisons() {
		label, isLabel := strings.CutPrefix(c.field, "metric.label.")
		switch {
		case c.field == "metric.type":
			var ours bool
			if name, ours = strings.CutPrefix(c.value, "logging.googleapis.com/user/"); ours && metrics[name] == nil {
				t.Errorf("%s: no metric %s", where, name)
			}
			found[name] = true
		case isLabel && metrics[name].GetLabelExtractors()[label] == "":
			t.Errorf("%s: %s has no label %s", where, name, label)
		}
	}
	if name == "" {
		t.Errorf("%s: no metric in %s", where, text)
	}
	return name
}

func TestHorizonIsBelowTheRetention(t *testing.T) {
	t.Parallel()
	ddl, err := os.ReadFile("../../schema/0001_settlements.sql")
	if err != nil {
		t.Fatal(err)
	}
	retention := regexp.MustCompile(`OLDER_THAN\(applied_at, INTERVAL (\d+) DAY\)`).FindSubmatch(ddl)
	limit := regexp.MustCompile(`replay_age_ms>=(\d+)`).FindStringSubmatch(readMetrics(t)["settleonce_replays_near_horizon"].GetFilter())
	if retention == nil || limit == nil {
		t.Fatal(retention, limit)
	}
	days, _ := strconv.Atoi(string(retention[1]))
	ms, _ := strconv.Atoi(limit[1])
	if got := ms / 86_400_000; got*10 != days*8 {
		t.Errorf("the limit is %d days, want 0.8 of the receipt retention of %d days", got, days)
	}
}

func TestFilterSubset(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", `a="b" c="d"`, `a="b" AND`, `(a="b"`, `a="b")`, `NOT a="b"`, `a:"b"`, `a=~"b"`, `a="b" AND c="d" OR e="f"`, `-a="b"`, `a>1`, `"text"`,
	} {
		if f, err := parseFilter(text); err == nil {
			t.Errorf("%s is parsed as %+v", text, f)
		}
	}
	e := map[string]any{"severity": "ERROR", "j": map[string]any{"n": 2.0, "s": "x", "b": true}}
	for text, want := range map[string]bool{
		`severity>=ERROR`: true, `severity>=CRITICAL`: false, `severity=ERROR`: true, `j.n>=2`: true, `j.n>=3`: false, `j.s!="x"`: false,
		`j.s="x" AND (j.n=3 OR j.b=true)`: true, `j.none="x"`: false, `j.none>=1`: false,
	} {
		f, err := parseFilter(text)
		if err != nil {
			t.Fatal(text, err)
		}
		if got, err := f.matches(e); err != nil || got != want {
			t.Errorf("%s: %t, %v; want %t", text, got, err, want)
		}
	}
	for _, text := range []string{`j.none!="x"`, `j.n="2"`, `j.s=x`, `j.s>="x"`, `severity>=LOUD`, `j="x"`} {
		f, err := parseFilter(text)
		if err != nil {
			t.Fatal(text, err)
		}
		if got, err := f.matches(e); err == nil {
			t.Errorf("%s: %t, want an error", text, got)
		}
	}
}

// filled replaces the placeholders for settings.
func filled(t *testing.T, text string) string {
	t.Helper()
	text = strings.NewReplacer("${SETTLE_FUNCTION}", settler, "${RECONCILE_FUNCTION}", reconciler,
		"${SETTLE_SUBSCRIPTION}", "eventarc-settle", "${DEAD_LETTER_SUBSCRIPTION}", "dead").Replace(text)
	if strings.Contains(text, "${") {
		t.Errorf("another placeholder in %s", text)
	}
	return text
}

func readYAML(t *testing.T, name string, into proto.Message) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := yaml.Unmarshal([]byte(filled(t, string(text))), &members); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	asJSON, err := json.Marshal(members)
	if err == nil {
		err = protojson.Unmarshal(asJSON, into) // rejects unknown fields
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func readMetrics(t *testing.T) map[string]*loggingpb.LogMetric {
	t.Helper()
	files, err := filepath.Glob("metrics/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[string]*loggingpb.LogMetric{}
	for _, name := range files {
		m := new(loggingpb.LogMetric)
		readYAML(t, name, m)
		metrics[strings.TrimSuffix(filepath.Base(name), ".yaml")] = m
	}
	return metrics
}

// anchors returns the anchors of the runbook's headings.
func anchors(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		name := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}
