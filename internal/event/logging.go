package event

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
)

// LevelCritical is for what a person has to look at now: it is written as
// severity CRITICAL.
const LevelCritical = settle.LevelCritical

// NewLogger returns a logger that writes JSON lines to w in the form that Cloud
// Logging understands: the level as severity, one of DEBUG, INFO, WARNING, ERROR
// and CRITICAL, the text as message, the time as time. Lines below level are not
// written.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: cloudLogging}))
}

func cloudLogging(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.LevelKey:
		if level, ok := a.Value.Any().(slog.Level); ok {
			return slog.String("severity", severity(level))
		}
	case slog.MessageKey:
		a.Key = "message"
	}
	return a
}

// severity returns the highest of Cloud Logging's severities that level reaches.
func severity(level slog.Level) string {
	switch {
	case level >= LevelCritical:
		return "CRITICAL"
	case level >= slog.LevelError:
		return "ERROR"
	case level >= slog.LevelWarn:
		return "WARNING"
	case level >= slog.LevelInfo:
		return "INFO"
	}
	return "DEBUG"
}

// record gathers what the log line of a delivery is made of, so that the line
// can be written whatever way the delivery ends.
type record struct {
	began    time.Time
	delivery settle.Delivery
	result   settle.Result
	err      error
}

// log writes the line of a delivery that was handed over and did not panic.
func (rec *record) log(ctx context.Context, log *slog.Logger, now time.Time) {
	attrs := rec.attrs(now)
	if rec.err != nil {
		log.LogAttrs(ctx, slog.LevelError, "delivery not acknowledged", attrs...)
		return
	}
	log.LogAttrs(ctx, levelOf(rec.result.Outcome), "delivery acknowledged", attrs...)
}

// levelOf tells which outcomes somebody should look at.
func levelOf(o settle.Outcome) slog.Level {
	switch o {
	case settle.OutcomeApplied, settle.OutcomeDuplicate:
		return slog.LevelInfo
	case settle.OutcomeConflict, settle.OutcomeQuarantined:
		return slog.LevelWarn
	case settle.OutcomeUnknown:
	}
	return slog.LevelError
}

// maxAttrs is how many attributes a line has at most.
const maxAttrs = 16

// attrs returns what is known of the delivery. The message's data and attributes
// are not read here, nor is the refusal's detail.
func (rec *record) attrs(now time.Time) []slog.Attr {
	attrs := make([]slog.Attr, 0, maxAttrs)
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	d, r := &rec.delivery, &rec.result
	text("outcome", r.Outcome.String())
	text("settlement_id", r.SettlementID)
	text("payload_hash", string(r.PayloadHash))
	text("message_id", d.Message.ID)
	text("subscription", d.Message.Subscription)
	if d.Attempt > 0 {
		attrs = append(attrs, slog.Int("delivery_attempt", d.Attempt))
	}
	if !d.Message.PublishTime.IsZero() {
		attrs = append(attrs, slog.Int64("publish_lag_ms", now.Sub(d.Message.PublishTime).Milliseconds()))
	}
	if r.Outcome == settle.OutcomeDuplicate || r.Outcome == settle.OutcomeConflict {
		attrs = append(attrs, slog.Int64("replay_age_ms", now.Sub(r.AppliedAt).Milliseconds()))
	}
	if len(r.Fields) > 0 {
		attrs = append(attrs, slog.Any("conflict_fields", r.Fields))
	}
	if r.Refusal != nil {
		text("reason", string(r.Refusal.Reason))
		text("member", r.Refusal.Member)
	}
	attrs = append(attrs, slog.Float64("duration_ms", float64(now.Sub(rec.began).Microseconds())/1000))
	if rec.err != nil {
		text("error", rec.err.Error())
	}
	return attrs
}
