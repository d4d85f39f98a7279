package fakebank_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

func TestSteps(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		step   fakebank.Step
		status int // zero: no complete answer
		part   string
	}{
		"empty":        {fakebank.Step{Say: fakebank.SayEmpty}, 200, `{"transfers":[]}`},
		"typed 404":    {fakebank.Step{Say: fakebank.SayTyped404}, 404, `"code":"transfer_not_found"`},
		"plain 404":    {fakebank.Step{Say: fakebank.SayPlain404}, 404, "<html>"},
		"bad request":  {fakebank.Step{HTTPStatus: 400}, 400, "invalid_request"},
		"unauthorized": {fakebank.Step{HTTPStatus: 401}, 401, "unauthorized"},
		"too many":     {fakebank.Step{HTTPStatus: 429, RetryAfter: "3"}, 429, "rate_limited"},
		"hangs":        {fakebank.Step{Say: fakebank.SayHang}, 0, ""},
		"unknown word": {fakebank.Step{Status: "WXYZ"}, 200, `"status":"WXYZ"`},
		"twice":        {fakebank.Step{Say: fakebank.SayTwice}, 200, `-1-again"`},
		"wrong amount": {fakebank.Step{Answer: fakebank.AnswerWrongAmount}, 200, `"amount_minor":4732`},
		"trailing":     {fakebank.Step{Answer: fakebank.AnswerTrailing}, 200, `]}{"debug"`},
		"null":         {fakebank.Step{Answer: fakebank.AnswerNull}, 200, "null"},
		"reset":        {fakebank.Step{Answer: fakebank.AnswerReset}, 0, ""},
		"cut":          {fakebank.Step{Answer: fakebank.AnswerCut}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, key := newDefaultClient(t), newKey()
			c.Default(fakebank.Plan{Steps: []fakebank.Step{test.step}})
			if test.step.Say == fakebank.SayHang {
				c.http.Timeout = 200 * time.Millisecond
			}
			c.send(key)
			g := c.ask(key)
			if test.status == 0 {
				if g.err == nil {
					t.Errorf("got %+v", g)
				}
			} else if g.status != test.status || !strings.Contains(g.body, test.part) || g.header.Get("Retry-After") != test.step.RetryAfter {
				t.Errorf("got %+v", g)
			}
			if words := c.statuses(key); words != "ACSC" {
				t.Errorf("the next status request: %q", words)
			}
			if c.Ledger()[0].Status != fakebank.Settled {
				t.Error("a status request changed the ledger")
			}
		})
	}
}

func TestStatusChangesOverTime(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for name, life := range map[string][]fakebank.Change{
		"confirmed then returned": {{Status: fakebank.Settled}, {After: 3 * day, Status: fakebank.Returned}},
		"rejected then confirmed": {{Status: fakebank.Rejected}, {After: 3 * day, Status: fakebank.Settled}},
		"pending for ever":        {{Status: fakebank.Accepted}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, key := newDefaultClient(t), newKey()
			c.Default(fakebank.Plan{Life: life})
			c.send(key)
			for i, change := range life {
				c.clock.Advance(time.Duration(i) * change.After)
				moved := change.Status == fakebank.Settled || change.Status == fakebank.Accepted
				if words := c.statuses(key); words != change.Status {
					t.Errorf("statuses %q, want %s", words, change.Status)
				}
				if l := c.Ledger()[0]; l.Status != change.Status || l.Moved() != moved || l.Returned != (change.Status == fakebank.Returned) {
					t.Errorf("ledger %+v", l)
				}
			}
		})
	}
}

func TestRejectsInvalidStatusRequests(t *testing.T) {
	t.Parallel()
	c := newClient(t, t, fakebank.Options{Token: "s3cret"})
	if g := c.ask(newKey()); g.status != http.StatusUnauthorized {
		t.Errorf("got %+v", g)
	}
	c = newDefaultClient(t)
	for _, query := range []string{"", "?other=1", "?client_reference=a&client_reference=b", "?client_reference=a&limit=1"} {
		if g := c.visit("/v1/credit-transfers" + query); g.status != http.StatusBadRequest {
			t.Errorf("%q: got %+v", query, g)
		}
	}
}
