package main

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// The clock of a synctest bubble advances only when all goroutines wait, so the delays
// are exact.
func TestDelaysEachByte(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const delay = 10 * time.Millisecond
		sender, from := net.Pipe()
		to, receiver := net.Pipe()
		go func() {
			carry(to, from, delay, func(due time.Time) { time.Sleep(time.Until(due)) })
			to.Close()
		}()
		began := time.Now()
		go func() { // the second byte starts during the delay of the first
			_, _ = sender.Write([]byte("a"))
			time.Sleep(4 * time.Millisecond)
			_, _ = sender.Write([]byte("b"))
			sender.Close()
		}()
		for _, want := range []struct {
			text string
			at   time.Duration
		}{{"a", delay}, {"b", delay + 4*time.Millisecond}} {
			got := make([]byte, 1)
			if _, err := io.ReadFull(receiver, got); err != nil {
				t.Fatal(err)
			}
			if at := time.Since(began); string(got) != want.text || at != want.at {
				t.Errorf("%q arrived after %v, want %q after %v", got, at, want.text, want.at)
			}
		}
		if n, err := receiver.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %d bytes, %v", n, err)
		}
	})
}

func TestDelayedConnectionClosesWithItsServer(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			conn.Close()
		}
	}()
	n := &network{roundTrip: time.Millisecond}
	conn, err := n.dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open after its server has closed it")
	}
}
