package event

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// MaxBodyBytes is the largest accepted request body. A Pub/Sub message has at most
// 10,000,000 bytes, 13.4 million in base64 with its envelope.
const MaxBodyBytes = 16 << 20

// Time limits on the connection. The server of the functions framework sets none, so a
// stalled caller would occupy one of the instance's concurrent requests.
const (
	// BodyTimeout bounds the reading of a request's body, unless the request's budget ends
	// earlier. Pub/Sub sends the body at once.
	BodyTimeout = 10 * time.Second
	// answerTimeout bounds the writing of the answer. Before it writes, net/http drains the
	// unread rest of a body.
	answerTimeout = BodyTimeout + 10*time.Second
)

// Handler answers the requests of one function; the package comment lists the answers.
// Its fields are set once, before the first request; it is safe for concurrent use.
type Handler struct {
	// Work processes one delivery. Required; [Settle], [Reconcile] and
	// [Misconfigured] make one.
	Work Work
	// Log gets one line a request. Required; [NewLogger] makes one.
	Log *slog.Logger
	// Now returns the current time. Required.
	Now func() time.Time
	// Timeout bounds one request with the reading of its body. The request's own deadline
	// can end earlier. It has to be below the subscription's ack deadline. Zero means no
	// limit.
	Timeout time.Duration
	// Drainer rejects requests while the instance shuts down. Nil means never.
	Drainer *Drainer
	// Observer measures each delivery and run. Nil means no measurement.
	Observer Observer
}

// Work processes one delivery and returns the answer. It logs the result.
type Work func(c *call) reply

// call is one accepted request.
type call struct {
	*Handler

	// ctx carries the deadline and the trace of the log line.
	ctx      context.Context
	began    time.Time
	delivery settle.Delivery
}

// ServeHTTP answers one request. It recovers every panic of the work.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := h.Now()
	ctx := r.Context()
	if parent := r.Header.Get(traceparent); parent != "" {
		ctx = withTrace(ctx, parent)
	}
	if h.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.Timeout)
		defer cancel()
	}
	// Rejected requests need the limit too: net/http drains their bodies before it answers.
	limit := began.Add(BodyTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(limit) {
		limit = deadline
	}
	_ = http.NewResponseController(w).SetReadDeadline(limit) // fails in tests without a connection
	leave, open := h.Drainer.Enter()
	defer leave() // after the answer: Drain waits for it
	if !open {
		h.reject(ctx, rejection{slog.LevelInfo, http.StatusServiceUnavailable, textDraining, nil}).write(w, began)
		return
	}
	h.serve(ctx, w, r, began).write(w, h.Now())
	if h.Observer != nil {
		h.Observer.Answered()
	}
}

// serve reads the request and does the work. It uses w for the limits on the body
// only.
func (h *Handler) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, began time.Time) (answer reply) {
	c := &call{Handler: h, ctx: ctx, began: began}
	defer func() {
		if p := recover(); p != nil {
			answer = c.panicked(p)
		}
	}()
	switch {
	case r.Method != http.MethodPost:
		return h.reject(ctx, rejection{slog.LevelWarn, http.StatusMethodNotAllowed, textMethod, nil})
	case r.Context().Err() != nil:
		return h.reject(ctx, rejection{slog.LevelInfo, http.StatusServiceUnavailable, textGone, r.Context().Err()})
	case r.ContentLength > MaxBodyBytes:
		return h.reject(ctx, rejection{slog.LevelError, http.StatusRequestEntityTooLarge, textBodySize, nil})
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	if err != nil {
		return h.reject(ctx, unreadBody(err))
	}
	// The read deadline would otherwise end the connection during the delivery.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if c.delivery, err = Read(ctx, r.Header, body); err != nil {
		c.log(c.Now(), slog.LevelError, "delivery not acknowledged", slog.Any("", settle.Result{}), slog.String("error", err.Error()))
		return deliveryFailed(settle.Result{}, err)
	}
	if parent := c.delivery.Message.Attributes[publisherTraceparent]; parent != "" {
		c.ctx = withTrace(c.ctx, parent)
	}
	if parent := c.delivery.TraceParent; parent != "" {
		c.ctx = withTrace(c.ctx, parent)
	}
	return h.Work(c)
}

// rejection is the answer to a request that is not worked on, and its log line.
type rejection struct {
	level  slog.Level
	status int
	text   string
	cause  error // logged; nil for none
}

