package fakebank

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// TB is the part of testing.TB that the bank needs. With it, programs can use the
// bank without importing testing.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Cleanup(f func())
}

// Options do not change while a bank runs. The zero value is a bank that requires
// no token and knows settlements by [Bank.Expect] only.
type Options struct {
	// Token is the bearer token that every request must carry, admin requests
	// included. Empty: the bank requires none.
	Token string
	// SettlementOf returns the settlement ID of a transfer that [Bank.Expect] did
	// not announce; empty: unknown. Nil: all are unknown. The bank is locked during
	// the call, so it must not use the bank.
	SettlementOf func(Transfer) string
}

// Bank is the fake bank. Make one with [New]. It is safe for concurrent use.
type Bank struct {
	options Options
	now     func() time.Time
	mux     *http.ServeMux
	// open ends with Close: hanging exchanges and servers end with it.
	open  context.Context
	close context.CancelFunc

	mu         sync.Mutex
	tb         TB // nil without one, and after the test
	byCreditor map[string]Plan
	rest       Plan
	keys       map[string]*keyState
	transfers  []*transfer
	late       []*lateExecution
	expected   map[string]string // settlement by key
	keyOf      map[string]string // key by settlement
	executions map[string]int    // by settlement
	violations []string
}

// New returns a bank without faults that reads the time from now. A violation
// fails tb, and the cleanup of tb closes the bank; tb can be nil.
func New(tb TB, now func() time.Time, options Options) *Bank {
	b := &Bank{
		options: options, now: now, tb: tb,
		byCreditor: map[string]Plan{},
		keys:       map[string]*keyState{},
		expected:   map[string]string{},
		keyOf:      map[string]string{},
		executions: map[string]int{},
	}
	b.open, b.close = context.WithCancel(context.Background())
	b.mux = http.NewServeMux()
	b.mux.HandleFunc("POST "+transferPath, b.post)
	b.mux.HandleFunc("GET "+transferPath, b.get)
	b.mux.HandleFunc("GET /admin/ledger", b.adminLedger)
	b.mux.HandleFunc("POST /admin/status", func(w http.ResponseWriter, r *http.Request) { b.transmit(w, b.adminStatus(w, r)) })
	if tb != nil {
		tb.Cleanup(b.endTest)
	}
	return b
}

// Close ends all hanging exchanges, and the server of [Bank.Start]. The ledger
// stays readable. Further calls do nothing.
func (b *Bank) Close() { b.close() }

// endTest executes everything late, so that a second execution after the end of
// the test is a violation too, and drops the test: reporting after its end panics.
func (b *Bank) endTest() {
	b.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.executeLate(func(*lateExecution) bool { return true })
	if n := len(b.violations); n > 0 && b.tb != nil {
		b.tb.Helper()
		b.tb.Errorf("fakebank: %d violations; the first: %s", n, b.violations[0])
	}
	b.tb = nil
}

// ServeHTTP answers one request.
func (b *Bank) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.mux.ServeHTTP(w, r) }

// Start serves a free port on loopback until the bank is closed, and returns its
// BANK_URL.
func (b *Bank) Start(ctx context.Context) (url string, err error) { return b.StartBehind(ctx, b) }

// StartBehind is Start with a handler that passes requests on to the bank.
func (b *Bank) StartBehind(ctx context.Context, handler http.Handler) (url string, err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("start the fake bank: %w", err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), // it would log every scripted fault
	}
	context.AfterFunc(b.open, func() { _ = server.Close() }) //nolint:contextcheck // the bank ends with Close, not with ctx
	go func() { _ = server.Serve(l) }()                      // ends with Close
	return "http://" + l.Addr().String(), nil
}

// locked runs f with the bank locked, after the late executions that are due.
func (b *Bank) locked(f func(now time.Time)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now().UTC().Round(0)
	b.executeLate(func(l *lateExecution) bool { return !l.due.After(now) })
	f(now)
}
