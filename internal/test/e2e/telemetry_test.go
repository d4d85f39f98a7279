package e2e_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltraces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// collector is a fake OpenTelemetry collector for OTLP over HTTP.
type collector struct {
	url string

	mu      sync.Mutex
	raw     [][]byte
	service string
	spans   []*traces.Span
	// points are the latest value of each sum and gauge, and the count of each histogram,
	// by name and attributes.
	points map[string]float64
	held   int           // number of waiting requests
	hold   chan struct{} // unless nil, requests wait until it is closed
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{points: map[string]float64{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	hold := c.hold
	if hold != nil {
		c.held++
	}
	c.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
		return
	}
	if err == nil {
		err = c.store(r.URL.Path, body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf") // the empty message means full success
}

func (c *collector) store(path string, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, body)
	switch path {
	case "/v1/traces":
		var request coltraces.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &request); err != nil {
			return err
		}
		for _, resource := range request.GetResourceSpans() {
			c.service = value(resource.GetResource().GetAttributes(), "service.name")
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	case "/v1/metrics":
		var request colmetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(body, &request); err != nil {
			return err
		}
		for _, resource := range request.GetResourceMetrics() {
			for _, scope := range resource.GetScopeMetrics() {
				for _, m := range scope.GetMetrics() {
					c.storeMetric(m)
				}
			}
		}
	}
	return nil
}

func (c *collector) storeMetric(m *metrics.Metric) {
	for _, p := range append(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()...) {
		c.points[named(m, p.GetAttributes())] = float64(p.GetAsInt()) + p.GetAsDouble()
	}
	for _, p := range m.GetHistogram().GetDataPoints() {
		c.points[named(m, p.GetAttributes())] = float64(p.GetCount())
	}
}

func named(m *metrics.Metric, attributes []*common.KeyValue) string {
	name := strings.TrimPrefix(m.GetName(), "settleonce.")
	for _, a := range attributes {
		name += " " + a.GetValue().GetStringValue()
	}
	return name
}

func value(attributes []*common.KeyValue, key string) string {
	for _, a := range attributes {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// span waits for the span with the name and settlement ID.
func (c *collector) span(t *testing.T, name, settlementID string) (found *traces.Span) {
	t.Helper()
	waitFor(t, 30*time.Second, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans {
			if s.GetName() == name && value(s.GetAttributes(), "settleonce.settlement_id") == settlementID {
				found = s
			}
		}
		return found != nil
	})
	return found
}

// stop terminates the function and waits for its end.
func (f *function) stop(t *testing.T) {
	t.Helper()
	if err := f.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 30*time.Second, func() bool {
		select {
		case <-f.exited:
			return true
		default:
			return false
		}
	})
	if f.signal() != syscall.SIGTERM {
		t.Errorf("the function ended with %v: %s", f.state, f.log)
	}
}

// Every outcome, and a bank instruction up to its final state.
func TestTelemetryReachesTheCollector(t *testing.T) {
	t.Parallel()
	const (
		eventTrace, eventSpan   = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
		publishTrace, publisher = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
		requestTrace            = "11111111111111111111111111111111"
	)
	w, c := newWorld(t, fakebank.Plan{}), newCollector(t)
	host := emulatortest.Spanner(t).GRPC
	start := func(target string) *function {
		return startFunction(t, append(w.db.env(host), "FUNCTION_TARGET="+target, "BANK_URL="+w.gate.URL, "BANK_TOKEN=token", "BANK_VISIBILITY_LAG=1s",
			"OTEL_EXPORTER_OTLP_ENDPOINT="+c.url, "OTEL_SERVICE_NAME=payouts", "GOOGLE_CLOUD_PROJECT=traces-of")...)
	}
	settler := start("SettlePayout")

	header := eventHeader.Clone()
	header.Set("Ce-Traceparent", "00-"+eventTrace+"-"+eventSpan+"-01")
	header.Set("Traceparent", "00-"+requestTrace+"-2222222222222222-01")
	header.Set("Function-Execution-Id", "execution-1")
	if a := settler.post(t.Context(), header, strings.NewReader(push("1001", bankPayout))); a.Outcome != "applied" {
		t.Fatalf("answer %+v", a)
	}
	settler.deliver(t.Context(), "1002", bankPayout)
	settler.deliver(t.Context(), "1003", strings.Replace(bankPayout, "4731", "4732", 1))
	settler.deliver(t.Context(), "1004", "not a payout")

	span := c.span(t, "settle payout", "stl-8472") // before the function ends: an answer starts the export
	if trace, parent := hex.EncodeToString(span.GetTraceId()), hex.EncodeToString(span.GetParentSpanId()); trace != eventTrace || parent != eventSpan {
		t.Errorf("the span's trace is %s and its parent %s, want the event's", trace, parent)
	}
	line := settler.line(t, `"message_id":"1001"`)
	wantLine := map[string]any{
		"logging.googleapis.com/trace":         "projects/traces-of/traces/" + eventTrace,
		"logging.googleapis.com/spanId":        hex.EncodeToString(span.GetSpanId()),
		"logging.googleapis.com/trace_sampled": true,
		"logging.googleapis.com/labels":        map[string]any{"execution_id": "execution-1"},
	}
	maps.DeleteFunc(line, func(key string, _ any) bool { return !strings.HasPrefix(key, "logging.googleapis.com/") })
	if diff := cmp.Diff(wantLine, line); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}

	// Without a trace in the event, the function continues the publisher's.
	published := strings.Replace(push("1005", plain), `"messageId"`, `"attributes":{"googclient_traceparent":"00-`+publishTrace+`-`+publisher+`-01"},"messageId"`, 1)
	settler.post(t.Context(), pushHeader, strings.NewReader(published))
	settler.stop(t)
	if s := c.span(t, "settle payout", "stl-8472"); hex.EncodeToString(s.GetTraceId()) != publishTrace {
		t.Errorf("the last span's trace is %x, want the publisher's", s.GetTraceId())
	}

	w.advanceUntilDue(t, "stl-8472")
	reconciler := start("ReconcileBank")
	if a := reconciler.post(t.Context(), http.Header{}, strings.NewReader(push("tick", event.Tick))); a.Status != http.StatusOK {
		t.Fatalf("answer %+v", a)
	}
	reconciler.stop(t)

	c.mu.Lock()
	defer c.mu.Unlock()
	want := map[string]float64{
		"settlements applied": 1, "settlements duplicate": 1, "settlements conflict": 2, "settlements quarantined": 1,
		"conflicts amount_cents": 1, "conflicts creditor_account": 1, "conflicts currency": 1, "conflicts reference": 1, "quarantined not_json": 1,
		"duration applied": 1, "duration duplicate": 1, "duration conflict": 2, "duration quarantined": 1,
		"replay_age duplicate": 1, "replay_age conflict": 2, "publish_lag": 5,
		"bank.attempts accepted send": 1, "bank.attempts confirmed status": 1,
		"bank.instructions uncertain": 1, "bank.instructions accepted": 1, "bank.instructions confirmed": 1,
		"bank.oldest_uncertain_age": 0, "bank.manual": 0,
	}
	if diff := cmp.Diff(want, c.points); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if c.service != "payouts" {
		t.Errorf("service %q, want the variable's", c.service)
	}
	names := map[string]bool{}
	for _, s := range c.spans {
		names[s.GetName()] = true
	}
	wantNames := []string{"bank send", "bank status", "reconcile bank instructions", "settle payout", "store change instruction", "store quarantine", "store settle"}
	if diff := cmp.Diff(wantNames, slices.Sorted(maps.Keys(names))); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	for _, secret := range []string{"cp-19", "claim 19-4431", "4731", "4732", "not a payout", "reserve-claims", "token"} {
		if bytes.Contains(bytes.Join(c.raw, nil), []byte(secret)) {
			t.Errorf("%q was exported", secret)
		}
	}
}

// The collector holds the export of the first delivery and receives no other.
func TestHangingCollectorDelaysNoAnswer(t *testing.T) {
	t.Parallel()
	db, c := newDatabase(t), newCollector(t)
	c.hold = make(chan struct{})
	defer close(c.hold)
	// The queue has room for two spans. A library that blocks on a full queue would delay the answers.
	settler := startFunction(t, append(db.env(emulatortest.Spanner(t).GRPC), "OTEL_EXPORTER_OTLP_ENDPOINT="+c.url,
		"OTEL_BSP_MAX_QUEUE_SIZE=2", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=1", "OTEL_EXPORTER_OTLP_TIMEOUT=3600000", "OTEL_BSP_EXPORT_TIMEOUT=3600000")...)
	settler.deliver(t.Context(), "1", plain)
	waitFor(t, 30*time.Second, func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.held > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // far below the export timeout of an hour
	defer cancel()
	for range 20 {
		if a := settler.deliver(ctx, "2", plain); a.Outcome != "duplicate" {
			t.Fatalf("answer %+v: %s", a, settler.log)
		}
	}
	settler.stop(t)
	if !strings.Contains(settler.log.all(), `"message":"telemetry export failed"`) {
		t.Errorf("no line about the lost telemetry: %s", settler.log)
	}
}

func TestNoExportWithoutEndpointOrWhenDisabled(t *testing.T) {
	t.Parallel()
	db, c := newDatabase(t), newCollector(t)
	for name, env := range map[string][]string{
		"no endpoint":  {"OTEL_EXPORTER_OTLP_ENDPOINT="},
		"disabled":     {"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_SDK_DISABLED=true"},
		"no exporters": {"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none"},
	} {
		settler := startFunction(t, append(db.env(emulatortest.Spanner(t).GRPC), env...)...)
		if a := settler.deliver(t.Context(), "1", plain); a.Status != http.StatusOK {
			t.Errorf("%s: answer %+v", name, a)
		}
		settler.stop(t)
		c.mu.Lock()
		if n := len(c.raw); n != 0 {
			t.Errorf("%s: %d exports", name, n)
		}
		c.mu.Unlock()
	}
}
