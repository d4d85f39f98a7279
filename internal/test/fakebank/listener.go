package fakebank

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// ConnFault is something that happens to a connection before any request.
type ConnFault string

const (
	// ConnServed serves it. The zero value.
	ConnServed ConnFault = ""
	// ConnReset resets it as soon as it is open. A connection that is refused
	// outright needs no bank, only a port on which nobody listens.
	ConnReset ConnFault = "reset"
	// ConnHang accepts it and says nothing. It makes a TLS handshake time out.
	ConnHang ConnFault = "hang"
	// ConnTLSFailure answers the first bytes with a TLS alert (handshake_failure).
	ConnTLSFailure ConnFault = "tls_failure"
)

// Connections gives the next connections their faults, in order. It needs
// [Bank.Listener].
func (b *Bank) Connections(faults ...ConnFault) {
	b.locked(func(time.Time) { b.connFaults = append(b.connFaults, faults...) })
}

// EveryConnection gives all connections that [Bank.Connections] does not speak of
// a fault.
func (b *Bank) EveryConnection(fault ConnFault) {
	b.locked(func(time.Time) { b.connRest = fault })
}

// Listener makes the faults of connections on what l accepts. For a bank behind
// TLS, l is the listener below TLS.
func (b *Bank) Listener(l net.Listener) net.Listener { return &listener{Listener: l, bank: b} }

type listener struct {
	net.Listener

	bank *Bank
}

// Accept returns the next connection that is served.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		switch l.bank.nextConnFault() {
		case ConnServed:
			return l.bank.track(c), nil
		case ConnReset:
			reset(c)
		case ConnHang:
			go l.bank.hang(c)
		case ConnTLSFailure:
			go failTLS(c)
		}
	}
}

func (b *Bank) nextConnFault() (fault ConnFault) {
	b.locked(func(time.Time) {
		fault = b.connRest
		if len(b.connFaults) > 0 {
			fault, b.connFaults = b.connFaults[0], b.connFaults[1:]
		}
	})
	return fault
}

// tlsAlert is the record of a fatal handshake_failure.
var tlsAlert = []byte{21, 3, 3, 0, 2, 2, 40}

// failTLS waits for the client's first bytes, so that the alert answers them.
func failTLS(c net.Conn) {
	defer c.Close()
	if _, err := c.Read(make([]byte, 16<<10)); err == nil {
		_, _ = c.Write(tlsAlert) // the client may be gone
	}
}

// conn is a connection whose requests are counted.
type conn struct {
	net.Conn

	forget func()
}

// NetConn returns the connection below.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Close closes the connection.
func (c *conn) Close() error {
	c.forget()
	return c.Conn.Close()
}

// track counts the requests of a connection from now on. While it is open, no
// other has its address.
func (b *Bank) track(c net.Conn) net.Conn {
	addr := c.RemoteAddr().String()
	b.locked(func(time.Time) { b.carried[addr] = 0 })
	return &conn{Conn: c, forget: func() {
		b.locked(func(time.Time) { delete(b.carried, addr) })
	}}
}

// isReused counts a request and reports whether its connection carried one before.
func (b *Bank) isReused(addr string) bool {
	n, tracked := b.carried[addr]
	if !tracked {
		return false
	}
	b.carried[addr] = n + 1
	return n > 0
}

// Serve serves l, through [Bank.Listener], until the bank is closed.
func (b *Bank) Serve(l net.Listener) error {
	server := &http.Server{
		Handler: b, ReadHeaderTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), // faults are wanted here
	}
	stop := context.AfterFunc(b.open, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(b.Listener(l)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the fake bank: %w", err)
	}
	return nil
}

// Start serves a free port of this machine until the bank is closed, and returns
// its BANK_URL.
func (b *Bank) Start(ctx context.Context) (url string, err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("start the fake bank: %w", err)
	}
	go func() { _ = b.Serve(l) }() // ends with Close
	return "http://" + l.Addr().String(), nil
}
