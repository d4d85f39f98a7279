package fakebank_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// recorder is a test that can fail without failing the test.
type recorder struct {
	mu       sync.Mutex
	errors   []string
	cleanups []func()
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// end ends the recorded test.
func (r *recorder) end() {
	for _, f := range r.cleanups {
		f()
	}
}

func (r *recorder) failures() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.errors...)
}

// teller is a bank that is served on a real socket, and a client of it.
type teller struct {
	*fakebank.Bank

	t         *testing.T
	clock     *fakebank.Clock
	url       string
	transport *http.Transport
}

// open opens a bank that fails tb on violations.
func open(t *testing.T, tb fakebank.TB, options fakebank.Options) *teller {
	t.Helper()
	clock := fakebank.NewClock(noon)
	x := &teller{Bank: fakebank.New(tb, clock.Now, options), t: t, clock: clock}
	t.Cleanup(x.Close)
	var err error
	if x.url, err = x.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.transport = &http.Transport{DisableKeepAlives: true}
	t.Cleanup(x.transport.CloseIdleConnections)
	return x
}

func openGood(t *testing.T) *teller {
	t.Helper()
	return open(t, t, fakebank.Options{})
}

func newKey() string { return uuid.NewString() }

func orderOf(key string) string {
	return `{"client_reference":"` + key + `","amount_minor":4731,"currency":"USD","debtor_account":"reserve-claims",` +
		`"creditor_account":"cp-19","remittance":"claim 19-4431"}`
}

// got is what a client gets.
type got struct {
	status int
	header http.Header
	body   string
	err    error // of the exchange, or of reading the body
}

func (g got) code() string {
	var p struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal([]byte(g.body), &p) // no code is a code
	return p.Code
}

func (x *teller) do(r *http.Request) got {
	client := &http.Client{
		Transport: x.transport, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(r)
	if err != nil {
		return got{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return got{resp.StatusCode, resp.Header, string(body), err}
}

func (x *teller) postRequest(key, body string) *http.Request {
	r, err := http.NewRequestWithContext(x.t.Context(), http.MethodPost, x.url+"/v1/credit-transfers", strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/json")
	return r
}

func (x *teller) send(key string) got { return x.do(x.postRequest(key, orderOf(key))) }

func (x *teller) ask(key string) got { return x.visit("/v1/credit-transfers?client_reference=" + key) }

func (x *teller) visit(path string) got {
	r, err := http.NewRequestWithContext(x.t.Context(), http.MethodGet, x.url+path, nil)
	if err != nil {
		x.t.Fatal(err)
	}
	return x.do(r)
}

// executed fails unless the ledger has n transfers.
func (x *teller) executed(n int) {
	x.t.Helper()
	if ledger := x.Ledger(); len(ledger) != n {
		x.t.Errorf("the ledger has %d transfers, want %d: %+v", len(ledger), n, ledger)
	}
}

// statuses asks and returns the status words.
func (x *teller) statuses(key string) string {
	x.t.Helper()
	g := x.ask(key)
	var list struct {
		Transfers []struct {
			Status string `json:"status"`
		} `json:"transfers"`
	}
	if err := json.Unmarshal([]byte(g.body), &list); err != nil || g.status != http.StatusOK {
		return fmt.Sprint(g.status)
	}
	words := []string{}
	for _, t := range list.Transfers {
		words = append(words, t.Status)
	}
	return strings.Join(words, " ")
}

func TestGoodBank(t *testing.T) {
	t.Parallel()
	x := openGood(t)
	key := newKey()
	want := fmt.Sprintf(`{"id":"bt-%s-1","client_reference":%q,"amount_minor":4731,"currency":"USD","creditor_account":"cp-19","status":%q}`,
		key, key, "ACCP")
	if g := x.send(key); g.status != http.StatusCreated || g.body != want {
		t.Errorf("answer %+v, want 201 and %s", g, want)
	}
	if g := x.ask(key); g.body != `{"transfers":[`+strings.Replace(want, "ACCP", "ACSC", 1)+`]}` {
		t.Errorf("status %+v", g)
	}
	if g := x.ask(newKey()); g.status != http.StatusOK || g.body != `{"transfers":[]}` {
		t.Errorf("status of a key that is not known: %+v", g)
	}
	ledger := x.Ledger()
	if len(ledger) != 1 || !ledger[0].Moved() || ledger[0].DebtorAccount != "reserve-claims" || !ledger[0].ExecutedAt.Equal(noon) {
		t.Errorf("ledger %+v", ledger)
	}
	came := x.RequestsOf(key)
	if came.Posts != 1 || came.Received != 1 || came.Gets != 1 || came.MaxInFlight != 1 || string(came.Bodies[0]) != orderOf(key) {
		t.Errorf("requests %+v", came)
	}
}

func TestSettleMovesATransfer(t *testing.T) {
	t.Parallel()
	x := openGood(t)
	key := newKey()
	x.Default(fakebank.Plan{Life: []fakebank.Change{{Status: fakebank.Accepted}, {After: time.Hour, Status: fakebank.Settled}}})
	if err := x.Settle(key, fakebank.Returned); err == nil {
		t.Error("settled what does not exist")
	}
	x.send(key)
	if err := x.Settle(key, fakebank.Returned); err != nil {
		t.Fatal(err)
	}
	x.clock.Advance(2 * time.Hour)
	ledger := x.Ledger()
	if ledger[0].Status != fakebank.Returned || !ledger[0].Returned || ledger[0].Moved() {
		t.Errorf("ledger %+v", ledger)
	}
}
