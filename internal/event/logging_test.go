package event

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoggerWritesCloudLoggingFields(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]string{
		slog.LevelDebug: "DEBUG", slog.LevelInfo: "INFO", slog.LevelWarn: "WARNING",
		slog.LevelError: "ERROR", LevelCritical: "CRITICAL", slog.LevelInfo + 1: "INFO",
	} {
		log := new(lines)
		NewLogger(log, slog.LevelDebug).LogAttrs(t.Context(), level, "text",
			slog.String("level", "mine"), slog.Group("group", slog.String("msg", "mine")))
		line := map[string]any{"severity": want, "message": "text", "level": "mine", "group": map[string]any{"msg": "mine"}}
		if diff := cmp.Diff(line, log.only(t)); diff != "" {
			t.Errorf("line at %v (-want +got):\n%s", level, diff)
		}
	}
}

// Lines that a metric counts are written at every level. A test of deploy/monitoring
// compares them with the filters.
func TestLoggerKeepsItsLevel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		logger, line slog.Level
		message      string
		written      bool
	}{
		{slog.LevelDebug, slog.LevelDebug, "text", true},
		{slog.LevelInfo, slog.LevelDebug, "text", false},
		{slog.LevelInfo, slog.LevelDebug, "delivery acknowledged", false},
		{slog.LevelWarn, slog.LevelInfo, "text", false},
		{slog.LevelWarn, slog.LevelWarn, "text", true},
		{slog.LevelError, slog.LevelWarn, "text", false},
		{slog.LevelError, slog.LevelInfo, "delivery acknowledged", true},
		{slog.LevelError, slog.LevelWarn, "bank exchange completed", true},
		{LevelCritical + 1, LevelCritical, "text", true},
	} {
		log := new(lines)
		NewLogger(log, tt.logger).With("a", "b").LogAttrs(t.Context(), tt.line, tt.message) //nolint:sloglint // the messages of the table
		if written := log.String() != ""; written != tt.written {
			t.Errorf("%v line %q at level %v: log %q", tt.line, tt.message, tt.logger, log)
		}
	}
}
