package fakebank

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Pipe is a listener in memory. Connections over it block in a way that synctest
// understands, so that time can pass in a bubble while one hangs. Make one with
// [NewPipe]; its DialContext goes into the client's http.Transport.
type Pipe struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	dialed atomic.Int64
}

// NewPipe returns a listener that nobody is connected to.
func NewPipe() *Pipe { return &Pipe{conns: make(chan net.Conn), closed: make(chan struct{})} }

// DialContext connects to the listener, whatever the address.
func (p *Pipe) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- &pipeConn{server, pipeAddr(fmt.Sprintf("pipe-%d", p.dialed.Add(1)))}:
		return client, nil
	case <-p.closed:
		return nil, fmt.Errorf("dial the fake bank: %w", net.ErrClosed)
	case <-ctx.Done():
		return nil, fmt.Errorf("dial the fake bank: %w", context.Cause(ctx))
	}
}

// Accept returns the next connection.
func (p *Pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, fmt.Errorf("accept: %w", net.ErrClosed)
	}
}

// Close ends Accept and DialContext.
func (p *Pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr returns the name of the pipe.
func (p *Pipe) Addr() net.Addr { return pipeAddr("pipe") }

// pipeConn is a connection with an address of its own.
type pipeConn struct {
	net.Conn

	remote pipeAddr
}

// RemoteAddr returns the connection's own address.
func (c *pipeConn) RemoteAddr() net.Addr { return c.remote }

type pipeAddr string

// Network implements net.Addr.
func (pipeAddr) Network() string { return "pipe" }

// String implements net.Addr.
func (a pipeAddr) String() string { return string(a) }
