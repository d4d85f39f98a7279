package fakebank

import (
	"context"
	"io"
	"net"
	"net/http"
)

// takeOver takes the connection away from the server.
func takeOver(w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // nothing to take over (HTTP/2, a recorder): at least the answer is lost
	}
	return conn
}

// reset closes a connection with RST, where there is such a thing.
func reset(c net.Conn) {
	inner := innermost(c)
	if tcp, ok := inner.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // without it the connection is closed at least
	}
	inner.Close()
	c.Close() // after the socket: TLS cannot say goodbye any more
}

// innermost returns the connection under TLS and under the listener's wrapping.
func innermost(c net.Conn) net.Conn {
	for {
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = wrapper.NetConn()
	}
}

// hang says nothing until the client goes away or the bank is closed, and closes
// the connection.
func (b *Bank) hang(c net.Conn) {
	defer c.Close()
	stop := context.AfterFunc(b.open, func() { innermost(c).Close() })
	defer stop()
	_, _ = io.Copy(io.Discard, c) // ends when either side closes
}
