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

func TestClosesTheConnectionAtATurn(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() { // an echo server for one connection
		if conn, err := listener.Accept(); err == nil {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}
	}()
	var turns atomic.Int64
	p, err := Start(t.Context(), listener.Addr().String(), 0, func() bool { return turns.Add(1) < 4 })
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
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
