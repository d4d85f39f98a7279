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

// Limits within one exchange.
const (
	dialTimeout = 3 * time.Second
	tlsTimeout  = 5 * time.Second
	// maxHeaderBytes bounds the answer's header with all 1xx answers before it.
	maxHeaderBytes = 64 << 10
	// maxBodyBytes bounds the answer's body. A transfer is far below 1 KiB.
	maxBodyBytes = 1 << 20
)

// The faults of an exchange without a whole answer. The errors of net and net/http
// quote addresses and URLs, so their text is not used.
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

// newTransport returns a transport that sends no request twice; see [New].
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

// exchange is the result of one request. The zero value proves nothing.
type exchange struct {
	status int // 0: no answer
	header http.Header
	// body is set if the status makes it relevant and it was read to its end.
	body []byte
	// nothingWritten proves that the bank cannot have the request.
	nothingWritten bool
	// tlsFailed: the handshake failed, or the peer refused the TLS connection later.
	tlsFailed bool
	// fault is the reason for a missing answer or body; empty for a whole answer.
	fault string
}

// exchange sends a request once and reads the answer. The request's context carries
// the time limit.
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
	case err != nil: // for example fewer bytes than Content-Length says
		e.fault = detailBodyBroken
	default:
		e.body = body
	}
	return e
}

// progress records the steps of a request. Goroutines of net/http set its marks, and
// no mark is ever cleared.
type progress struct {
	// written: a byte of the request may have been written. Getting a connection sets
	// it, which is before the first byte, so an error in between is uncertain. The
	// error of RoundTrip does not count: the last of several attempts could say
	// "connection refused" although the bank has processed the first.
	written atomic.Bool
	tlsOpen atomic.Bool // a handshake began
	tlsDone atomic.Bool // a handshake succeeded
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

// failed classifies an exchange without an answer.
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
// 1.3 the refusal of a client certificate arrives only in place of the answer.
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
