package event

import (
	"context"
	"io"
	"log/slog"
	"math"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"go.opentelemetry.io/otel/trace"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// LevelCritical is for what a person has to look at now: it is written as
// severity CRITICAL.
const LevelCritical = transfer.LevelCritical

// severities are Cloud Logging's, the highest first, with the level that each begins at.
var severities = [...]struct {
	from slog.Level
	name string
}{
	{LevelCritical, "CRITICAL"}, {slog.LevelError, "ERROR"}, {slog.LevelWarn, "WARNING"}, {slog.LevelInfo, "INFO"}, {math.MinInt, "DEBUG"},
}

// NewLogger returns a logger that writes JSON lines to w in the form that Cloud
// Logging understands: the level as severity, one of DEBUG, INFO, WARNING, ERROR
// and CRITICAL, the text as message, the time as time; and from the context the
// trace, the span and, as a label, the execution ID. Lines below level are not
// written.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger { return NewLoggerIn("", w, level) }

// NewLoggerIn is [NewLogger] for a program whose traces belong to a project. Cloud
// Logging leads from a line to its trace only where the line names the project;
// without one the bare trace ID is written.
func NewLoggerIn(project string, w io.Writer, level slog.Level) *slog.Logger {
	traces := ""
	if project != "" {
		traces = "projects/" + project + "/traces/"
	}
	lines := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) > 0 {
			return a
		}
		switch a.Key {
		case slog.LevelKey:
			if level, ok := a.Value.Any().(slog.Level); ok {
				// The highest of Cloud Logging's severities that the level reaches.
				for _, s := range severities {
					if level >= s.from {
						return slog.String("severity", s.name)
					}
				}
			}
		case slog.MessageKey:
			a.Key = "message"
		}
		return a
	}})
	return slog.New(contextHandler{Handler: lines, traces: traces})
}

// contextHandler adds what Cloud Logging wants to know of the context.
type contextHandler struct {
	slog.Handler
	traces string // what stands before a trace ID
}

// Handle implements [slog.Handler].
func (h contextHandler) Handle(ctx context.Context, line slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		line.AddAttrs(
			slog.String("logging.googleapis.com/trace", h.traces+span.TraceID().String()), //nolint:sloglint // the name is given
			slog.String("logging.googleapis.com/spanId", span.SpanID().String()),          //nolint:sloglint // the name is given
			slog.Bool("logging.googleapis.com/trace_sampled", span.IsSampled()),           //nolint:sloglint // the name is given
		)
	}
	if id := funcframework.ExecutionIDFromContext(ctx); id != "" {
		line.AddAttrs(slog.Any("logging.googleapis.com/labels", map[string]string{"execution_id": id})) //nolint:sloglint // likewise
	}
	return h.Handler.Handle(ctx, line) //nolint:wrapcheck // a handler passes on
}

// WithAttrs implements [slog.Handler].
func (h contextHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return contextHandler{h.Handler.WithAttrs(attrs), h.traces}
}

// WithGroup implements [slog.Handler]. What is known of the context goes into the
// group then, where Cloud Logging does not look; no logger here has groups.
func (h contextHandler) WithGroup(name string) slog.Handler {
	return contextHandler{h.Handler.WithGroup(name), h.traces}
}
