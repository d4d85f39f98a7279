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
		status int // zero: no answer
		part   string
	}{
		"empty":        {fakebank.Step{Say: fakebank.SayEmpty}, 200, `{"transfers":[]}`},
		"typed 404":    {fakebank.Step{Say: fakebank.SayTyped404}, 404, `"code":"transfer_not_found"`},
		"plain 404":    {fakebank.Step{Say: fakebank.SayPlain404}, 404, "<html>"},
		"bad request":  {fakebank.Step{HTTPStatus: 400}, 400, fakebank.CodeInvalid},
		"unauthorized": {fakebank.Step{HTTPStatus: 401}, 401, fakebank.CodeUnauthorized},
		"too many":     {fakebank.Step{HTTPStatus: 429, RetryAfter: "3"}, 429, "rate_limited"},
		"error":        {fakebank.Step{HTTPStatus: 502, Page: true}, 502, "<html>"},
		"unknown word": {fakebank.Step{Status: "WXYZ"}, 200, `"status":"WXYZ"`},
		"reason":       {fakebank.Step{Status: "RJCT", Reason: "DUPL"}, 200, `"status":"RJCT","reason":"DUPL"`},
		"two":          {fakebank.Step{Say: fakebank.SayTwice}, 200, `-1-again"`},
		"wrong amount": {fakebank.Step{Answer: fakebank.AnswerWrongAmount}, 200, `"amount_minor":4732`},
		"trailing":     {fakebank.Step{Answer: fakebank.AnswerTrailing}, 200, `]}{"debug"`},
		"null":         {fakebank.Step{Answer: fakebank.AnswerNull}, 200, "null"},
		"cut, unsized": {fakebank.Step{Answer: fakebank.AnswerCutUnsized, CutAt: 12}, 200, `{"transfers"`},
		"reset":        {fakebank.Step{Answer: fakebank.AnswerReset}, 0, ""},
		"refused":      {fakebank.Step{Say: fakebank.SayRefuse}, 0, ""},
		"cut":          {fakebank.Step{Answer: fakebank.AnswerCut}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, key := openGood(t), newKey()
			x.Script(key, fakebank.Plan{Steps: []fakebank.Step{test.step}})
			x.send(key)
			g := x.ask(key)
			if test.status == 0 {
				if g.err == nil {
					t.Errorf("got %+v", g)
				}
			} else if g.status != test.status || !strings.Contains(g.body, test.part) || g.header.Get("Retry-After") != test.step.RetryAfter {
				t.Errorf("got %+v", g)
			}
			if words := x.statuses(key); words != "ACSC" {
				t.Errorf("the next question: %q", words)
			}
			if x.Ledger()[0].Status != fakebank.Settled {
				t.Error("a question changed the ledger")
			}
		})
	}
}

func TestLag(t *testing.T) {
	t.Parallel()
	x, key := openGood(t), newKey()
	x.Default(fakebank.Plan{Lag: 15 * time.Second, Typed404: true})
	x.send(key)
	x.clock.Advance(15*time.Second - time.Nanosecond)
	if g := x.ask(key); g.status != http.StatusNotFound || g.code() != fakebank.CodeNotFound {
		t.Errorf("got %+v", g)
	}
	x.clock.Advance(time.Nanosecond)
	if words := x.statuses(key); words != "ACSC" {
		t.Errorf("statuses %q", words)
	}
}

func TestFlapping(t *testing.T) {
	t.Parallel()
	x, key := openGood(t), newKey()
	x.Script(key, fakebank.Plan{Steps: []fakebank.Step{
		{}, {Say: fakebank.SayEmpty}, {}, {Status: fakebank.Rejected}, {Status: fakebank.Settled},
	}})
	x.send(key)
	for i, want := range []string{"ACSC", "", "ACSC", "RJCT", "ACSC"} {
		if words := x.statuses(key); words != want {
			t.Errorf("question %d: %q, want %q", i, words, want)
		}
	}
}

func TestLife(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for name, life := range map[string][]fakebank.Change{
		"confirmed then returned": {{Status: fakebank.Settled}, {After: 3 * day, Status: fakebank.Returned}},
		"rejected then confirmed": {{Status: fakebank.Rejected}, {After: 3 * day, Status: fakebank.Settled}},
		"pending for ever":        {{Status: fakebank.Accepted}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, key := openGood(t), newKey()
			x.Default(fakebank.Plan{Life: life})
			x.send(key)
			for i, c := range life {
				x.clock.Advance(time.Duration(i) * c.After)
				moved := c.Status == fakebank.Settled || c.Status == fakebank.Accepted
				if words := x.statuses(key); words != c.Status {
					t.Errorf("statuses %q, want %s", words, c.Status)
				}
				if l := x.Ledger()[0]; l.Status != c.Status || l.Moved() != moved || l.Returned != (c.Status == fakebank.Returned) {
					t.Errorf("ledger %+v", l)
				}
			}
		})
	}
}

func TestQuestionsThatAreNotTheContracts(t *testing.T) {
	t.Parallel()
	x := open(t, t, fakebank.Options{Token: "s3cret"})
	if g := x.ask(newKey()); g.status != http.StatusUnauthorized {
		t.Errorf("got %+v", g)
	}
	x = openGood(t)
	for _, query := range []string{"", "?other=1", "?client_reference=a&client_reference=b", "?client_reference=a&limit=1"} {
		if g := x.visit("/v1/credit-transfers" + query); g.status != http.StatusBadRequest {
			t.Errorf("%q: got %+v", query, g)
		}
	}
}
