package main

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/latencyproxy"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// probe measures the real round trip of the simulated network: it sends a byte to an
// echo server and back.
type probe struct {
	conn  net.Conn
	proxy *latencyproxy.Proxy // nil: direct
}

func newProbe(ctx context.Context, roundTrip time.Duration) (*probe, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", localhost+"0")
	if err != nil {
		return nil, err
	}
	go echoOnce(listener)
	p, addr := &probe{}, listener.Addr().String()
	if roundTrip > 0 {
		if p.proxy, err = latencyproxy.Start(ctx, addr, roundTrip, nil); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		addr = p.proxy.Addr
	}
	if p.conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return p, nil
}

// echoOnce serves one connection.
func echoOnce(listener net.Listener) {
	conn, err := listener.Accept()
	listener.Close()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.Copy(conn, conn) // ends with the connection
}

// measure returns the median of n round trips in milliseconds.
func (p *probe) measure(n int) (float64, error) {
	var times []float64
	for range n {
		began := time.Now()
		one := []byte{1}
		if _, err := p.conn.Write(one); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(p.conn, one); err != nil {
			return 0, err
		}
		times = append(times, millis(time.Since(began)))
	}
	return report.Median(times), nil
}

func (p *probe) close() {
	p.conn.Close()
	if p.proxy != nil {
		p.proxy.Close()
	}
}
