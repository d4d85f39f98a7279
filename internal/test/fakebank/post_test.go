package fakebank_test

import (
	"bufio"
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

func TestBefore(t *testing.T) {
	t.Parallel()
	date := fakebank.RetryAt(noon)
	if date != noon.Format(http.TimeFormat) {
		t.Errorf("date %q", date)
	}
	for name, attempt := range map[string]fakebank.Attempt{
		"redirect":         {BeforeStatus: http.StatusMovedPermanently},
		"unauthorized":     {BeforeStatus: http.StatusUnauthorized},
		"forbidden":        {BeforeStatus: http.StatusForbidden, Code: "scope_missing"},
		"request timeout":  {BeforeStatus: http.StatusRequestTimeout},
		"too early":        {BeforeStatus: http.StatusTooEarly},
		"too many":         {BeforeStatus: http.StatusTooManyRequests, RetryAfter: "7"},
		"too many, date":   {BeforeStatus: http.StatusTooManyRequests, RetryAfter: date},
		"too many, absurd": {BeforeStatus: http.StatusTooManyRequests, RetryAfter: "99999999999999999999"},
		"unavailable":      {BeforeStatus: http.StatusServiceUnavailable, Page: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, key := openGood(t), newKey()
			x.Script(key, fakebank.Plan{Attempts: []fakebank.Attempt{attempt}})
			g := x.send(key)
			if g.status != attempt.BeforeStatus || g.header.Get("Retry-After") != attempt.RetryAfter {
				t.Errorf("got %+v", g)
			}
			if html := strings.HasPrefix(g.header.Get("Content-Type"), "text/html"); html != attempt.Page {
				t.Errorf("content type %q", g.header.Get("Content-Type"))
			}
			if attempt.Code != "" && g.code() != attempt.Code {
				t.Errorf("code %q", g.code())
			}
			if where := g.header.Get("Location"); (where != "") != (g.status/100 == 3) {
				t.Errorf("location %q", where)
			} else if where != "" && x.visit(where).status != http.StatusOK {
				t.Errorf("a GET of %q is not answered 200", where)
			}
			x.executed(0)
			if g := x.send(key); g.status != http.StatusCreated {
				t.Errorf("the next send got %+v", g)
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	x, key := openGood(t), newKey()
	x.Script(key, fakebank.Plan{Attempts: []fakebank.Attempt{{Before: fakebank.BeforeRefuse}}})
	if g := x.send(key); g.err == nil {
		t.Errorf("got %+v", g)
	}
	if came := x.RequestsOf(key); came.Posts != 1 || came.Received != 0 {
		t.Errorf("requests %+v", came)
	}
	x.executed(0)
}

func TestAnswersThatAreWholeButWrong(t *testing.T) {
	t.Parallel()
	for answer, want := range map[fakebank.Answer]struct {
		status int
		part   string
	}{
		fakebank.AnswerEmptyObject:   {http.StatusCreated, "{}"},
		fakebank.AnswerNull:          {http.StatusCreated, "null"},
		fakebank.AnswerHTML:          {http.StatusOK, "<html>"},
		fakebank.AnswerNoContent:     {http.StatusNoContent, ""},
		fakebank.AnswerErrorObject:   {http.StatusOK, `{"error":`},
		fakebank.AnswerTrailing:      {http.StatusCreated, `"ACCP"}{"debug":true}`},
		fakebank.AnswerHuge:          {http.StatusCreated, strings.Repeat(" ", 5<<20) + "}"},
		fakebank.AnswerWrongAmount:   {http.StatusCreated, `"amount_minor":4732`},
		fakebank.AnswerWrongCurrency: {http.StatusCreated, `"currency":"EUR"`},
		fakebank.AnswerWrongCreditor: {http.StatusCreated, `"creditor_account":"cp-19-other"`},
		fakebank.AnswerWrongKey:      {http.StatusCreated, `"client_reference":"00000000-`},
		fakebank.AnswerNoID:          {http.StatusCreated, `"id":""`},
	} {
		t.Run(string(answer), func(t *testing.T) {
			t.Parallel()
			x, key := openGood(t), newKey()
			x.Script(key, fakebank.Plan{Attempts: []fakebank.Attempt{{Answer: answer}}})
			if g := x.send(key); g.err != nil || g.status != want.status || !strings.Contains(g.body, want.part) {
				t.Errorf("got %d, %.300q, %v", g.status, g.body, g.err)
			}
			x.executed(1)
			if g := x.send(key); g.status != http.StatusOK || !strings.Contains(g.body, `"amount_minor":4731,"currency":"USD","creditor_account":"cp-19"`) {
				t.Errorf("replay %+v", g)
			}
		})
	}
}

// exchange sends by hand and returns all bytes that come back, and how it ends.
func (x *teller) exchange(key string) (string, error) {
	conn, err := new(net.Dialer).DialContext(x.t.Context(), "tcp", strings.TrimPrefix(x.url, "http://"))
	if err != nil {
		x.t.Fatal(err)
	}
	defer conn.Close()
	w := bufio.NewWriter(conn)
	if err := errors.Join(x.postRequest(key, orderOf(key)).Write(w), w.Flush()); err != nil {
		x.t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	return string(all), err
}

func TestAnswersThatBreakOff(t *testing.T) {
	t.Parallel()
	for answer, want := range map[fakebank.Answer]struct {
		head    string
		err     error
		unknown bool // a client cannot notice
	}{
		fakebank.AnswerReset:         {head: "", err: syscall.ECONNRESET},
		fakebank.AnswerClose:         {head: ""},
		fakebank.AnswerCut:           {head: "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 1"},
		fakebank.AnswerCutChunked:    {head: "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"},
		fakebank.AnswerCutUnsized:    {head: "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n", unknown: true},
		fakebank.AnswerInformational: {head: "HTTP/1.1 103 Early Hints\r\n\r\n"},
	} {
		t.Run(string(answer), func(t *testing.T) {
			t.Parallel()
			x, key := openGood(t), newKey()
			x.Script(key, fakebank.Plan{Rest: fakebank.Attempt{Answer: answer, CutAt: 9}})
			text, err := x.exchange(key)
			if !strings.HasPrefix(text, want.head) || !errors.Is(err, want.err) {
				t.Errorf("got %q, %v", text, err)
			}
			if strings.Contains(text, "201") && !strings.HasSuffix(text, "\r\n"+`{"id":"bt`) {
				t.Errorf("cut at the wrong byte: %q", text)
			}
			if g := x.send(key); (g.err == nil) != want.unknown {
				t.Errorf("a client gets %+v", g)
			}
			x.executed(1)
		})
	}
}

func TestReject(t *testing.T) {
	t.Parallel()
	x, key := openGood(t), newKey()
	x.Script(key, fakebank.Plan{
		Attempts: []fakebank.Attempt{{Reject: "insufficient_funds"}, {}, {Reject: "creditor_account_closed", RejectStatus: http.StatusBadRequest}},
	})
	g := x.send(key)
	if g.status != http.StatusUnprocessableEntity || g.code() != "insufficient_funds" || g.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %+v", g)
	}
	x.executed(0)
	if g := x.send(key); g.status != http.StatusCreated {
		t.Errorf("got %+v", g)
	}
	if g := x.send(key); g.status != http.StatusBadRequest || g.code() != "creditor_account_closed" {
		t.Errorf("a refusal after the execution: %+v", g)
	}
	x.executed(1)
}

func TestExecuteNever(t *testing.T) {
	t.Parallel()
	x, key := openGood(t), newKey()
	x.Script(key, fakebank.Plan{Attempts: []fakebank.Attempt{{Execute: fakebank.ExecuteNever}}})
	if g := x.send(key); g.status != http.StatusCreated {
		t.Errorf("got %+v", g)
	}
	x.executed(0)
	if words := x.statuses(key); words != "" {
		t.Errorf("statuses %q", words)
	}
}

func TestExecuteLate(t *testing.T) {
	t.Parallel()
	late := fakebank.Attempt{Execute: fakebank.ExecuteLate, LateBy: time.Hour, Answer: fakebank.AnswerClose}
	t.Run("after a not found", func(t *testing.T) {
		t.Parallel()
		x, key := openGood(t), newKey()
		x.Script(key, fakebank.Plan{Attempts: []fakebank.Attempt{late}})
		x.send(key)
		x.clock.Advance(time.Hour - time.Nanosecond)
		if words := x.statuses(key); words != "" {
			t.Errorf("statuses %q", words)
		}
		x.clock.Advance(2 * time.Hour)
		if words := x.statuses(key); words != "ACSC" {
			t.Errorf("statuses %q", words)
		}
		if at := x.Ledger()[0].ExecutedAt; !at.Equal(noon.Add(time.Hour)) {
			t.Errorf("executed at %v", at)
		}
	})
	t.Run("a send overtakes it", func(t *testing.T) {
		t.Parallel()
		x, key := openGood(t), newKey()
		x.Script(key, fakebank.Plan{Attempts: []fakebank.Attempt{late}})
		x.send(key)
		if g := x.send(key); g.status != http.StatusCreated {
			t.Errorf("got %+v", g)
		}
		x.clock.Advance(2 * time.Hour)
		x.executed(1)
	})
	t.Run("queued", func(t *testing.T) {
		t.Parallel()
		x, key := openGood(t), newKey()
		queued := fakebank.Attempt{Execute: fakebank.ExecuteQueued, LateBy: time.Hour}
		x.Script(key, fakebank.Plan{Attempts: []fakebank.Attempt{queued}, Lag: time.Minute})
		x.send(key)
		if words := x.statuses(key); words != "" {
			t.Errorf("within the lag, statuses %q", words)
		}
		x.clock.Advance(time.Minute)
		if words := x.statuses(key); words != "RCVD" {
			t.Errorf("statuses %q", words)
		}
		if g := x.send(key); g.status != http.StatusConflict || g.code() != fakebank.CodeInProgress {
			t.Errorf("got %+v", g)
		}
		x.executed(0)
		x.clock.Advance(time.Hour)
		x.executed(1)
		if g := x.send(key); g.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got %+v", g)
		}
	})
}

func TestExecuteCrash(t *testing.T) {
	t.Parallel()
	x, key := openGood(t), newKey()
	x.Script(key, fakebank.Plan{Attempts: []fakebank.Attempt{{Execute: fakebank.ExecuteCrash, DownFor: time.Minute}}})
	if g := x.send(key); g.err == nil {
		t.Errorf("got %+v", g)
	}
	if g := x.ask(key); g.err == nil {
		t.Errorf("while it is down: %+v", g)
	}
	if g := x.send(newKey()); g.err == nil {
		t.Errorf("while it is down: %+v", g)
	}
	x.clock.Advance(time.Minute)
	if words := x.statuses(key); words != "ACSC" {
		t.Errorf("statuses %q", words)
	}
	if g := x.send(key); g.status != http.StatusConflict || g.code() != fakebank.CodeInProgress {
		t.Errorf("got %+v", g)
	}
	x.executed(1)
}

func TestScriptCreditor(t *testing.T) {
	t.Parallel()
	x := openGood(t)
	x.ScriptCreditor("cp-19", fakebank.Plan{Rest: fakebank.Attempt{Before: fakebank.BeforeRefuse}, StepsRest: fakebank.Step{HTTPStatus: 500}})
	x.ScriptCreditor("cp-20", fakebank.Plan{Rest: fakebank.Attempt{Reject: "limit_exceeded"}})
	key, scripted := newKey(), newKey()
	x.Script(scripted, fakebank.Plan{})
	if g := x.send(key); g.err == nil {
		t.Errorf("got %+v", g)
	}
	if g := x.ask(key); g.status != http.StatusInternalServerError {
		t.Errorf("got %+v", g)
	}
	if g := x.send(scripted); g.status != http.StatusCreated {
		t.Errorf("the key's plan comes first; got %+v", g)
	}
	key = newKey()
	if g := x.do(x.postRequest(key, strings.Replace(orderOf(key), "cp-19", "cp-20", 1))); g.code() != "limit_exceeded" {
		t.Errorf("got %+v", g)
	}
}

func TestRequestsThatAreNotTheContracts(t *testing.T) {
	t.Parallel()
	x := open(t, t, fakebank.Options{Token: "s3cret", Tolerate: []fakebank.Rule{fakebank.RuleKeyForm, fakebank.RuleKeyIsReference}})
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
			r := x.postRequest(key, strings.Replace(body, "KEY", key, 1))
			r.Header.Set("Authorization", "Bearer s3cret")
			if test.change != nil {
				test.change(r)
			}
			if g := x.do(r); g.status != test.status {
				t.Errorf("got %+v", g)
			}
			for _, header := range x.RequestsOf(key).Headers {
				if strings.Contains(header.Get("Authorization"), "s3cre") {
					t.Error("the token is kept")
				}
			}
		})
	}
	t.Cleanup(func() { x.executed(1) })
}
