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

func TestLoggerKeepsItsLevel(t *testing.T) {
	t.Parallel()
	log := new(lines)
	NewLogger(log, slog.LevelWarn).InfoContext(t.Context(), "text")
	if log.String() != "" {
		t.Errorf("log %s, want none", log)
	}
}
