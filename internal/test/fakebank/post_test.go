package fakebank_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

func TestAnswersBeforeReading(t *testing.T) {
	t.Parallel()
	date := noon.Format(http.TimeFormat)
	for name, attempt := range map[string]fakebank.Attempt{
		"redirect":         {BeforeStatus: http.StatusMovedPermanently},
		"unauthorized":     {BeforeStatus: http.StatusUnauthorized},
		"forbidden":        {BeforeStatus: http.StatusForbidden},
		"too many":         {BeforeStatus: http.StatusTooManyRequests, RetryAfter: "7"},
		"too many, date":   {BeforeStatus: http.StatusTooManyRequests, RetryAfter: date},
		"too many, absurd": {BeforeStatus: http.StatusTooManyRequests, RetryAfter: "99999999999999999999"},
		"unavailable":      {BeforeStatus: http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, key := newDefaultClient(t), newKey()
			c.Default(fakebank.Plan{Attempts: []fakebank.Attempt{attempt}})
			g := c.send(key)
			if g.status != attempt.BeforeStatus || g.header.Get("Retry-After") != attempt.RetryAfter {
				t.Errorf("got %+v", g)
			}
			if where := g.header.Get("Location"); (where != "") != (g.status/100 == 3) {
				t.Errorf("location %q", where)
			} else if where != "" && c.visit(where).status != http.StatusOK {
				t.Errorf("GET %q is not answered 200", where)
			}
			c.wantExecuted(0)
			if g := c.send(key); g.status != http.StatusCreated {
				t.Errorf("the next send got %+v", g)
			}
		})
	}
}

// exchange sends over a plain connection and returns all bytes of the answer, and the
// error at its end.
func (c *client) exchange(key string) (string, error) {
	conn, err := new(net.Dialer).DialContext(c.t.Context(), "tcp", strings.TrimPrefix(c.url, "http://"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	w := bufio.NewWriter(conn)
	request := c.postRequest(key, orderOf(key))
	request.Close = true
	if err := errors.Join(request.Write(w), w.Flush()); err != nil {
		c.t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	return string(all), err
}

// The simulation's TestSendFaults shows that the bank adapter notices each of them.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const created, json = "HTTP/1.1 201 Created\r\n", "Content-Type: application/json\r\n"
	for answer, want := range map[fakebank.Answer]struct {
		head, part string
		err        error
	}{
		fakebank.AnswerEmptyObject:   {created, "\r\n\r\n{}", nil},
		fakebank.AnswerNull:          {created, "\r\n\r\nnull", nil},
		fakebank.AnswerHTML:          {"HTTP/1.1 200 OK\r\n", "<html>", nil},
		fakebank.AnswerNoContent:     {"HTTP/1.1 204 No Content\r\n", "", nil},
		fakebank.AnswerErrorObject:   {"HTTP/1.1 200 OK\r\n", `{"error":`, nil},
		fakebank.AnswerTrailing:      {created, `"ACCP"}{"debug":true}`, nil},
		fakebank.AnswerHuge:          {created, strings.Repeat(" ", 4<<10), nil},
		fakebank.AnswerWrongAmount:   {created, `"amount_minor":4732`, nil},
		fakebank.AnswerWrongCurrency: {created, `"currency":"EUR"`, nil},
		fakebank.AnswerWrongCreditor: {created, `"creditor_account":"cp-19-other"`, nil},
		fakebank.AnswerWrongKey:      {created, `"client_reference":"00000000-`, nil},
		fakebank.AnswerReset:         {"", "", syscall.ECONNRESET},
		fakebank.AnswerClose:         {"", "", nil},
		fakebank.AnswerCut:           {created + json + "Content-Length: 1", `{"id":"bt`, nil},
		fakebank.AnswerCutChunked:    {created + json + "Transfer-Encoding: chunked\r\n\r\n", `{"id":"bt`, nil},
		fakebank.AnswerCutUnsized:    {created + json + "Connection: close\r\n\r\n", `{"id":"bt`, nil},
		fakebank.AnswerInformational: {"HTTP/1.1 103 Early Hints\r\n\r\n", "", nil},
	} {
		t.Run(string(answer), func(t *testing.T) {
			t.Parallel()
			c, key := newDefaultClient(t), newKey()
			c.Default(fakebank.Plan{Attempts: []fakebank.Attempt{{Answer: answer}}})
			text, err := c.exchange(key)
			if !strings.HasPrefix(text, want.head) || !strings.Contains(text, want.part) || want.head == "" && text != "" || !errors.Is(err, want.err) {
				t.Errorf("got %.300q, %v", text, err)
			}
			if cut := strings.HasPrefix(string(answer), "cut"); cut && strings.Contains(text, "status") {
				t.Errorf("not half of the body: %q", text)
			}
			c.wantExecuted(1)
			if g := c.send(key); g.status != http.StatusOK || !strings.Contains(g.body, `"amount_minor":4731,"currency":"USD","creditor_account":"cp-19"`) {
				t.Errorf("replay %+v", g)
			}
		})
	}
}

func TestReject(t *testing.T) {
	t.Parallel()
	c, key := newDefaultClient(t), newKey()
	c.Default(fakebank.Plan{
		Attempts: []fakebank.Attempt{{Reject: "insufficient_funds"}, {}, {Reject: "creditor_account_closed"}},
	})
	g := c.send(key)
	if g.status != http.StatusUnprocessableEntity || g.code() != "insufficient_funds" || g.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %+v", g)
	}
	c.wantExecuted(0)
	if g := c.send(key); g.status != http.StatusCreated {
		t.Errorf("got %+v", g)
	}
	if g := c.send(key); g.code() != "creditor_account_closed" {
		t.Errorf("a refusal after the execution: %+v", g)
	}
	c.wantExecuted(1)
}

func TestExecuteNever(t *testing.T) {
	t.Parallel()
	c, key := newDefaultClient(t), newKey()
	c.Default(fakebank.Plan{Attempts: []fakebank.Attempt{{Execute: fakebank.ExecuteNever}}})
	if g := c.send(key); g.status != http.StatusCreated || c.statuses(key) != "" {
		t.Errorf("got %+v", g)
	}
	c.wantExecuted(0)
}

func TestExecuteLate(t *testing.T) {
	t.Parallel()
	for _, resent := range []bool{false, true} {
		c, key := newDefaultClient(t), newKey()
		c.Default(fakebank.Plan{Attempts: []fakebank.Attempt{{Execute: fakebank.ExecuteLate, LateBy: time.Hour, Answer: fakebank.AnswerClose}}})
		c.send(key)
		c.clock.Advance(time.Hour - time.Nanosecond)
		want := noon.Add(time.Hour)
		if words := c.statuses(key); words != "" {
			t.Errorf("statuses %q", words)
		}
		if resent { // the late send then finds the key used
			want = c.clock.Now()
			c.send(key)
		}
		c.clock.Advance(2 * time.Hour)
		if words := c.statuses(key); words != "ACSC" || !c.Ledger()[0].ExecutedAt.Equal(want) {
			t.Errorf("resent %t: statuses %q, ledger %+v", resent, words, c.Ledger())
		}
	}
}

// TestHang hangs until the client gives up, and until the bank is closed.
func TestHang(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attempt  fakebank.Attempt
		executed int
	}{
		"before": {fakebank.Attempt{Before: fakebank.BeforeHang}, 0},
		"after":  {fakebank.Attempt{Answer: fakebank.AnswerHang}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, key := newDefaultClient(t), newKey()
			c.Default(fakebank.Plan{Rest: test.attempt})
			c.http.Timeout = 200 * time.Millisecond
			if g := c.send(key); !errors.Is(g.err, context.DeadlineExceeded) {
				t.Errorf("got %+v", g)
			}
			c.wantExecuted(test.executed)
			c.http.Timeout = 30 * time.Second
			time.AfterFunc(200*time.Millisecond, c.Close)
			if g := c.send(key); g.err == nil || errors.Is(g.err, context.DeadlineExceeded) {
				t.Errorf("got %+v", g)
			}
			c.wantExecuted(test.executed)
		})
	}
}

