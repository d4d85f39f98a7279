package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/settleonce/settleonce/internal/test/bench/link"
)

// echo sends a byte there and back over the simulated network, like the events: what
// that takes is a round trip, whatever the machine does to it meanwhile. A nil one
// measures nothing.
type echo struct {
	rounds []float64 // medians, in milliseconds

	conn     net.Conn
	listener net.Listener
	link     *link.Link // nil: directly
}

func newEcho(ctx context.Context, roundTrip time.Duration) (e *echo, err error) {
	e = &echo{}
	if e.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	go e.answer()
	through := e.listener.Addr().String()
	if roundTrip > 0 {
		if e.link, err = link.Start(ctx, through, roundTrip, nil); err != nil {
			return nil, errors.Join(err, e.close())
		}
		through = e.link.Addr
	}
	if e.conn, err = new(net.Dialer).DialContext(ctx, "tcp", through); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// answer sends back what comes over the one connection.
func (e *echo) answer() {
	conn, err := e.listener.Accept()
	if err != nil {
		return // closed
	}
	defer conn.Close()
	_, _ = io.Copy(conn, conn) // ends with the connection
}

// roundTrip is how long a byte takes.
func (e *echo) roundTrip() (time.Duration, error) {
	began := time.Now()
	one := []byte{1}
	if _, err := e.conn.Write(one); err != nil {
		return 0, err
	}
	_, err := io.ReadFull(e.conn, one)
	return time.Since(began), err
}

// turn takes a turn of so many round trips.
func (e *echo) turn(events int) error {
	if e == nil {
		return nil
	}
	var times []float64
	for range events {
		taken, err := e.roundTrip()
		if err != nil {
			return err
		}
		times = append(times, millis(taken))
	}
	e.rounds = append(e.rounds, median(times))
	return nil
}

func (e *echo) close() error {
	if e == nil {
		return nil
	}
	if e.conn != nil {
		e.conn.Close()
	}
	if e.link != nil {
		e.link.Close()
	}
	return e.listener.Close()
}
