package fakebank

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"
)

// TB is the part of testing.TB that the bank needs. It is declared here so that
// programs can use the bank without importing testing.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Cleanup(f func())
}

// Options are what differs between banks and does not change while one runs. The
// zero value is a bank that lets everybody in.
type Options struct {
	// Token is the bearer token that every request must have, those to the admin
	// paths too. Empty: none is asked for. It is in no violation, and what
	// [Bank.Requests] returns is without it.
	Token string
	// TransferPath, KeyHeader and LookupParameter are those of the contract, for
	// banks that call them otherwise. Default to /v1/credit-transfers,
	// Idempotency-Key and client_reference.
	TransferPath, KeyHeader, LookupParameter string
	// QuotedKeys says that the key's header is a quoted string, as the IETF draft
	// has it.
	QuotedKeys bool
	// NotFoundCode is the code of the typed 404. Defaults to [CodeNotFound].
	NotFoundCode string
	// ProblemBase is what stands before the code in a problem's type. Defaults to
	// "urn:fakebank:problem:".
	ProblemBase string
	// ReturnedWord is the status of a transfer that was executed and sent back.
	// Defaults to [Returned].
	ReturnedWord string
	// SettlementOf names the settlement that a transfer is of, where
	// [Bank.Expect] did not. An empty name: unknown. Defaults to nil: all unknown.
	// It is called with the bank locked and must not use it.
	SettlementOf func(Transfer) string
	// Tolerate are rules that are not policed, for tests that break them on
	// purpose.
	Tolerate []Rule
}

func (o Options) withDefaults() Options {
	o.TransferPath = cmp.Or(o.TransferPath, "/v1/credit-transfers")
	o.KeyHeader = cmp.Or(o.KeyHeader, "Idempotency-Key")
	o.LookupParameter = cmp.Or(o.LookupParameter, "client_reference")
	o.NotFoundCode = cmp.Or(o.NotFoundCode, CodeNotFound)
	o.ProblemBase = cmp.Or(o.ProblemBase, "urn:fakebank:problem:")
	o.ReturnedWord = cmp.Or(o.ReturnedWord, Returned)
	return o
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
	plans      plans
	keys       map[string]*keyState
	transfers  []*transfer
	late       []*lateExecution
	downUntil  time.Time
	expected   map[string]string // settlement by key
	keyOf      map[string]string // key by settlement, as expected
	executions map[string]int    // by settlement, as far as they were policed
	violations []string
	carried    map[string]int // requests by connection that came through Listener
	connFaults []ConnFault
	connRest   ConnFault
}

// New returns a good bank that reads the time from now. With a tb, violations
// fail the test, and the bank is closed in its cleanup; tb can be nil.
func New(tb TB, now func() time.Time, options Options) *Bank {
	b := &Bank{
		options: options.withDefaults(), now: now, tb: tb,
		plans:      plans{byKey: map[string]Plan{}, byCreditor: map[string]Plan{}},
		keys:       map[string]*keyState{},
		expected:   map[string]string{},
		keyOf:      map[string]string{},
		executions: map[string]int{},
		carried:    map[string]int{},
	}
	b.open, b.close = context.WithCancel(context.Background())
	b.mux = http.NewServeMux()
	b.mux.HandleFunc("POST "+b.options.TransferPath, b.post)
	b.mux.HandleFunc("GET "+b.options.TransferPath, b.get)
	b.mux.HandleFunc("GET "+ledgerPath, b.adminLedger)
	b.mux.HandleFunc("POST "+statusPath, b.adminStatus)
	if tb != nil {
		tb.Cleanup(b.endTest)
	}
	return b
}

// Close ends everything that hangs, and the servers that Serve and Start run. The
// ledger can still be read. It can be called any number of times.
func (b *Bank) Close() { b.close() }

// endTest polices what would still be executed, and lets go of the test: nothing
// may be reported after its end.
func (b *Bank) endTest() {
	b.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.executeAllLate()
	if n := len(b.violations); n > 0 && b.tb != nil {
		b.tb.Helper()
		b.tb.Errorf("fakebank: %d violations in all; the first: %s", n, b.violations[0])
	}
	b.tb = nil
}

// ServeHTTP answers one request.
func (b *Bank) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.mux.ServeHTTP(w, r) }

// locked runs f with the bank locked and everything done that is due.
func (b *Bank) locked(f func(now time.Time)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now().UTC().Round(0)
	b.executeLate(now)
	f(now)
}
