package crash

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/test/fakebank"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

// Gate is the way to a bank. Without a wire everybody gets through.
type Gate struct {
	// URL is the bank's base URL, on loopback.
	URL string

	bank *fakebank.Bank
	wire atomic.Pointer[Wire]
	// turn lets one request of a wire in at a time: of questions that a process asks
	// at once the moments have an order too, and the same one in each run.
	turn sync.Mutex
}

// NewGate serves the bank until the test ends.
func NewGate(t testing.TB, b *fakebank.Bank) *Gate {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{URL: "http://" + listener.Addr().String(), bank: b}
	server := &http.Server{Handler: g, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with Close
	t.Cleanup(func() {
		b.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// Watch puts the gate on a wire; nil takes it off.
func (g *Gate) Watch(w *Wire) { g.wire.Store(w) }

// ServeHTTP lets the bank work, between the two moments of the request.
func (g *Gate) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	wire := g.wire.Load()
	if wire == nil {
		g.bank.ServeHTTP(rw, r)
		return
	}
	g.turn.Lock()
	defer g.turn.Unlock()
	if !wire.Pass(r.Method, faultproxy.Requested) {
		panic(http.ErrAbortHandler) // whoever asked is dead
	}
	g.bank.ServeHTTP(&bankAnswer{rw, func() {
		if !wire.Pass(r.Method, faultproxy.Answered) {
			panic(http.ErrAbortHandler)
		}
	}}, r)
}

// bankAnswer calls begins when the bank has done its work and is about to answer,
// or to do something else with the connection.
type bankAnswer struct {
	http.ResponseWriter

	begins func()
}

// WriteHeader begins an answer.
func (a *bankAnswer) WriteHeader(status int) {
	a.begins()
	a.ResponseWriter.WriteHeader(status)
}

// Hijack begins what is no answer.
func (a *bankAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.begins()
	return http.NewResponseController(a.ResponseWriter).Hijack()
}