func TestScriptCreditor(t *testing.T) {
	t.Parallel()
	c := newDefaultClient(t)
	c.ScriptCreditor("cp-19", fakebank.Plan{Rest: fakebank.Attempt{Before: fakebank.BeforeRefuse}, StepsRest: fakebank.Step{HTTPStatus: 500}})
	c.ScriptCreditor("cp-20", fakebank.Plan{Rest: fakebank.Attempt{Reject: "limit_exceeded"}})
	key := newKey()
	if g := c.send(key); g.err == nil || c.Requests()[key].Posts != 1 {
		t.Errorf("got %+v, requests %+v", g, c.Requests())
	}
	c.wantExecuted(0)
	if g := c.ask(key); g.status != http.StatusInternalServerError {
		t.Errorf("got %+v", g)
	}
	key = newKey()
	if g := c.do(c.postRequest(key, strings.Replace(orderOf(key), "cp-19", "cp-20", 1))); g.code() != "limit_exceeded" {
		t.Errorf("got %+v", g)
	}
}

func TestRejectsInvalidSends(t *testing.T) {
	t.Parallel()
	c := newClient(t, new(recorder), fakebank.Options{Token: "s3cret"})
	for name, test := range map[string]struct {
		change func(r *http.Request)
		body   string
		status int
	}{
		"good":            {status: http.StatusCreated},
		"no token":        {change: func(r *http.Request) { r.Header.Del("Authorization") }, status: http.StatusUnauthorized},
		"wrong token":     {change: func(r *http.Request) { r.Header.Set("Authorization", "Bearer s3cre") }, status: http.StatusUnauthorized},
		"no key":          {change: func(r *http.Request) { r.Header.Del("Idempotency-Key") }, status: http.StatusBadRequest},
		"text":            {change: func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, status: http.StatusUnsupportedMediaType},
		"PUT":             {change: func(r *http.Request) { r.Method = http.MethodPut }, status: http.StatusMethodNotAllowed},
		"other reference": {body: orderOf(newKey()), status: http.StatusBadRequest},
		"empty":           {body: " ", status: http.StatusBadRequest},
		"float":           {body: strings.Replace(orderOf("KEY"), "4731", "4731.0", 1), status: http.StatusBadRequest},
		"zero":            {body: strings.Replace(orderOf("KEY"), "4731", "0", 1), status: http.StatusBadRequest},
		"member twice":    {body: strings.Replace(orderOf("KEY"), "{", `{"currency":"USD",`, 1), status: http.StatusBadRequest},
		"unknown member":  {body: strings.Replace(orderOf("KEY"), "{", `{"note":"x",`, 1), status: http.StatusBadRequest},
		"trailing":        {body: orderOf("KEY") + "{}", status: http.StatusBadRequest},
		"too large":       {body: orderOf("KEY") + strings.Repeat(" ", 1<<20), status: http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, body := newKey(), test.body
			if body == "" {
				body = orderOf(key)
			}
			r := c.postRequest(key, strings.Replace(body, "KEY", key, 1))
			r.Header.Set("Authorization", "Bearer s3cret")
			if test.change != nil {
				test.change(r)
			}
			if g := c.do(r); g.status != test.status {
				t.Errorf("got %+v", g)
			}
		})
	}
	t.Cleanup(func() { c.wantExecuted(1) })
}
