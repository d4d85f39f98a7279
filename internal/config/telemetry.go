package config

import (
	"net/url"
	"strings"
)

// The variables of OpenTelemetry that switch exports on and off. The library reads
// them too, and all its others.
const (
	EnvOTLPEndpoint        = "OTEL_EXPORTER_OTLP_ENDPOINT"
	EnvOTLPTracesEndpoint  = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	EnvOTLPMetricsEndpoint = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
	EnvOTLPProtocol        = "OTEL_EXPORTER_OTLP_PROTOCOL"
	EnvOTLPTracesProtocol  = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	EnvOTLPMetricsProtocol = "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"
	EnvTracesExporter      = "OTEL_TRACES_EXPORTER"
	EnvMetricsExporter     = "OTEL_METRICS_EXPORTER"
	EnvSDKDisabled         = "OTEL_SDK_DISABLED"
)

// Telemetry selects the exports by OTLP. The zero value exports nothing.
type Telemetry struct {
	// Traces and Metrics are exported if they have an endpoint, from
	// OTEL_EXPORTER_OTLP_ENDPOINT or their own variable. OTEL_TRACES_EXPORTER or
	// OTEL_METRICS_EXPORTER none, or OTEL_SDK_DISABLED true, override that.
	Traces, Metrics bool
	// Service and Revision are the platform's names of the program; Service defaults
	// to settleonce.
	Service, Revision string
}

func (e *environment) telemetry() Telemetry {
	t := Telemetry{
		Traces:  e.exported(EnvOTLPTracesEndpoint, EnvOTLPTracesProtocol, EnvTracesExporter),
		Metrics: e.exported(EnvOTLPMetricsEndpoint, EnvOTLPMetricsProtocol, EnvMetricsExporter),
		Service: "settleonce",
	}
	if name := e.service(); name != "" {
		t.Service = name
	}
	t.Revision, _ = e.get(envRevision)
	return t
}

// exported reports whether one signal is exported, by its own variables and those for
// both signals.
func (e *environment) exported(endpoint, protocol, exporter string) bool {
	name, value := e.firstOf(endpoint, EnvOTLPEndpoint)
	if value == "" || e.switchedOff(exporter) {
		return false
	}
	// The fault does not quote the URL, which may contain a key.
	if u, err := url.Parse(value); err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		e.fault("%s is not a URL such as http://localhost:4318, without user and password", name)
	}
	if name, value := e.firstOf(protocol, EnvOTLPProtocol); value != "" && value != "http/protobuf" {
		e.fault("%s is %q; expected http/protobuf", name, value)
	}
	return true
}

func (e *environment) firstOf(names ...string) (name, value string) {
	for _, name := range names {
		if value, set := e.get(name); set {
			return name, value
		}
	}
	return "", ""
}

func (e *environment) switchedOff(exporter string) bool {
	if value, _ := e.get(EnvSDKDisabled); strings.EqualFold(value, "true") {
		return true
	}
	switch value, _ := e.get(exporter); value {
	case "none":
		return true
	case "", "otlp":
	default:
		e.fault("%s is %q; expected otlp or none", exporter, value)
	}
	return false
}
