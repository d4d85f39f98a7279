// Package latencyproxy is a TCP proxy that simulates a network: it delays each
// direction by half a round trip.
//
// On loopback a round trip costs almost nothing, so programs with different numbers
// of round trips take the same time there. The proxy delays bytes of any protocol and
// does not limit the throughput: bytes in flight do not delay later bytes.
package latencyproxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"
)

// Proxy is a running proxy.
type Proxy struct {
	// Addr is the host:port for the clients of the upstream server.
	Addr string

	listener net.Listener
	upstream string
	delay    time.Duration // of one direction
	onTurn   func() bool
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// Start starts a proxy in front of upstream, a host:port, that adds a round trip of
// the given time.
//
// The proxy calls onTurn, if it is not nil, whenever one side of a connection sends
// after the other, before it forwards these bytes; if onTurn returns false, the proxy
// closes the connection instead. The proxy runs until Close; ctx only bounds the start.
func Start(ctx context.Context, upstream string, roundTrip time.Duration, onTurn func() (forward bool)) (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start latency proxy: %w", err)
	}
	p := &Proxy{Addr: listener.Addr().String(), listener: listener, upstream: upstream, delay: roundTrip / 2, onTurn: onTurn}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.wg.Go(func() { p.accept(ctx) })
	return p, nil
}

// Close stops the proxy and closes its connections.
func (p *Proxy) Close() {
	p.listener.Close()
	p.cancel()
	p.wg.Wait()
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.serve(ctx, client) })
	}
}

// serve forwards one connection until either side closes it.
func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.upstream)
	if err != nil {
		return // the client sees its connection close
	}
	defer server.Close()
	closeBoth := func() {
		client.Close()
		server.Close()
	}
	defer context.AfterFunc(ctx, closeBoth)()
	turns := &turns{onTurn: p.onTurn}
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		from, to := pair[0], pair[1]
		both.Go(func() {
			defer closeBoth()
			carry(to, from, p.delay, waitUntil, func() bool { return turns.sends(from) })
		})
	}
	both.Wait()
}

// turns detects that the other side of a connection begins to send.
type turns struct {
	onTurn func() bool

	mu     sync.Mutex
	sender net.Conn
}

func (t *turns) sends(side net.Conn) (forward bool) {
	if t.onTurn == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sender == side {
		return true
	}
	t.sender = side
	return t.onTurn()
}

type chunk struct {
	bytes []byte
	due   time.Time
}

const (
	chunkBytes = 32 << 10
	maxDelayed = 1024 // chunks, 32 MiB
)

// spin is the last part of a wait, spent in a busy loop: Go's runtime sleeps with a
// resolution of a millisecond when it is idle.
const spin = 1200 * time.Microsecond

// waitUntil waits with a resolution of a microsecond.
func waitUntil(due time.Time) {
	if wait := time.Until(due) - spin; wait > 0 {
		time.Sleep(wait)
	}
	for time.Now().Before(due) {
		runtime.Gosched()
	}
}

// carry copies from to to with a delay, until either of them ends or forward returns
// false.
func carry(to io.Writer, from io.Reader, delay time.Duration, wait func(due time.Time), forward func() bool) {
	chunks := make(chan chunk, maxDelayed)
	stopped := make(chan struct{})
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, chunkBytes)
			n, err := from.Read(buf)
			if n > 0 {
				if !forward() {
					return
				}
				select {
				case chunks <- chunk{buf[:n], time.Now().Add(delay)}:
				case <-stopped:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer close(stopped)
	for c := range chunks {
		wait(c.due)
		if _, err := to.Write(c.bytes); err != nil {
			return
		}
	}
}