// reject logs and answers a request that is not worked on.
func (h *Handler) reject(ctx context.Context, r rejection) reply {
	attrs := []slog.Attr{slog.Int("status", r.status), slog.String("error", r.text)}
	if r.cause != nil {
		attrs = append(attrs, slog.String("cause", r.cause.Error()))
	}
	h.Log.LogAttrs(ctx, r.level, "request rejected", attrs...)
	return failed(r.status, r.text)
}

// settle settles the delivery and reports it to the observer, after a panic too.
func (c *call) settle(deliverer Deliverer) reply {
	var result settle.Result
	err := errNotFinal // reported to the observer after a panic
	if c.Observer != nil {
		var ended func(settle.Result, error)
		c.ctx, ended = c.Observer.Delivery(c.ctx, c.delivery)
		defer func() { ended(result, err) }()
	}
	result, err = deliverer.Deliver(c.ctx, c.delivery)
	if err == nil && result.Outcome == settle.OutcomeUnknown {
		err = errNotFinal
	}
	if err != nil {
		// A database's error for a deadline may not wrap the context's.
		if ctxErr := c.ctx.Err(); ctxErr != nil && !errors.Is(err, ctxErr) {
			err = fmt.Errorf("%w (%w)", err, ctxErr)
		}
		result.Outcome = settle.OutcomeUnknown
		c.log(c.Now(), slog.LevelError, "delivery not acknowledged", slog.Any("", result), slog.String("error", err.Error()))
		return deliveryFailed(result, err)
	}
	level := slog.LevelInfo
	switch {
	case result.Disagreement != "":
		level = slog.LevelError
	case !result.Known && (result.Outcome == settle.OutcomeConflict || result.Outcome == settle.OutcomeQuarantined):
		level = slog.LevelWarn
	}
	now, line := c.Now(), []slog.Attr{slog.Any("", result)} // an empty key adds the result's own attributes
	if result.Outcome == settle.OutcomeDuplicate || result.Outcome == settle.OutcomeConflict {
		line = append(line, slog.Int64("replay_age_ms", now.Sub(result.AppliedAt).Milliseconds()))
	}
	c.log(now, level, "delivery acknowledged", line...)
	result.AppliedAt = result.AppliedAt.UTC()
	return reply{http.StatusOK, result}
}

// log writes the line of the request. The result logs itself; the message's data and
// attributes and the refusal's detail are never logged.
func (c *call) log(now time.Time, level slog.Level, message string, extra ...slog.Attr) {
	m := &c.delivery.Message
	attrs := append(make([]slog.Attr, 0, 8), slog.Float64("duration_ms", float64(now.Sub(c.began).Microseconds())/1000))
	if m.ID != "" {
		attrs = append(attrs, slog.String("message_id", m.ID))
	}
	if m.Subscription != "" {
		attrs = append(attrs, slog.String("subscription", m.Subscription))
	}
	if m.Source != "" {
		attrs = append(attrs, slog.String("source", m.Source))
	}
	if c.delivery.Attempt > 0 {
		attrs = append(attrs, slog.Int("delivery_attempt", c.delivery.Attempt))
	}
	if !m.PublishTime.IsZero() {
		attrs = append(attrs, slog.Int64("publish_lag_ms", now.Sub(m.PublishTime).Milliseconds()))
	}
	c.Log.LogAttrs(c.ctx, level, message, append(attrs, extra...)...) //nolint:sloglint // every caller passes a constant
}

// panicked logs the stack of a panic and the type of its value. The value itself may
// hold payload: the functions framework would print it after an unrecovered panic.
func (c *call) panicked(value any) reply {
	c.log(c.Now(), LevelCritical, "request panicked", transfer.PanicAttrs(value)...)
	return failed(http.StatusInternalServerError, textPanic)
}

// unreadBody returns the answer to a request whose body cannot be read.
func unreadBody(err error) rejection {
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		return rejection{slog.LevelError, http.StatusRequestEntityTooLarge, textBodySize, nil}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return rejection{slog.LevelWarn, http.StatusRequestTimeout, textSlow, nil}
	}
	return rejection{slog.LevelWarn, http.StatusBadRequest, textBroken, err}
}

// write sends the whole answer and flushes it, because the process may end after its last
// answer. It ignores errors: Pub/Sub redelivers a message without an answer.
func (a reply) write(w http.ResponseWriter, now time.Time) {
	body, err := json.Marshal(a.body, json.Deterministic(true))
	if err != nil {
		body = nil // unreachable: every string of an answer is valid UTF-8
	}
	body = append(body, '\n')
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(now.Add(answerTimeout)) // fails without a connection; the server resets it
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	switch a.status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", http.MethodPost)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(body)
	_ = conn.Flush()
}
