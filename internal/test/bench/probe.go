package main

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/latencyproxy"
	"github.com/settleonce/settleonce/internal/test/bench/report"
)

// probe measures the real round trip of the simulated network: it sends a byte to an echo
// server and back, n times, and returns the median in milliseconds.
func probe(ctx context.Context, roundTrip time.Duration, n int) (float64, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	go echoOnce(listener)
	addr := listener.Addr().String()
	if roundTrip > 0 {
		proxy, err := latencyproxy.Start(ctx, addr, roundTrip, nil)
		if err != nil {
			return 0, err
		}
		defer proxy.Close()
		addr = proxy.Addr
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var times []float64
	for range n {
		began, one := time.Now(), []byte{1}
		if _, err := conn.Write(one); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			return 0, err
		}
		times = append(times, millis(time.Since(began)))
	}
	return report.Median(times), nil
}

// echoOnce serves one connection.
func echoOnce(listener net.Listener) {
	conn, err := listener.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.Copy(conn, conn) // ends with the connection
}
