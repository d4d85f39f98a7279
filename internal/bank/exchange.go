package bank

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"
	"time"
)

// Limits of one exchange, beside its time limit as a whole.
const (
	dialTimeout = 3 * time.Second
	tlsTimeout  = 5 * time.Second
	// maxHeaderBytes bounds the answer's header, any 1xx answers before it included.
	maxHeaderBytes = 64 << 10
	// maxBodyBytes bounds the answer's body. A transfer is far below 1 KiB.
	maxBodyBytes = 1 << 20
)

// What became of an exchange that has no whole answer, in words. The errors of
// net and net/http quote addresses and URLs, so none of their text is used.
const (
	detailNoRequest  = "the request could not be written as HTTP; nothing was sent"
	detailNoName     = "the bank's host name was not resolved; nothing was sent"
	detailRefused    = "the bank's address refused the connection; nothing was sent"
	detailTLS        = "no TLS connection to the bank; nothing was sent"
	detailTLSLate    = "TLS failed after the request may have been sent"
	detailNoConn     = "no connection to the bank; nothing was sent"
	detailTimeout    = "no whole answer within the time limit"
	detailBroken     = "the exchange broke off after the request may have been sent"
	detailBodyBroken = "the answer's body broke off"
	detailBodyLarge  = "the answer's body is over 1 MiB"
)

// newTransport returns a transport that never sends a request twice; see [New].
func newTransport(config *tls.Config) *http.Transport {
	if config == nil {
		config = new(tls.Config)
	}
	config = config.Clone()
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	config.NextProtos = nil // HTTP/1.1
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    tlsTimeout,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		Protocols:              protocols,
	}
}

// exchange is what one request came to. The zero value is an exchange of which
// nothing is known.
type exchange struct {
	// status is zero where there was no answer.
	status int
	header http.Header
	// body is set only where it matters and was read to its end.
	body []byte
	// nothingWritten is proof that the bank cannot have the request.
	nothingWritten bool
	// tlsFailed: the handshake failed, or the peer refused the TLS connection later.
	tlsFailed bool
	// fault says why there is no answer, or no body; empty for a whole answer.
	fault string
}

// exchange sends a request once and reads the answer. The request's context has
// to have the time limit.
func (c *Client) exchange(req *http.Request, bodyMatters func(status int) bool) exchange {
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("User-Agent", "settleonce")
	c.authorize(req.Header)
	var seen progress
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), seen.hooks()))
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return seen.failed(err)
	}
	defer resp.Body.Close()
	e := exchange{status: resp.StatusCode, header: resp.Header}
	if !bodyMatters(resp.StatusCode) {
		return e
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBodyBytes+1))
	switch {
	case len(body) > maxBodyBytes:
		e.fault = detailBodyLarge
	case timedOut(err):
		e.fault = detailTimeout
	case err != nil: // fewer bytes than announced, for one
		e.fault = detailBodyBroken
	default:
		e.body = body
	}
	return e
}

// progress remembers how far a request has got. Its marks are set by goroutines
// of net/http, and none is ever taken back.
type progress struct {
	// written: a byte of the request may have been written. It is set as soon as the
	// request is given a connection, and again by everything that comes later. That
	// is before the first byte, so it errs on the side of uncertain, and the error
	// that RoundTrip returns plays no part: the last of several attempts could say
	// "connection refused" although the bank has processed the first.
	written atomic.Bool
	tlsOpen atomic.Bool // a handshake has begun
	tlsDone atomic.Bool // and ended well
}

func (p *progress) hooks() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		TLSHandshakeStart: func() { p.tlsOpen.Store(true) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			if err == nil {
				p.tlsDone.Store(true)
			}
		},
		GotConn:          func(httptrace.GotConnInfo) { p.written.Store(true) },
		WroteHeaderField: func(string, []string) { p.written.Store(true) },
		WroteHeaders:     func() { p.written.Store(true) },
		WroteRequest:     func(httptrace.WroteRequestInfo) { p.written.Store(true) },
	}
}

// failed reads an exchange that ended without an answer.
func (p *progress) failed(err error) exchange {
	if p.written.Load() {
		e := exchange{fault: detailBroken, tlsFailed: tlsAlert(err)}
		switch {
		case e.tlsFailed:
			e.fault = detailTLSLate
		case timedOut(err):
			e.fault = detailTimeout
		}
		return e
	}
	e := exchange{nothingWritten: true, tlsFailed: p.tlsOpen.Load() && !p.tlsDone.Load(), fault: detailNoConn}
	_, noName := errors.AsType[*net.DNSError](err)
	switch {
	case e.tlsFailed:
		e.fault = detailTLS
	case noName:
		e.fault = detailNoName
	case errors.Is(err, syscall.ECONNREFUSED):
		e.fault = detailRefused
	}
	return e
}

// tlsAlert reports whether the peer ended the connection with a TLS alert. In TLS
// 1.3 a client learns only with the answer that its certificate was refused.
func tlsAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

func timedOut(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
