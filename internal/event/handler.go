package event

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"go.opentelemetry.io/otel/propagation"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// MaxBodyBytes is the largest request body that is read. A Pub/Sub message has
// 10,000,000 bytes at most, which base64 and the envelope make 13.4 million.
const MaxBodyBytes = 16 << 20

// Time limits on the connection. The server of the functions framework sets none,
// so a caller that stalls would occupy a request slot of the instance until its
// connection ends.
const (
	// BodyTimeout bounds the reading of a request's body. The request's budget can
	// end earlier. Pub/Sub sends the body at once.
	BodyTimeout = 10 * time.Second
	// answerTimeout bounds the writing of the answer, after net/http has drained the
	// unread rest of a body.
	answerTimeout = BodyTimeout + 10*time.Second
)

// Handler answers the requests of one function, see the package comment. Its fields
// are set once, before the first request; it is safe for concurrent use.
type Handler struct {
	// Work processes one delivery. Required; [Settle], [Reconcile] and
	// [Misconfigured] make one.
	Work Work
	// Log gets one line a request. Required; [NewLogger] makes one.
	Log *slog.Logger
	// Now tells the time. Required.
	Now func() time.Time
	// Timeout is the budget of one request, the reading of its body included, on top
	// of the request's own deadline. It has to be below the subscription's ack
	// deadline. Zero means no budget.
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
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	if h.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.Timeout)
		defer cancel()
	}
	// The limit holds for rejected requests too: net/http drains their bodies before it
	// answers.
	limit := began.Add(BodyTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(limit) {
		limit = deadline
	}
	_ = http.NewResponseController(w).SetReadDeadline(limit) // fails in tests that have no connection
	leave, open := h.Drainer.Enter()
	defer leave() // after the answer is written, since Drain waits for it
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
	body, rejected := readBody(w, r)
	if rejected != nil {
		return h.reject(ctx, *rejected)
	}
	c.delivery = Read(r.Header, body) //nolint:contextcheck // the SDK wants a context and reads from memory
	if parent := c.delivery.Message.Attributes[publisherTraceparent]; parent != "" {
		c.ctx = withTrace(c.ctx, parent)
	}
	if parent := c.delivery.TraceParent; parent != "" {
		c.ctx = withTrace(c.ctx, parent)
	}
	return h.Work(c)
}

// rejection is the reason why a request is not worked on.
type rejection struct {
	level  slog.Level
	status int
	text   string
	cause  error // logged; nil where text says everything
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
		// A database's own error for a deadline need not wrap the context's.
		if ctxErr := c.ctx.Err(); ctxErr != nil && !errors.Is(err, ctxErr) {
			err = fmt.Errorf("%w (%w)", err, ctxErr)
		}
		result.Outcome = settle.OutcomeUnknown
		c.log(c.Now(), slog.LevelError, "delivery not acknowledged", slog.Any("", result), slog.String("error", err.Error()))
		return deliveryFailed(result, err)
	}
	level := slog.LevelInfo
	if result.Outcome == settle.OutcomeConflict || result.Outcome == settle.OutcomeQuarantined {
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
	if c.delivery.Attempt > 0 {
		attrs = append(attrs, slog.Int("delivery_attempt", c.delivery.Attempt))
	}
	if !m.PublishTime.IsZero() {
		attrs = append(attrs, slog.Int64("publish_lag_ms", now.Sub(m.PublishTime).Milliseconds()))
	}
	c.Log.LogAttrs(c.ctx, level, message, append(attrs, extra...)...)
}

// panicked logs where a panic happened and the type of its value, and never the
// value, which may hold payload. An unrecovered panic would be printed whole by the
// functions framework.
func (c *call) panicked(value any) reply {
	c.log(c.Now(), LevelCritical, "request panicked", transfer.PanicAttrs(value)...)
	return failed(http.StatusInternalServerError, textPanic)
}

// readBody reads the body, or returns the reason why the request is rejected.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *rejection) {
	switch {
	case r.Method != http.MethodPost:
		return nil, &rejection{slog.LevelWarn, http.StatusMethodNotAllowed, textMethod, nil}
	case r.Context().Err() != nil:
		return nil, &rejection{slog.LevelInfo, http.StatusServiceUnavailable, textGone, r.Context().Err()}
	case r.ContentLength > MaxBodyBytes:
		return nil, &rejection{slog.LevelError, http.StatusRequestEntityTooLarge, textBodySize, nil}
	}
	// The announced length is trusted up to the size of an ordinary payout: such a body
	// takes one allocation, and a false length costs no more than that.
	const ordinary = 2 * payout.MaxMessageBytes
	var body bytes.Buffer
	if n := r.ContentLength; n > 0 {
		body.Grow(int(min(n, ordinary)) + bytes.MinRead)
	}
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil:
		// A read deadline that stays set would end the connection, and with it the
		// delivery.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		return body.Bytes(), nil
	case tooLarge:
		return nil, &rejection{slog.LevelError, http.StatusRequestEntityTooLarge, textBodySize, nil}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &rejection{slog.LevelWarn, http.StatusRequestTimeout, textSlow, nil}
	}
	return nil, &rejection{slog.LevelWarn, http.StatusBadRequest, textBroken, err}
}

// write sends the whole answer and flushes it, since the process may end after its
// last answer. Errors are ignored: a caller that did not get the answer delivers
// again.
func (a reply) write(w http.ResponseWriter, now time.Time) {
	body, err := json.Marshal(a.body, json.Deterministic(true))
	if err != nil {
		body = nil // unreachable: every string of an answer is valid UTF-8
	}
	body = append(body, '\n')
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(now.Add(answerTimeout)) // fails where there is no connection; the server lifts it
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	switch a.status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", http.MethodPost)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(body) //nolint:gosec // JSON, and sent as JSON
	_ = conn.Flush()
}
