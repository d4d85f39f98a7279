package fakebank_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

func TestKeyPolicy(t *testing.T) {
	t.Parallel()
	failed := fakebank.Attempt{AfterStatus: http.StatusInternalServerError}
	notExecuted := fakebank.Attempt{AfterStatus: http.StatusInternalServerError, Execute: fakebank.ExecuteNever}
	for name, test := range map[string]struct {
		policy   fakebank.KeyPolicy
		first    fakebank.Attempt
		other    bool // the second send has another body
		status   int
		code     string
		executed int
	}{
		"replay":             {status: 200, executed: 1},
		"exists":             {policy: fakebank.KeyPolicy{Same: fakebank.SameExists}, status: 409, code: "already_exists", executed: 1},
		"in progress":        {policy: fakebank.KeyPolicy{Same: fakebank.SameInProgress}, status: 409, code: "request_in_progress", executed: 1},
		"duplicate":          {policy: fakebank.KeyPolicy{Same: fakebank.SameDuplicate}, status: 400, code: "duplicate_request", executed: 1},
		"other body":         {other: true, status: 422, code: "idempotency_key_reused", executed: 1},
		"500, executed":      {first: failed, status: 200, executed: 1},
		"500, not executed":  {first: notExecuted, status: 201, executed: 1},
		"cached 500":         {policy: fakebank.KeyPolicy{After5xx: fakebank.After5xxCached}, first: failed, status: 500, code: "http_500", executed: 1},
		"cached 500, not ex": {policy: fakebank.KeyPolicy{After5xx: fakebank.After5xxCached}, first: notExecuted, status: 500, code: "http_500"},
		"locked":             {policy: fakebank.KeyPolicy{After5xx: fakebank.After5xxLocked}, first: failed, status: 409, code: "idempotency_key_locked", executed: 1},
		"locked, not ex":     {policy: fakebank.KeyPolicy{After5xx: fakebank.After5xxLocked}, first: notExecuted, status: 409, code: "idempotency_key_locked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec, key := new(recorder), newKey()
			c := newClient(t, rec, fakebank.Options{})
			c.Default(fakebank.Plan{Key: test.policy, Attempts: []fakebank.Attempt{test.first}})
			first, body := c.send(key), orderOf(key)
			if test.other {
				body = strings.Replace(body, "4731", "4732", 1)
			}
			g := c.do(c.postRequest(key, body))
			if g.status != test.status || g.code() != test.code {
				t.Errorf("got %+v", g)
			}
			replayed := g.header.Get("Idempotent-Replayed") == "true"
			if replayed != (g.status == http.StatusOK) || replayed && first.status == http.StatusCreated && g.body != first.body {
				t.Errorf("replay %+v of %+v", g, first)
			}
			c.wantExecuted(test.executed)
			if f := rec.failures(); (len(f) > 0) != test.other { // another body breaks RuleSameBytes
				t.Errorf("failures %q", f)
			}
		})
	}
}

func TestKeyLifetime(t *testing.T) {
	t.Parallel()
	rec := new(recorder)
	c, key := newClient(t, rec, fakebank.Options{}), newKey()
	c.Default(fakebank.Plan{Key: fakebank.KeyPolicy{Lifetime: 24 * time.Hour}})
	c.send(key)
	c.clock.Advance(24*time.Hour - time.Nanosecond)
	if g := c.send(key); g.status != http.StatusOK {
		t.Errorf("within the lifetime: %+v", g)
	}
	c.wantExecuted(1)
	if f := rec.failures(); len(f) != 0 {
		t.Errorf("failures %q", f)
	}
	c.clock.Advance(time.Nanosecond)
	if g := c.send(key); g.status != http.StatusCreated {
		t.Errorf("after the lifetime: %+v", g)
	}
	c.wantExecuted(2)
	if words := c.statuses(key); words != "ACSC ACSC" {
		t.Errorf("statuses %q", words)
	}
	if f := rec.failures(); len(f) != 1 || !strings.Contains(f[0], string(fakebank.RuleKeyOnce)) {
		t.Errorf("failures %q", f)
	}
}
