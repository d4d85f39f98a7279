package event

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
)

// Deliverer settles deliveries; [*settle.Service] is one. A nil error means that the
// result is committed and the message can be acknowledged. It is safe for concurrent
// use.
type Deliverer interface {
	Deliver(ctx context.Context, d settle.Delivery) (settle.Result, error)
}

// errNotFinal reports a deliverer that breaks its contract: neither an error nor an
// outcome. To acknowledge would lose the message.
var errNotFinal = errors.New("deliverer gave neither an outcome nor an error")

// Settle returns the work of SettlePayout: it settles the delivery and answers 200
// with the stored outcome, or an error status.
func Settle(deliverer Deliverer) Work {
	return func(c *call) reply {
		var result settle.Result
		err := errNotFinal // reported to the observer after a panic
		if c.Observer != nil {
			var ended func(settle.Result, error)
			c.ctx, ended = c.Observer.Delivery(c.ctx, c.delivery)
			defer func() { ended(result, err) }()
		}
		result, err = deliverer.Deliver(c.ctx, c.delivery)
		if err == nil && !result.Outcome.Final() {
			err = errNotFinal
		}
		if err != nil {
			// A database's own error for a deadline need not wrap the context's.
			if ctxErr := c.ctx.Err(); ctxErr != nil && !errors.Is(err, ctxErr) {
				err = fmt.Errorf("%w (%w)", err, ctxErr)
			}
			result.Outcome = settle.OutcomeUnknown
			c.logDelivery(slog.LevelError, "delivery not acknowledged", result, err)
			return deliveryFailed(result, err)
		}
		level := slog.LevelInfo
		if result.Outcome == settle.OutcomeConflict || result.Outcome == settle.OutcomeQuarantined {
			level = slog.LevelWarn
		}
		c.logDelivery(level, "delivery acknowledged", result, nil)
		result.AppliedAt = result.AppliedAt.UTC()
		return reply{http.StatusOK, result}
	}
}

// Misconfigured returns the work of a function whose configuration is wrong: it
// fails every request, so that messages stay in the subscription until the
// configuration is right.
func Misconfigured(err error) Work {
	return func(c *call) reply {
		c.logDelivery(slog.LevelError, "configuration rejected", settle.Result{}, err)
		return failed(http.StatusInternalServerError, textOther)
	}
}

// logDelivery writes the line of a delivery. The result logs itself; the message's
// data and attributes and the refusal's detail are never logged.
func (c *call) logDelivery(level slog.Level, message string, result settle.Result, err error) {
	now := c.Now()
	attrs := append(c.attrs(now), slog.Any("", result)) // an empty key adds the result's own attributes
	if result.Outcome == settle.OutcomeDuplicate || result.Outcome == settle.OutcomeConflict {
		attrs = append(attrs, slog.Int64("replay_age_ms", now.Sub(result.AppliedAt).Milliseconds()))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	c.Log.LogAttrs(c.ctx, level, message, attrs...)
}

// attrs returns the logged attributes of the delivery itself.
func (c *call) attrs(now time.Time) []slog.Attr {
	m := &c.delivery.Message
	attrs := append(make([]slog.Attr, 0, 8), slog.Float64("duration_ms", float64(now.Sub(c.began).Microseconds())/1000))
	if m.ID != "" {
		attrs = append(attrs, slog.String("message_id", m.ID))
	}
	if m.Subscription != "" {
		attrs = append(attrs, slog.String("subscription", m.Subscription))
	}
	if c.delivery.Attempt > 0 {
		attrs = append(attrs, slog.Int("delivery_attempt", c.delivery.Attempt))
	}
	if !m.PublishTime.IsZero() {
		attrs = append(attrs, slog.Int64("publish_lag_ms", now.Sub(m.PublishTime).Milliseconds()))
	}
	return attrs
}
