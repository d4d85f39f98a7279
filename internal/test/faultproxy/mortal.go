package faultproxy

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/peer"
)

// mortalListener accepts connections that can die.
type mortalListener struct {
	net.Listener

	mu    sync.Mutex
	conns map[string]*mortalConn // by the client's address
}

// Accept implements [net.Listener].
func (l *mortalListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &mortalConn{Conn: accepted, dead: make(chan struct{}), closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[accepted.RemoteAddr().String()] = c
	return c, nil
}

// kill makes the connection of an RPC dead.
func (l *mortalListener) kill(rpc context.Context) {
	client, _ := peer.FromContext(rpc) // grpc sets it for every RPC
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[client.Addr.String()].die()
}

// mortalConn is a connection that can die: then it stays open and carries nothing.
type mortalConn struct {
	net.Conn

	dead, closed       chan struct{}
	dieOnce, closeOnce sync.Once
}

func (c *mortalConn) die() { c.dieOnce.Do(func() { close(c.dead) }) }

// carries waits for the end of a dead connection, and reports whether it is alive.
func (c *mortalConn) carries() bool {
	select {
	case <-c.dead:
		<-c.closed
		return false
	default:
		return true
	}
}

// Read implements [net.Conn]. A dead connection drops the bytes that it reads.
func (c *mortalConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.carries() {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write implements [net.Conn].
func (c *mortalConn) Write(b []byte) (int, error) {
	if !c.carries() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close implements [net.Conn].
func (c *mortalConn) Close() error {
	c.closeOnce.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
