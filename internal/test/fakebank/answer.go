package fakebank

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"slices"
)

// Answer says how an answer arrives, or what arrives instead of it.
type Answer string

// Answers that arrive whole.
const (
	// AnswerWhole is the answer as it should be. The zero value.
	AnswerWhole Answer = ""
	// AnswerEmptyObject is {} with the answer's status.
	AnswerEmptyObject Answer = "empty_object"
	// AnswerNull is null with the answer's status.
	AnswerNull Answer = "null"
	// AnswerHTML is a page of HTML with 200.
	AnswerHTML Answer = "html"
	// AnswerNoContent is 204.
	AnswerNoContent Answer = "no_content"
	// AnswerErrorObject is an object that tells of an error, with 200.
	AnswerErrorObject Answer = "error_object"
	// AnswerTrailing is the answer and more after its end.
	AnswerTrailing Answer = "trailing"
	// AnswerHuge is the answer blown up to 5 MiB with white space. All of it is
	// valid.
	AnswerHuge Answer = "huge"
	// AnswerWrongAmount, AnswerWrongCurrency, AnswerWrongCreditor and
	// AnswerWrongKey tell of another transfer, AnswerNoID of one without an ID.
	AnswerWrongAmount   Answer = "wrong_amount"
	AnswerWrongCurrency Answer = "wrong_currency"
	AnswerWrongCreditor Answer = "wrong_creditor"
	AnswerWrongKey      Answer = "wrong_key"
	AnswerNoID          Answer = "no_id"
)

// Answers that do not arrive, or not whole.
const (
	// AnswerReset resets the connection (RST).
	AnswerReset Answer = "reset"
	// AnswerClose closes it.
	AnswerClose Answer = "close"
	// AnswerHang keeps it open until the client goes away or the bank is closed.
	AnswerHang Answer = "hang"
	// AnswerCut is cut off, its Content-Length being that of the whole.
	AnswerCut Answer = "cut"
	// AnswerCutChunked is cut off within a chunk.
	AnswerCutChunked Answer = "cut_chunked"
	// AnswerCutUnsized is cut off without the client being able to notice: its end
	// is the connection's.
	AnswerCutUnsized Answer = "cut_unsized"
	// AnswerStall is cut off as AnswerCut is, and the connection stays open.
	AnswerStall Answer = "stall"
	// AnswerInformational is a 103, and then the connection is closed.
	AnswerInformational Answer = "informational"
)

const hugeBytes = 5 << 20

// reply is an answer on its way.
type reply struct {
	status      int
	contentType string
	header      http.Header
	body        []byte
	answer      Answer
	cutAt       int
}

// setHeader sets a header, unless the value is empty.
func (r *reply) setHeader(name, value string) {
	if value == "" {
		return
	}
	if r.header == nil {
		r.header = http.Header{}
	}
	r.header.Set(name, value)
}

// damages make another transfer of one.
var damages = map[Answer]func(*wireTransfer){
	AnswerWrongAmount:   func(t *wireTransfer) { t.AmountMinor++ },
	AnswerWrongCurrency: func(t *wireTransfer) { t.Currency = map[bool]string{true: "EUR", false: "XTS"}[t.Currency != "EUR"] },
	AnswerWrongCreditor: func(t *wireTransfer) { t.CreditorAccount += "-other" },
	AnswerWrongKey:      func(t *wireTransfer) { t.ClientReference = "00000000-0000-5000-8000-000000000000" },
	AnswerNoID:          func(t *wireTransfer) { t.ID = "" },
}

// damaged returns the transfer as a wrong answer has it.
func damaged(t wireTransfer, answer Answer) wireTransfer {
	if damage, ok := damages[answer]; ok {
		damage(&t)
	}
	return t
}

// substitutes put something else in the place of an answer.
var substitutes = map[Answer]func(*reply){
	AnswerEmptyObject: func(r *reply) { r.body = []byte("{}") },
	AnswerNull:        func(r *reply) { r.body = []byte("null") },
	AnswerHTML:        func(r *reply) { r.status, r.contentType, r.body = http.StatusOK, typeHTML, []byte(htmlPage) },
	AnswerNoContent:   func(r *reply) { r.status, r.contentType, r.body = http.StatusNoContent, "", nil },
	AnswerErrorObject: func(r *reply) {
		r.status, r.body = http.StatusOK, []byte(`{"error":{"code":"internal","message":"try again"}}`)
	},
	AnswerTrailing: func(r *reply) { r.body = slices.Concat(r.body, []byte(`{"debug":true}`)) },
	AnswerHuge: func(r *reply) {
		// Into the outermost object, before its end.
		r.body = slices.Concat(r.body[:len(r.body)-1], bytes.Repeat([]byte(" "), hugeBytes), r.body[len(r.body)-1:])
	},
}

// transports do something else with the connection than answering.
var transports = map[Answer]func(*Bank, net.Conn, reply){
	AnswerReset: func(_ *Bank, c net.Conn, _ reply) { reset(c) },
	AnswerClose: func(_ *Bank, c net.Conn, _ reply) { c.Close() },
	AnswerHang:  func(b *Bank, c net.Conn, _ reply) { b.hang(c) },
	AnswerCut: func(_ *Bank, c net.Conn, r reply) {
		r.writeCut(c, fmt.Sprintf("Content-Length: %d\r\n\r\n", len(r.body)))
		c.Close()
	},
	AnswerCutChunked: func(_ *Bank, c net.Conn, r reply) {
		r.writeCut(c, fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", len(r.body)))
		c.Close()
	},
	AnswerCutUnsized: func(_ *Bank, c net.Conn, r reply) {
		r.writeCut(c, "Connection: close\r\n\r\n")
		c.Close()
	},
	AnswerStall: func(b *Bank, c net.Conn, r reply) {
		r.writeCut(c, fmt.Sprintf("Content-Length: %d\r\n\r\n", len(r.body)))
		b.hang(c)
	},
	AnswerInformational: func(_ *Bank, c net.Conn, _ reply) {
		_, _ = fmt.Fprint(c, "HTTP/1.1 103 Early Hints\r\n\r\n") // the client may be gone
		c.Close()
	},
}

// writeCut writes the answer by hand: the status and headers, then framing, then
// the beginning of the body.
func (r reply) writeCut(c net.Conn, framing string) {
	n := r.cutAt
	if n <= 0 {
		n = len(r.body) / 2
	}
	head := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\n", r.status, http.StatusText(r.status), r.contentType)
	_, _ = c.Write(slices.Concat(head, []byte(framing), r.body[:min(n, len(r.body))])) // the client may be gone
}

// transmit sends the answer, or what is to arrive instead of it. The bank must not
// be locked.
func (b *Bank) transmit(w http.ResponseWriter, r reply) {
	if substitute, ok := substitutes[r.answer]; ok {
		substitute(&r)
	}
	if transport, ok := transports[r.answer]; ok {
		transport(b, takeOver(w), r)
		return
	}
	header := w.Header()
	for name, values := range r.header {
		header[name] = values
	}
	if r.contentType != "" {
		header.Set("Content-Type", r.contentType)
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body) // the client may be gone
}
