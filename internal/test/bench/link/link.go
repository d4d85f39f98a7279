// Package link is a TCP proxy that stands for a network: it makes each direction
// late by half a round trip.
//
// It exists because programs that differ in their number of round trips look alike
// on loopback, where a round trip costs nothing. It adds latency and no limit of
// throughput: what is under way does not wait for what was sent before it. It knows
// nothing of what it carries, so that it is the same for every protocol.
package link

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"
)

// Link is a running proxy.
type Link struct {
	// Addr is the host:port that stands for the far end.
	Addr string

	listener net.Listener
	upstream string
	oneWay   time.Duration
	turn     func() bool

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil: closed
	wg    sync.WaitGroup
}

// Start starts a link to upstream, a host:port, with a round trip of the given time.
//
// turn, when not nil, is called whenever a side begins to speak after the other one,
// before anything of it is passed on; returning false cuts the connection there. ctx
// bounds the start. The link runs until Close.
func Start(ctx context.Context, upstream string, roundTrip time.Duration, turn func() (pass bool)) (*Link, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start link: %w", err)
	}
	l := &Link{
		Addr: listener.Addr().String(), listener: listener, upstream: upstream, oneWay: roundTrip / 2, turn: turn,
		conns: map[net.Conn]struct{}{},
	}
	l.wg.Go(func() { l.accept(context.WithoutCancel(ctx)) })
	return l, nil
}

// Close ends the link and all connections through it.
func (l *Link) Close() {
	l.listener.Close()
	l.mu.Lock()
	for conn := range l.conns {
		conn.Close()
	}
	l.conns = nil
	l.mu.Unlock()
	l.wg.Wait()
}

func (l *Link) accept(ctx context.Context) {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		l.wg.Go(func() { l.connect(ctx, near) })
	}
}

// connect carries one connection until either side ends it.
func (l *Link) connect(ctx context.Context, near net.Conn) {
	defer near.Close()
	far, err := new(net.Dialer).DialContext(ctx, "tcp", l.upstream)
	if err != nil {
		return // the near side sees its connection end
	}
	defer far.Close()
	if !l.keep(near, far) {
		return
	}
	defer l.forget(near, far)
	order := &order{turn: l.turn}
	var both sync.WaitGroup
	for side, ends := range [2][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			from, to := ends[0], ends[1]
			carry(to, from, l.oneWay, waitUntil, func() bool { return order.speaks(side) })
			from.Close()
			to.Close()
		})
	}
	both.Wait()
}

func (l *Link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return false
	}
	for _, conn := range conns {
		l.conns[conn] = struct{}{}
	}
	return true
}

func (l *Link) forget(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		delete(l.conns, conn)
	}
}

// order notices when the other side begins to speak.
type order struct {
	turn func() bool

	mu      sync.Mutex
	begun   bool
	speaker int
}

func (o *order) speaks(side int) (pass bool) {
	if o.turn == nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.begun && o.speaker == side {
		return true
	}
	o.begun, o.speaker = true, side
	return o.turn()
}

// chunk is what was read at once, and when it is to arrive.
type chunk struct {
	bytes []byte
	due   time.Time
}

const (
	chunkBytes = 32 << 10
	// underWay bounds the chunks that are on their way: 32 MiB.
	underWay = 1024
)

// spin is how long before its time a wait stops to sleep: Go's runtime sleeps to the
// millisecond when it has nothing else to do.
const spin = 1200 * time.Microsecond

// waitUntil waits to the microsecond. It costs CPU for up to spin, while what it waits
// with is on its way and nobody else has work to do.
func waitUntil(due time.Time) {
	if wait := time.Until(due) - spin; wait > 0 {
		time.Sleep(wait)
	}
	for time.Now().Before(due) {
		runtime.Gosched()
	}
}

// carry writes to to what it reads from from, each byte late after it was read, until
// either of them ends or pass says no.
func carry(to io.Writer, from io.Reader, late time.Duration, wait func(due time.Time), pass func() bool) {
	chunks := make(chan chunk, underWay)
	gone := make(chan struct{})
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, chunkBytes)
			n, err := from.Read(buf)
			if n > 0 {
				if !pass() {
					return
				}
				select {
				case chunks <- chunk{buf[:n], time.Now().Add(late)}:
				case <-gone:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer close(gone)
	for c := range chunks {
		wait(c.due)
		if _, err := to.Write(c.bytes); err != nil {
			return
		}
	}
}
