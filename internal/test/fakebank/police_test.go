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
	for rule, breakIt := range map[fakebank.Rule]func(x *teller){
		fakebank.RuleKeyOnce: func(x *teller) {
			key := newKey()
			x.Default(forgetful)
			x.send(key)
			x.clock.Advance(time.Hour)
			x.send(key)
		},
		fakebank.RuleSettlementOnce: func(x *teller) {
			one, two := newKey(), newKey()
			x.send(one)
			x.send(two)
		},
		fakebank.RuleOneKey: func(x *teller) {
			x.Expect("stl-1", newKey())
			x.Expect("stl-1", newKey())
		},
		fakebank.RuleSameBytes: func(x *teller) {
			key := newKey()
			x.send(key)
			x.do(x.postRequest(key, orderOf(key)+"\n"))
		},
		fakebank.RuleKeyForm: func(x *teller) { x.send(strings.ToUpper(newKey())) },
		fakebank.RuleKeyIsReference: func(x *teller) {
			if g := x.do(x.postRequest(newKey(), orderOf(newKey()))); g.status != http.StatusBadRequest {
				x.t.Errorf("got %+v", g)
			}
		},
	} {
		t.Run(string(rule), func(t *testing.T) {
			t.Parallel()
			rec, options := new(recorder), fakebank.Options{Token: ""}
			if rule == fakebank.RuleSettlementOnce {
				options.SettlementOf = func(t fakebank.Transfer) string { return t.Remittance }
			}
			x := open(t, rec, options)
			x.t = t
			breakIt(x)
			failures, violations := rec.failures(), x.Violations()
			if len(failures) != 1 || len(violations) != 1 || !strings.Contains(failures[0], violations[0]) || !strings.HasPrefix(violations[0], string(rule)) {
				t.Fatalf("failures %q, violations %q", failures, violations)
			}
			rec.end()
			if failures := rec.failures(); len(failures) != 2 {
				t.Errorf("at the end: %q", failures)
			}
			x.Expect("stl-2", newKey())
			x.Expect("stl-2", newKey()) // after the end of a test nothing may be reported to it
			if failures := rec.failures(); len(failures) != 2 {
				t.Errorf("after the end: %q", failures)
			}
		})
	}
}

func TestToleratedRules(t *testing.T) {
	t.Parallel()
	x := open(t, t, fakebank.Options{Tolerate: []fakebank.Rule{fakebank.RuleKeyForm}})
	x.send("KEY")
	x.executed(1)
}

// TestExpectAfterwards names a settlement after its transfers were executed.
func TestExpectAfterwards(t *testing.T) {
	t.Parallel()
	rec := new(recorder)
	x := open(t, rec, fakebank.Options{Tolerate: []fakebank.Rule{fakebank.RuleOneKey}})
	one, two := newKey(), newKey()
	x.send(one)
	x.send(two)
	x.Expect("stl-1", one)
	x.Expect("stl-1", one)
	if f := rec.failures(); len(f) != 0 {
		t.Errorf("failures %q", f)
	}
	x.Expect("stl-1", two)
	if f := rec.failures(); len(f) != 1 || !strings.Contains(f[0], string(fakebank.RuleSettlementOnce)) {
		t.Errorf("failures %q", f)
	}
}

// TestLateSecondExecutionIsFoundAtTheEnd has the late one come after the test.
func TestLateSecondExecutionIsFoundAtTheEnd(t *testing.T) {
	t.Parallel()
	rec := new(recorder)
	x := open(t, rec, fakebank.Options{})
	one, two := newKey(), newKey()
	x.Script(two, fakebank.Plan{Rest: fakebank.Attempt{Execute: fakebank.ExecuteLate, LateBy: 100 * time.Hour}})
	x.Expect("stl-1", one)
	x.send(one)
	x.send(two)
	if f := rec.failures(); len(f) != 0 {
		t.Errorf("failures %q", f)
	}
	x.Expect("stl-2", two)
	rec.end()
	if f := rec.failures(); len(f) != 0 {
		t.Errorf("failures %q", f)
	}
	x.executed(2)

	rec = new(recorder)
	x = open(t, rec, fakebank.Options{SettlementOf: func(fakebank.Transfer) string { return "stl-1" }})
	x.Script(two, fakebank.Plan{Rest: fakebank.Attempt{Execute: fakebank.ExecuteLate, LateBy: 100 * time.Hour}})
	x.send(one)
	x.send(two)
	rec.end()
	if f := rec.failures(); len(f) != 2 {
		t.Errorf("failures %q", f)
	}
}

func TestManySendsAtOnceExecuteOnce(t *testing.T) {
	t.Parallel()
	x, key := openGood(t), newKey()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { x.send(key) })
	}
	wg.Wait()
	x.executed(1)
	came := x.Requests()[key]
	if came.Posts != 50 || came.Received != 50 || came.MaxInFlight < 1 {
		t.Errorf("%d sends, %d received, %d at once", came.Posts, came.Received, came.MaxInFlight)
	}
}

func TestWithoutATest(t *testing.T) {
	t.Parallel()
	x := open(t, nil, fakebank.Options{})
	x.send("no-uuid")
	if v := x.Violations(); len(v) != 1 {
		t.Errorf("violations %q", v)
	}
}
