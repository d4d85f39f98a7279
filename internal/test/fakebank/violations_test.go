package fakebank_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

func TestViolations(t *testing.T) {
	t.Parallel()
	forgetful := fakebank.Plan{Key: fakebank.KeyPolicy{Lifetime: time.Nanosecond}}
	for rule, breakIt := range map[fakebank.Rule]func(c *client){
		fakebank.RuleKeyOnce: func(c *client) {
			key := newKey()
			c.Default(forgetful)
			c.send(key)
			c.clock.Advance(time.Hour)
			c.send(key)
		},
		fakebank.RuleSettlementOnce: func(c *client) {
			one, two := newKey(), newKey()
			c.send(one)
			c.send(two)
		},
		fakebank.RuleOneKey: func(c *client) {
			c.Expect("stl-1", newKey())
			c.Expect("stl-1", newKey())
		},
		fakebank.RuleSameBytes: func(c *client) {
			key := newKey()
			c.send(key)
			c.do(c.postRequest(key, orderOf(key)+"\n"))
		},
		fakebank.RuleKeyForm: func(c *client) { c.send(strings.ToUpper(newKey())) },
		fakebank.RuleKeyIsReference: func(c *client) {
			if g := c.do(c.postRequest(newKey(), orderOf(newKey()))); g.status != http.StatusBadRequest {
				c.t.Errorf("got %+v", g)
			}
		},
	} {
		t.Run(string(rule), func(t *testing.T) {
			t.Parallel()
			rec, options := new(recorder), fakebank.Options{}
			if rule == fakebank.RuleSettlementOnce {
				options.SettlementOf = func(t fakebank.Transfer) string { return t.Remittance }
			}
			c := newClient(t, rec, options)
			c.t = t
			breakIt(c)
			failures, violations := rec.failures(), c.Violations()
			if len(failures) != 1 || len(violations) != 1 || !strings.Contains(failures[0], violations[0]) || !strings.HasPrefix(violations[0], string(rule)) {
				t.Fatalf("failures %q, violations %q", failures, violations)
			}
			rec.end()
			if failures := rec.failures(); len(failures) != 2 {
				t.Errorf("at the end: %q", failures)
			}
			c.Expect("stl-2", newKey())
			c.Expect("stl-2", newKey()) // testing panics at a report after the end of a test
			if failures := rec.failures(); len(failures) != 2 {
				t.Errorf("after the end: %q", failures)
			}
		})
	}
}

func TestExpectAfterTheExecution(t *testing.T) {
	t.Parallel()
	rec := new(recorder)
	c := newClient(t, rec, fakebank.Options{})
	one, two := newKey(), newKey()
	c.send(one)
	c.send(two)
	c.Expect("stl-1", one)
	c.Expect("stl-1", one)
	if f := rec.failures(); len(f) != 0 {
		t.Errorf("failures %q", f)
	}
	c.Expect("stl-1", two)
	if f := rec.failures(); len(f) != 2 || !strings.Contains(f[0], string(fakebank.RuleOneKey)) || !strings.Contains(f[1], string(fakebank.RuleSettlementOnce)) {
		t.Errorf("failures %q", f)
	}
}

func TestLateSecondExecutionFailsTheEndOfTheTest(t *testing.T) {
	t.Parallel()
	for name, same := range map[string]bool{"two settlements": false, "one settlement": true} {
		rec := new(recorder)
		c := newClient(t, rec, fakebank.Options{SettlementOf: func(tr fakebank.Transfer) string {
			if same {
				return "stl-1"
			}
			return tr.CreditorAccount
		}})
		c.ScriptCreditor("cp-20", fakebank.Plan{Rest: fakebank.Attempt{Execute: fakebank.ExecuteLate, LateBy: 100 * time.Hour}})
		late := newKey()
		c.send(newKey())
		c.do(c.postRequest(late, strings.Replace(orderOf(late), "cp-19", "cp-20", 1)))
		c.wantExecuted(1)
		if f := rec.failures(); len(f) != 0 {
			t.Errorf("%s: failures %q", name, f)
		}
		rec.end()
		if f := rec.failures(); (len(f) == 2) != same || len(f)%2 != 0 {
			t.Errorf("%s: failures %q at the end", name, f)
		}
		c.wantExecuted(2)
	}
}

func TestConcurrentSendsExecuteOnce(t *testing.T) {
	t.Parallel()
	c, key := newDefaultClient(t), newKey()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { c.send(key) })
	}
	wg.Wait()
	c.wantExecuted(1)
	if requests := c.Requests()[key]; requests.Posts != 50 || requests.MaxInFlight < 1 {
		t.Errorf("requests %+v", requests)
	}
}

func TestViolationsWithoutATest(t *testing.T) {
	t.Parallel()
	c := newClient(t, nil, fakebank.Options{})
	c.send("no-uuid")
	if v := c.Violations(); len(v) != 1 {
		t.Errorf("violations %q", v)
	}
}
