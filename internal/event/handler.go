package event

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"time"

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

// panicked logs where a panic happened and the type of its value, and never the
// value, which may hold payload. An unrecovered panic would be printed whole by the
// functions framework.
func (c *call) panicked(value any) reply {
	attrs := append(c.attrs(c.Now()), transfer.PanicAttrs(value)...)
	c.Log.LogAttrs(c.ctx, LevelCritical, "request panicked", attrs...)
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
