package crash

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/settleonce/settleonce/internal/test/fakebank"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

// Gate serves a bank on loopback. It reports each request to a Recorder, if it has one.
type Gate struct {
	// URL is the bank's base URL.
	URL string

	bank     *fakebank.Bank
	recorder atomic.Pointer[Recorder]
	// turn lets one recorded request in at a time. So the points of concurrent requests
	// have an order, the same in each run.
	turn sync.Mutex
}

// NewGate serves the bank until the test ends.
func NewGate(t testing.TB, b *fakebank.Bank) *Gate {
	t.Helper()
	g := &Gate{bank: b}
	var err error
	if g.URL, err = b.StartBehind(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return g
}

// Watch sets the recorder of the requests that follow; nil means none.
func (g *Gate) Watch(r *Recorder) { g.recorder.Store(r) }

// ServeHTTP passes a request to the bank, between the request's two points.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	recorder := g.recorder.Load()
	if recorder == nil {
		g.bank.ServeHTTP(w, r)
		return
	}
	g.turn.Lock()
	defer g.turn.Unlock()
	allow := func(at faultproxy.Stage) {
		if !recorder.Allow(r.Method, at) {
			panic(http.ErrAbortHandler) // the client was killed
		}
	}
	allow(faultproxy.Requested)
	g.bank.ServeHTTP(&bankAnswer{w, func() { allow(faultproxy.Answered) }}, r)
}

// bankAnswer calls begins when the bank has processed the request and begins to answer,
// or takes over the connection.
type bankAnswer struct {
	http.ResponseWriter

	begins func()
}

// WriteHeader implements [http.ResponseWriter].
func (a *bankAnswer) WriteHeader(status int) {
	a.begins()
	a.ResponseWriter.WriteHeader(status)
}

// Hijack implements [http.Hijacker], by which the fake bank breaks connections.
func (a *bankAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.begins()
	return http.NewResponseController(a.ResponseWriter).Hijack()
}
