package config

import (
	"strings"
	"testing"
)

func TestExportedSignals(t *testing.T) {
	t.Parallel()
	const url = "http://localhost:4318"
	for name, tt := range map[string]struct {
		vars            map[string]string
		traces, metrics bool
	}{
		"nothing":          {nil, false, false},
		"both":             {map[string]string{EnvOTLPEndpoint: url}, true, true},
		"traces alone":     {map[string]string{EnvOTLPTracesEndpoint: url}, true, false},
		"metrics alone":    {map[string]string{EnvOTLPMetricsEndpoint: url, EnvOTLPMetricsProtocol: "http/protobuf"}, false, true},
		"no traces":        {map[string]string{EnvOTLPEndpoint: url, EnvTracesExporter: "none"}, false, true},
		"no metrics":       {map[string]string{EnvOTLPEndpoint: url, EnvMetricsExporter: "none", EnvTracesExporter: "otlp"}, true, false},
		"disabled":         {map[string]string{EnvOTLPEndpoint: url, EnvSDKDisabled: "True"}, false, false},
		"disabled, faulty": {map[string]string{EnvOTLPEndpoint: "x", EnvSDKDisabled: "true"}, false, false},
	} {
		got, err := fromMap(tt.vars)
		if err != nil || got.Telemetry.Traces != tt.traces || got.Telemetry.Metrics != tt.metrics {
			t.Errorf("%s: %+v, %v; want traces %t, metrics %t", name, got.Telemetry, err, tt.traces, tt.metrics)
		}
	}
}

func TestTelemetryFaults(t *testing.T) {
	t.Parallel()
	for name, vars := range map[string]map[string]string{
		EnvOTLPEndpoint:        {EnvOTLPEndpoint: "localhost:4318"},
		EnvOTLPTracesEndpoint:  {EnvOTLPTracesEndpoint: "https://" + "me:secret-key" + "@collector"},
		EnvOTLPProtocol:        {EnvOTLPEndpoint: "http://c", EnvOTLPProtocol: "grpc"},
		EnvOTLPMetricsProtocol: {EnvOTLPEndpoint: "http://c", EnvOTLPMetricsProtocol: "http/json"},
		EnvTracesExporter:      {EnvOTLPEndpoint: "http://c", EnvTracesExporter: "console"},
	} {
		_, err := fromMap(vars)
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret-key") {
			t.Errorf("%v: error %v, want one that names %s", vars, err, name)
		}
	}
}

func TestTraceProject(t *testing.T) {
	t.Parallel()
	for want, vars := range map[string]map[string]string{
		"p": {}, "other": {EnvProject: "other"},
	} {
		if got, err := fromMap(vars); err != nil || got.Project != want {
			t.Errorf("%v: %q, %v; want %q", vars, got.Project, err, want)
		}
	}
}

func TestServiceFromPlatform(t *testing.T) {
	t.Parallel()
	got, err := fromMap(map[string]string{"K_SERVICE": "settle-payout", "K_REVISION": "settle-payout-00007-xyz"})
	if err != nil || got.Telemetry.Service != "settle-payout" || got.Telemetry.Revision != "settle-payout-00007-xyz" {
		t.Errorf("%+v, %v", got.Telemetry, err)
	}
}
