package banktest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/bank/banktest"
)

func TestSteps(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		step   banktest.Step
		status int // zero: no answer
		part   string
	}{
		"empty":        {banktest.Step{Say: banktest.SayEmpty}, 200, `{"transfers":[]}`},
		"typed 404":    {banktest.Step{Say: banktest.SayTyped404}, 404, `"code":"transfer_not_found"`},
		"plain 404":    {banktest.Step{Say: banktest.SayPlain404}, 404, "<html>"},
		"bad request":  {banktest.Step{HTTPStatus: 400}, 400, banktest.CodeInvalid},
		"unauthorized": {banktest.Step{HTTPStatus: 401}, 401, banktest.CodeUnauthorized},
		"too many":     {banktest.Step{HTTPStatus: 429, RetryAfter: "3"}, 429, "rate_limited"},
		"error":        {banktest.Step{HTTPStatus: 502, Page: true}, 502, "<html>"},
		"unknown word": {banktest.Step{Status: "WXYZ"}, 200, `"status":"WXYZ"`},
		"reason":       {banktest.Step{Status: "RJCT", Reason: "DUPL"}, 200, `"status":"RJCT","reason":"DUPL"`},
		"two":          {banktest.Step{Say: banktest.SayTwice}, 200, `-1-again"`},
		"wrong amount": {banktest.Step{Answer: banktest.AnswerWrongAmount}, 200, `"amount_minor":4732`},
		"trailing":     {banktest.Step{Answer: banktest.AnswerTrailing}, 200, `]}{"debug"`},
		"null":         {banktest.Step{Answer: banktest.AnswerNull}, 200, "null"},
		"cut, unsized": {banktest.Step{Answer: banktest.AnswerCutUnsized, CutAt: 12}, 200, `{"transfers"`},
		"reset":        {banktest.Step{Answer: banktest.AnswerReset}, 0, ""},
		"refused":      {banktest.Step{Say: banktest.SayRefuse}, 0, ""},
		"cut":          {banktest.Step{Answer: banktest.AnswerCut}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, key := openGood(t), newKey()
			x.Script(key, banktest.Plan{Steps: []banktest.Step{test.step}})
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
			if x.Ledger()[0].Status != banktest.Settled {
				t.Error("a question changed the ledger")
			}
		})
	}
}

func TestLag(t *testing.T) {
	t.Parallel()
	x, key := openGood(t), newKey()
	x.Default(banktest.Plan{Lag: 15 * time.Second, Typed404: true})
	x.send(key)
	x.clock.Advance(15*time.Second - time.Nanosecond)
	if g := x.ask(key); g.status != http.StatusNotFound || g.code() != banktest.CodeNotFound {
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
	x.Script(key, banktest.Plan{Steps: []banktest.Step{
		{}, {Say: banktest.SayEmpty}, {}, {Status: banktest.Rejected}, {Status: banktest.Settled},
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
	for name, life := range map[string][]banktest.Change{
		"confirmed then returned": {{Status: banktest.Settled}, {After: 3 * day, Status: banktest.Returned}},
		"rejected then confirmed": {{Status: banktest.Rejected}, {After: 3 * day, Status: banktest.Settled}},
		"pending for ever":        {{Status: banktest.Accepted}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, key := openGood(t), newKey()
			x.Default(banktest.Plan{Life: life})
			x.send(key)
			for i, c := range life {
				x.clock.Advance(time.Duration(i) * c.After)
				moved := c.Status == banktest.Settled || c.Status == banktest.Accepted
				if words := x.statuses(key); words != c.Status {
					t.Errorf("statuses %q, want %s", words, c.Status)
				}
				if l := x.Ledger()[0]; l.Status != c.Status || l.Moved() != moved || l.Returned != (c.Status == banktest.Returned) {
					t.Errorf("ledger %+v", l)
				}
			}
		})
	}
}

func TestQuestionsThatAreNotTheContracts(t *testing.T) {
	t.Parallel()
	x := open(t, t, banktest.Options{Token: "s3cret"})
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
