package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"path"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// network is a client's network. It simulates a round trip, counts the traffic, and
// reports the steps of the conversation. gRPC reports the RPCs; the connection counts the
// bytes, with the protocol's own.
type network struct {
	// roundTrip is simulated: each direction is delayed by half of it.
	roundTrip time.Duration
	// precise makes delays precise to a microsecond; otherwise to a millisecond. Precision
	// takes CPU.
	precise bool
	// byTurn is set for a protocol without RPCs, PostgreSQL's: a round trip is then a
	// turn, the first write of a connection after a read.
	byTurn bool
	// step is called before each request is sent and after each answer has arrived, with
	// a name such as "before Commit". Nil: not called.
	step func(name string)

	trips, commits, sent, received atomic.Int64
}

// traffic is a count of the network. Round trips are RPCs for Spanner, requests for
// PostgreSQL.
type traffic struct{ roundTrips, commits, sent, received int64 }

func (n *network) read() traffic {
	return traffic{n.trips.Load(), n.commits.Load(), n.sent.Load(), n.received.Load()}
}

func (t traffic) since(before traffic) traffic {
	return traffic{t.roundTrips - before.roundTrips, t.commits - before.commits, t.sent - before.sent, t.received - before.received}
}

// options make a Spanner client report its RPCs.
func (n *network) options() []option.ClientOption {
	return []option.ClientOption{option.WithGRPCDialOption(grpc.WithStatsHandler(rpcs{n}))}
}

func (n *network) reportStep(name string) {
	if n.step != nil {
		n.step(name)
	}
}

// rpcs is the stats handler of a network.
type rpcs struct{ *network }

// call is an RPC in the context of its events.
type call struct {
	method   string
	answered atomic.Bool
}

type callKey struct{}

// TagRPC implements stats.Handler.
func (n rpcs) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	c := &call{method: path.Base(info.FullMethodName)}
	n.trips.Add(1)
	if c.method == "Commit" {
		n.commits.Add(1)
	}
	// A client creates its sessions in the background, in no order with the delivery.
	c.answered.Store(strings.HasSuffix(c.method, "CreateSession"))
	if !c.answered.Load() {
		n.reportStep("before " + c.method)
	}
	return context.WithValue(ctx, callKey{}, c)
}

// HandleRPC implements stats.Handler.
func (n rpcs) HandleRPC(ctx context.Context, event stats.RPCStats) {
	switch event.(type) {
	case *stats.InPayload, *stats.End:
		if c, _ := ctx.Value(callKey{}).(*call); !c.answered.Swap(true) {
			n.reportStep("after " + c.method)
		}
	}
}

// TagConn implements stats.Handler.
func (rpcs) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (rpcs) HandleConn(context.Context, stats.ConnStats) {}

// dial opens a connection of this network.
func (n *network) dial(ctx context.Context, protocol, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, protocol, address)
	if err != nil {
		return nil, err
	}
	conn = &counted{Conn: conn, network: n}
	if n.roundTrip == 0 {
		return conn, nil
	}
	near, far := net.Pipe()
	for _, pair := range [][2]net.Conn{{conn, far}, {far, conn}} {
		go func() {
			carry(pair[0], pair[1], n.roundTrip/2, n.waitUntil)
			conn.Close()
			far.Close()
		}()
	}
	return near, nil
}

// counted counts a connection's traffic.
type counted struct {
	net.Conn
	network *network
	written atomic.Bool
}

// pgCommit is the simple query of PostgreSQL's driver that ends a transaction.
var pgCommit = []byte("commit\x00")

// Write implements net.Conn.
func (c *counted) Write(b []byte) (int, error) {
	if !c.written.Swap(true) && c.network.byTurn {
		c.network.trips.Add(1)
		c.network.reportStep("before a request")
	}
	if bytes.Contains(b, pgCommit) {
		c.network.commits.Add(1)
	}
	n, err := c.Conn.Write(b)
	c.network.sent.Add(int64(n))
	return n, err
}

// Read implements net.Conn.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.network.received.Add(int64(n))
	if c.written.Swap(false) && c.network.byTurn {
		c.network.reportStep("after an answer")
	}
	return n, err
}

type chunk struct {
	bytes []byte
	due   time.Time
}

const (
	chunkBytes = 32 << 10
	maxDelayed = 1024 // chunks, 32 MiB
)

// spin is the last part of a precise wait, spent in a busy loop: Go's runtime sleeps with
// a resolution of a millisecond when it is idle.
const spin = 1200 * time.Microsecond

func (n *network) waitUntil(due time.Time) {
	if !n.precise {
		time.Sleep(time.Until(due))
		return
	}
	time.Sleep(time.Until(due) - spin)
	for time.Now().Before(due) {
		runtime.Gosched()
	}
}

// carry copies from to to with a delay, until either of them ends. Bytes in flight do not
// delay later bytes.
func carry(to io.Writer, from io.Reader, delay time.Duration, wait func(due time.Time)) {
	chunks, stopped := make(chan chunk, maxDelayed), make(chan struct{})
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, chunkBytes)
			n, err := from.Read(buf)
			if n > 0 {
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

// probe measures the real round trip of the simulated network: it sends a byte to an echo
// server and back, times times, and returns the median in milliseconds.
func (n *network) probe(ctx context.Context, times int) (float64, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			defer conn.Close()
			_, _ = io.Copy(conn, conn) // ends with the connection
		}
	}()
	conn, err := n.dial(ctx, "tcp", listener.Addr().String())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var all []float64
	for range times {
		began, one := time.Now(), []byte{1}
		if _, err := conn.Write(one); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			return 0, err
		}
		all = append(all, millis(time.Since(began)))
	}
	return report.Median(all), nil
}
