package event

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// MaxBodyBytes is the largest request body that is read. A Pub/Sub message has
// 10,000,000 bytes at most, which base64 and the envelope make 13.4 million.
const MaxBodyBytes = 16 << 20

// Time limits on the connection. The server of the functions framework has none:
// a caller that stops in the middle would hold one of the requests that the
// instance works on at a time, for as long as its connection lives.
const (
	// BodyTimeout is how long a request's body may take to come in as a whole, if
	// the request's budget does not end before. Pub/Sub sends it at once.
	BodyTimeout = 10 * time.Second
	// answerTimeout is how long the caller may take to accept the answer, after
	// net/http has read what is left of a body that was not read.
	answerTimeout = BodyTimeout + 10*time.Second
)

// Deliverer does what a delivery asks for; [*settle.Service] is one. A nil error
// means that the result is committed and the message can be acknowledged. It is
// called from many goroutines.
type Deliverer interface {
	Deliver(ctx context.Context, d settle.Delivery) (settle.Result, error)
}

// Handler answers the requests of a Pub/Sub trigger or push subscription, see
// the package comment. Its fields are set once, before the first request; it is
// safe for concurrent use.
type Handler struct {
	// Deliverer does the work. Required.
	Deliverer Deliverer
	// Log gets one line a request. Required; [NewLogger] makes one.
	Log *slog.Logger
	// Now tells the time. Required.
	Now func() time.Time
	// Timeout is the budget of one delivery, its body's reading included, on top
	// of the request's own deadline. It has to be below the subscription's ack
	// deadline. Zero means no budget of its own.
	Timeout time.Duration
	// Drainer refuses requests while the instance shuts down. Nil means never.
	Gate *Drainer
	// Observer is told of each delivery. Nil means nobody.
	Observer Observer
}

// ServeHTTP answers one request. It does not panic, whatever the deliverer does.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := h.Now()
	ctx, cancel := withBudget(withRequestTrace(r.Context(), r.Header), h.Timeout)
	defer cancel()
	limitBody(ctx, w, began)
	leave, open := h.Gate.Enter()
	if !open {
		h.turnAway(ctx, turnedAway{slog.LevelInfo, http.StatusServiceUnavailable, textDraining, nil}).write(w, began)
		return
	}
	defer leave() // after the answer is on its way: that is part of what Drain waits for
	a := h.handle(ctx, w, r, began)
	a.write(w, h.Now())
	observerOf(h.Observer).Answered()
}

// handle works out the answer. It gets w for the limits on the body only.
func (h *Handler) handle(ctx context.Context, w http.ResponseWriter, r *http.Request, began time.Time) (a answer) {
	rec := record{began: began, ctx: ctx}
	defer h.recoverInto(&rec, &a)

	body, refused := readBody(w, r)
	if refused != nil {
		return h.turnAway(ctx, *refused)
	}
	rec.delivery = Read(r.Header, body) //nolint:contextcheck // the SDK wants a context and reads from memory
	rec.result, rec.err = h.observed(ctx, &rec)
	rec.log(h.Log, h.Now())
	if rec.err != nil {
		return errorAnswer(rec.result, rec.err)
	}
	return settledAnswer(rec.result)
}

// withBudget returns ctx with a time limit; zero means none.
func withBudget(ctx context.Context, budget time.Duration) (context.Context, context.CancelFunc) {
	if budget <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, budget)
}

// errNotFinal reports a deliverer that breaks its contract: no error, and no
// outcome either. Acknowledging that would lose the message.
var errNotFinal = errors.New("deliverer gave neither an outcome nor an error")

// observed hands the delivery over under the observer's eyes, in a context of its
// own, which becomes the record's.
func (h *Handler) observed(ctx context.Context, rec *record) (result settle.Result, err error) {
	ctx, ended := observerOf(h.Observer).Delivery(withEventTrace(ctx, rec.delivery), rec.delivery)
	rec.ctx = ctx
	err = errNotFinal // what is told of a panic
	defer func() { ended(result, err) }()
	result, err = h.deliver(ctx, rec.delivery)
	return result, err
}

