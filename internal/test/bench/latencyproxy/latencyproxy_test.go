package latencyproxy

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
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
			carry(to, from, delay, func(due time.Time) { time.Sleep(time.Until(due)) }, func() bool { return true })
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

// echo starts an echo server and returns its address.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestAddsTheRoundTrip(t *testing.T) {
	t.Parallel()
	const roundTrip = 20 * time.Millisecond
	p, err := Start(t.Context(), echo(t), roundTrip, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn := dial(t, p.Addr)
	for range 3 {
		began := time.Now()
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < roundTrip {
			t.Errorf("a round trip of %v", took)
		}
	}
}

func TestClosesTheConnectionAtATurn(t *testing.T) {
	t.Parallel()
	var turns atomic.Int64
	p, err := Start(t.Context(), echo(t), 0, func() bool { return turns.Add(1) < 4 })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn := dial(t, p.Addr)
	for i, want := range []bool{true, false} { // request, response; request, and the connection closes before the response
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); (err == nil) != want {
			t.Errorf("round trip %d: %v", i+1, err)
		}
	}
	if n := turns.Load(); n != 4 {
		t.Errorf("%d turns, want 4", n)
	}
}
