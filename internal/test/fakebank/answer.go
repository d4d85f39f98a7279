package fakebank

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
)

// Answer is the form in which an answer arrives.
type Answer string

// Answers that arrive complete.
const (
	// AnswerWhole is the regular answer. The zero value.
	AnswerWhole Answer = ""
	// AnswerEmptyObject is {} with the regular status code.
	AnswerEmptyObject Answer = "empty_object"
	// AnswerNull is null with the regular status code.
	AnswerNull Answer = "null"
	// AnswerHTML is an HTML page with 200.
	AnswerHTML Answer = "html"
	// AnswerNoContent is 204.
	AnswerNoContent Answer = "no_content"
	// AnswerErrorObject is a JSON object that describes an error, with 200.
	AnswerErrorObject Answer = "error_object"
	// AnswerTrailing is the regular answer followed by another JSON object.
	AnswerTrailing Answer = "trailing"
	// AnswerHuge is the regular answer, padded with white space to 5 MiB. It is
	// valid JSON.
	AnswerHuge Answer = "huge"
	// AnswerWrongAmount, AnswerWrongCurrency, AnswerWrongCreditor and
	// AnswerWrongKey describe another transfer than the executed one.
	AnswerWrongAmount   Answer = "wrong_amount"
	AnswerWrongCurrency Answer = "wrong_currency"
	AnswerWrongCreditor Answer = "wrong_creditor"
	AnswerWrongKey      Answer = "wrong_key"
)

// Answers that arrive incomplete or not at all.
const (
	// AnswerReset resets the connection (RST).
	AnswerReset Answer = "reset"
	// AnswerClose closes the connection.
	AnswerClose Answer = "close"
	// AnswerHang keeps the connection open until the client closes it, or
	// [Bank.Close].
	AnswerHang Answer = "hang"
	// AnswerCut ends in the middle of the body; Content-Length is the full length.
	AnswerCut Answer = "cut"
	// AnswerCutChunked ends in the middle of a chunk.
	AnswerCutChunked Answer = "cut_chunked"
	// AnswerCutUnsized ends in the middle of a body that is delimited by the end of
	// the connection: a client cannot notice.
	AnswerCutUnsized Answer = "cut_unsized"
	// AnswerInformational is a 103, after which the bank closes the connection.
	AnswerInformational Answer = "informational"
)

const hugeBytes = 5 << 20

// reply is an answer before it is sent.
type reply struct {
	status      int
	contentType string
	header      http.Header
	body        []byte
	answer      Answer
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

// wrongTransfers change a member of an answered transfer.
var wrongTransfers = map[Answer]func(*wireTransfer){
	AnswerWrongAmount:   func(t *wireTransfer) { t.AmountMinor++ },
	AnswerWrongCurrency: func(t *wireTransfer) { t.Currency = map[bool]string{true: "EUR", false: "XTS"}[t.Currency != "EUR"] },
	AnswerWrongCreditor: func(t *wireTransfer) { t.CreditorAccount += "-other" },
	AnswerWrongKey:      func(t *wireTransfer) { t.ClientReference = "00000000-0000-5000-8000-000000000000" },
}

// answeredAs returns the transfer with the wrong member of the answer, if any.
func (t wireTransfer) answeredAs(answer Answer) wireTransfer {
	if change, ok := wrongTransfers[answer]; ok {
		change(&t)
	}
	return t
}

// substitutes replace the content of an answer.
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
		// Before the closing brace, so that the padding is inside the object.
		r.body = slices.Concat(r.body[:len(r.body)-1], bytes.Repeat([]byte(" "), hugeBytes), r.body[len(r.body)-1:])
	},
}

// brokenConnections write to the hijacked connection instead of answering.
var brokenConnections = map[Answer]func(*Bank, net.Conn, reply){
	AnswerReset: func(_ *Bank, c net.Conn, _ reply) { reset(c) },
	AnswerClose: func(_ *Bank, c net.Conn, _ reply) { c.Close() },
	AnswerHang:  func(b *Bank, c net.Conn, _ reply) { b.hang(c) },
	AnswerCut: func(_ *Bank, c net.Conn, r reply) {
		r.writeHalf(c, fmt.Sprintf("Content-Length: %d\r\n\r\n", len(r.body)))
	},
	AnswerCutChunked: func(_ *Bank, c net.Conn, r reply) {
		r.writeHalf(c, fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", len(r.body)))
	},
	AnswerCutUnsized: func(_ *Bank, c net.Conn, r reply) { r.writeHalf(c, "Connection: close\r\n\r\n") },
	AnswerInformational: func(_ *Bank, c net.Conn, _ reply) {
		_, _ = fmt.Fprint(c, "HTTP/1.1 103 Early Hints\r\n\r\n") // the client may be gone
		c.Close()
	},
}

// writeHalf writes status line, headers, framing and half of the body, and closes
// the connection.
func (r reply) writeHalf(c net.Conn, framing string) {
	head := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\n", r.status, http.StatusText(r.status), r.contentType)
	_, _ = c.Write(slices.Concat(head, []byte(framing), r.body[:len(r.body)/2])) // the client may be gone
	c.Close()
}

// transmit sends the answer, or breaks the connection. The bank must not be locked.
func (b *Bank) transmit(w http.ResponseWriter, r reply) {
	if substitute, ok := substitutes[r.answer]; ok {
		substitute(&r)
	}
	if breakConnection, ok := brokenConnections[r.answer]; ok {
		breakConnection(b, hijack(w), r)
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

// hijack takes the connection from the HTTP server. Only HTTP/1.1 allows that.
func hijack(w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2 or a recorder: at least the answer is lost
	}
	return conn
}

// reset closes a TCP connection with RST, and any other regularly.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // without it the connection is closed at least
	}
	c.Close()
}

// hang waits until the client or [Bank.Close] closes the connection.
func (b *Bank) hang(c net.Conn) {
	defer c.Close()
	stop := context.AfterFunc(b.open, func() { c.Close() })
	defer stop()
	_, _ = io.Copy(io.Discard, c) // ends when either side closes
}