// deliver hands d over.
func (h *Handler) deliver(ctx context.Context, d settle.Delivery) (settle.Result, error) {
	result, err := h.Deliverer.Deliver(ctx, d)
	if err == nil && !result.Outcome.Final() {
		err = errNotFinal
	}
	if err == nil {
		return result, nil
	}
	// A database's own error for a deadline need not wrap the context's.
	if ctxErr := ctx.Err(); ctxErr != nil && !errors.Is(err, ctxErr) {
		err = fmt.Errorf("%w (%w)", err, ctxErr)
	}
	result.Outcome = settle.OutcomeUnknown
	return result, err
}

// turnedAway is a request of which no delivery is made.
type turnedAway struct {
	level  slog.Level
	status int
	text   string
	cause  error // for the log; nil where the text says it all
}

// limitBody bounds the time in which the body has to come in, from began and
// within ctx. It is called for requests that are turned away too: before it
// answers one, net/http reads what is left of its body.
func limitBody(ctx context.Context, w http.ResponseWriter, began time.Time) {
	limit := began.Add(BodyTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(limit) {
		limit = deadline
	}
	_ = http.NewResponseController(w).SetReadDeadline(limit) // fails where there is no connection, as in tests
}

// readBody reads the body of a request that can be worked on, and says why not
// of any other.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *turnedAway) {
	switch {
	case r.Method != http.MethodPost:
		return nil, &turnedAway{slog.LevelWarn, http.StatusMethodNotAllowed, textMethod, nil}
	case r.Context().Err() != nil:
		return nil, &turnedAway{slog.LevelInfo, http.StatusServiceUnavailable, textGone, r.Context().Err()}
	case r.ContentLength > MaxBodyBytes:
		return nil, &turnedAway{slog.LevelError, http.StatusRequestEntityTooLarge, textBodySize, nil}
	}
	body, err := readBounded(w, r)
	if err == nil {
		// Left in force, the limit would end the watch on the connection, and with that
		// the delivery.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		return body, nil
	}
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		return nil, &turnedAway{slog.LevelError, http.StatusRequestEntityTooLarge, textBodySize, nil}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &turnedAway{slog.LevelWarn, http.StatusRequestTimeout, textSlow, nil}
	}
	return nil, &turnedAway{slog.LevelWarn, http.StatusBadRequest, textBroken, err}
}

// readBounded reads at most MaxBodyBytes. The announced length is trusted as far
// as an ordinary payout needs, so that such a body is read into one allocation
// and a false announcement costs no more than that.
func readBounded(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	const ordinary = 2 * payout.MaxMessageBytes
	var body bytes.Buffer
	if n := r.ContentLength; n > 0 {
		body.Grow(int(min(n, ordinary)) + bytes.MinRead)
	}
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	return body.Bytes(), err
}

// turnAway logs and answers a request of which no delivery is made.
func (h *Handler) turnAway(ctx context.Context, t turnedAway) answer {
	attrs := []slog.Attr{slog.Int("status", t.status), slog.String("error", t.text)}
	if t.cause != nil {
		attrs = append(attrs, slog.String("cause", t.cause.Error()))
	}
	h.Log.LogAttrs(ctx, t.level, "request turned away", attrs...)
	return unsettledAnswer(t.status, t.text)
}

// recoverInto is deferred. After a panic it logs where and with what type of
// value, never the value, which may hold payload, and puts the answer into a.
// Left alone, the panic's value would be printed by the functions framework.
func (h *Handler) recoverInto(rec *record, a *answer) {
	p := recover()
	if p == nil {
		return
	}
	rec.result = settle.Result{}
	attrs := append(rec.attrs(h.Now()), transfer.PanicAttrs(p)...)
	h.Log.LogAttrs(rec.ctx, LevelCritical, "panic while working on a delivery", attrs...)
	*a = unsettledAnswer(http.StatusInternalServerError, textPanic)
}
