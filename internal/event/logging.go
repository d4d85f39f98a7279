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

// LevelCritical is the level of lines that need a person at once. Its severity is
// CRITICAL.
const LevelCritical = transfer.LevelCritical

// severities are Cloud Logging's, the highest first, each with its lowest level.
var severities = [...]struct {
	from slog.Level
	name string
}{
	{LevelCritical, "CRITICAL"}, {slog.LevelError, "ERROR"}, {slog.LevelWarn, "WARNING"}, {slog.LevelInfo, "INFO"}, {math.MinInt, "DEBUG"},
}

// NewLogger returns a logger that writes JSON lines to w in Cloud Logging's structured
// format: severity (DEBUG, INFO, WARNING, ERROR or CRITICAL), message and time, and from
// the context the trace, the span and, as a label, the execution ID. It suppresses lines
// below level, but none that a metric or an alert counts.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger { return NewLoggerIn("", w, level) }

// NewLoggerIn is [NewLogger] with the traces' project. Cloud Logging links a line to its
// trace only by a name with the project; with an empty project the line has the bare
// trace ID.
func NewLoggerIn(project string, w io.Writer, level slog.Level) *slog.Logger {
	traces := ""
	if project != "" {
		traces = "projects/" + project + "/traces/"
	}
	lines := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: min(level, slog.LevelInfo), ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
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
	return slog.New(contextHandler{lines, traces, level})
}

// counted are the messages that the metrics of deploy/monitoring count, beside all lines of
// [LevelCritical].
var counted = map[string]bool{
	"delivery acknowledged": true, "delivery not acknowledged": true, "configuration rejected": true,
	"bank exchange completed": true, "reconciler run completed": true,
}

// contextHandler adds the context's trace and execution ID to each line.
type contextHandler struct {
	slog.Handler
	traces string     // prefix of trace IDs
	level  slog.Level // lowest level of lines that are not counted
}

// Handle implements [slog.Handler].
func (h contextHandler) Handle(ctx context.Context, line slog.Record) error {
	if line.Level < min(h.level, LevelCritical) && !counted[line.Message] {
		return nil
	}
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
	return h.Handler.Handle(ctx, line) //nolint:wrapcheck // slog handles it
}

// WithAttrs implements [slog.Handler].
func (h contextHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return contextHandler{h.Handler.WithAttrs(attrs), h.traces, h.level}
}

// WithGroup implements [slog.Handler]. In a group Cloud Logging would not find the
// trace; no logger of this program has groups.
func (h contextHandler) WithGroup(name string) slog.Handler {
	return contextHandler{h.Handler.WithGroup(name), h.traces, h.level}
}
