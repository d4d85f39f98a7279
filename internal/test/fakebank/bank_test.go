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

// recorder is a TB that records failures.
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

// client is a client of a bank that it starts.
type client struct {
	*fakebank.Bank

	t     *testing.T
	clock *fakebank.Clock
	url   string
	http  *http.Client
}

// newClient starts a bank that reports violations to tb.
func newClient(t *testing.T, tb fakebank.TB, options fakebank.Options) *client {
	t.Helper()
	clock := fakebank.NewClock(noon)
	c := &client{Bank: fakebank.New(tb, clock.Now, options), t: t, clock: clock}
	t.Cleanup(c.Close)
	var err error
	if c.url, err = c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.http = &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// newDefaultClient starts a bank without options that fails t on violations.
func newDefaultClient(t *testing.T) *client {
	t.Helper()
	return newClient(t, t, fakebank.Options{})
}

func newKey() string { return uuid.NewString() }

func orderOf(key string) string {
	return `{"client_reference":"` + key + `","amount_minor":4731,"currency":"USD","debtor_account":"reserve-claims",` +
		`"creditor_account":"cp-19","remittance":"claim 19-4431"}`
}

// got is an answer.
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
	_ = json.Unmarshal([]byte(g.body), &p) // without one: empty
	return p.Code
}

func (c *client) do(r *http.Request) got {
	resp, err := c.http.Do(r)
	if err != nil {
		return got{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return got{resp.StatusCode, resp.Header, string(body), err}
}

func (c *client) postRequest(key, body string) *http.Request {
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+"/v1/credit-transfers", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/json")
	return r
}

func (c *client) send(key string) got { return c.do(c.postRequest(key, orderOf(key))) }

func (c *client) ask(key string) got { return c.visit("/v1/credit-transfers?client_reference=" + key) }

func (c *client) visit(path string) got {
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.do(r)
}

// wantExecuted fails unless the ledger has n transfers.
func (c *client) wantExecuted(n int) {
	c.t.Helper()
	if ledger := c.Ledger(); len(ledger) != n {
		c.t.Errorf("the ledger has %d transfers, want %d: %+v", len(ledger), n, ledger)
	}
}

// statuses returns the status words of a status request, or its HTTP status.
func (c *client) statuses(key string) string {
	c.t.Helper()
	g := c.ask(key)
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

func TestWithoutFaults(t *testing.T) {
	t.Parallel()
	c := newDefaultClient(t)
	key := newKey()
	want := fmt.Sprintf(`{"id":"bt-%s-1","client_reference":%q,"amount_minor":4731,"currency":"USD","creditor_account":"cp-19","status":%q}`,
		key, key, "ACCP")
	if g := c.send(key); g.status != http.StatusCreated || g.body != want {
		t.Errorf("answer %+v, want 201 and %s", g, want)
	}
	if g := c.ask(key); g.body != `{"transfers":[`+strings.Replace(want, "ACCP", "ACSC", 1)+`]}` {
		t.Errorf("status %+v", g)
	}
	if g := c.ask(newKey()); g.status != http.StatusOK || g.body != `{"transfers":[]}` {
		t.Errorf("status of an unknown key: %+v", g)
	}
	ledger := c.Ledger()
	if len(ledger) != 1 || !ledger[0].Moved() || ledger[0].DebtorAccount != "reserve-claims" || !ledger[0].ExecutedAt.Equal(noon) {
		t.Errorf("ledger %+v", ledger)
	}
	if requests := c.Requests()[key]; requests != (fakebank.Requests{Posts: 1, MaxInFlight: 1}) {
		t.Errorf("requests %+v", requests)
	}
}

func TestSettleChangesTheStatus(t *testing.T) {
	t.Parallel()
	c := newDefaultClient(t)
	key := newKey()
	c.Default(fakebank.Plan{Life: []fakebank.Change{{Status: fakebank.Accepted}, {After: time.Hour, Status: fakebank.Settled}}})
	if err := c.Settle(key, fakebank.Returned); err == nil {
		t.Error("changed the status of an unknown key")
	}
	c.send(key)
	if err := c.Settle(key, fakebank.Returned); err != nil {
		t.Fatal(err)
	}
	c.clock.Advance(2 * time.Hour)
	ledger := c.Ledger()
	if ledger[0].Status != fakebank.Returned || !ledger[0].Returned || ledger[0].Moved() {
		t.Errorf("ledger %+v", ledger)
	}
}
