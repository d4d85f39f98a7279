package main

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/settleonce/settleonce/internal/test/bench/contender"
)

// meter counts a client's traffic: gRPC reports the RPCs, and the connection counts the
// bytes, with the protocol's own.
type meter struct {
	rpcs, commits, turns, sent, received atomic.Int64
}

// traffic is the count of a meter.
type traffic struct{ rpcs, commits, turns, sent, received int64 }

func (m *meter) read() traffic {
	return traffic{m.rpcs.Load(), m.commits.Load(), m.turns.Load(), m.sent.Load(), m.received.Load()}
}

func (t traffic) since(before traffic) traffic {
	return traffic{t.rpcs - before.rpcs, t.commits - before.commits, t.turns - before.turns, t.sent - before.sent, t.received - before.received}
}

// roundTrips are RPCs for Spanner, requests for PostgreSQL.
func (t traffic) roundTrips(system contender.System) float64 {
	if system == contender.Postgres {
		return float64(t.turns)
	}
	return float64(t.rpcs)
}

// options connect a Spanner client to the meter.
func (m *meter) options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithStatsHandler(m)),
		option.WithGRPCDialOption(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return m.dial(ctx, "tcp", address)
		})),
	}
}

func (m *meter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &metered{Conn: conn, meter: m}, nil
}

// TagRPC implements stats.Handler.
func (m *meter) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	m.rpcs.Add(1)
	if strings.HasSuffix(info.FullMethodName, "/Commit") {
		m.commits.Add(1)
	}
	return ctx
}

// HandleRPC implements stats.Handler.
func (m *meter) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn implements stats.Handler.
func (m *meter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (m *meter) HandleConn(context.Context, stats.ConnStats) {}

// metered counts a connection's traffic. A turn is the first write after a read; on a
// connection without pipelining it is a round trip.
type metered struct {
	net.Conn
	meter   *meter
	written atomic.Bool
}

// pgCommit is the simple query of PostgreSQL's driver that ends a transaction.
var pgCommit = []byte("commit\x00")

// Write implements net.Conn.
func (c *metered) Write(b []byte) (int, error) {
	if !c.written.Swap(true) {
		c.meter.turns.Add(1)
	}
	if bytes.Contains(b, pgCommit) {
		c.meter.commits.Add(1)
	}
	n, err := c.Conn.Write(b)
	c.meter.sent.Add(int64(n))
	return n, err
}

// Read implements net.Conn.
func (c *metered) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.meter.received.Add(int64(n))
	c.written.Store(false)
	return n, err
}
