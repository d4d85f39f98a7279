package fakebank_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

var stormy = fakebank.Rates{
	Before: .15, Reject: .1, Lost: .15, Late: .15, Garbled: .2, Wrong: .05,
	Unsure: .3, Absent: .1, UnknownWord: .1, WrongStatus: .05,
	Return: .2, Fail: .2, Slow: .2,
}

// weather sends three times and asks three times for each of 40 keys, and returns
// what came of it, by key.
func weather(t *testing.T, seed uint64, concurrent bool) map[string][]string {
	t.Helper()
	x := openGood(t)
	x.Random(seed, stormy)
	var mu sync.Mutex
	var wg sync.WaitGroup
	all := map[string][]string{}
	for i := range 40 {
		key := uuid.NewSHA1(uuid.NameSpaceURL, fmt.Append(nil, i)).String()
		one := func() {
			var came []string
			for range 3 {
				for _, g := range []got{x.send(key), x.ask(key)} {
					came = append(came, fmt.Sprint(g.status, g.err == nil, g.header.Get("Retry-After"), g.body))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all[key] = came
		}
		if concurrent {
			wg.Go(one)
		} else {
			one()
		}
	}
	wg.Wait()
	x.clock.Advance(30 * 24 * time.Hour)
	for _, l := range x.Ledger() {
		all[l.Key] = append(all[l.Key], fmt.Sprintf("%+v", l))
	}
	return all
}

func TestRandomDependsOnTheSeedOnly(t *testing.T) {
	t.Parallel()
	first := weather(t, 7, false)
	if diff := cmp.Diff(first, weather(t, 7, true)); diff != "" {
		t.Errorf("the same seed, concurrently (-first +second):\n%s", diff)
	}
	if cmp.Equal(first, weather(t, 8, false)) {
		t.Error("another seed gives the same")
	}
}

func TestRandomLeavesScriptsAlone(t *testing.T) {
	t.Parallel()
	x := openGood(t)
	x.Random(1, fakebank.Rates{Before: 1, Unsure: 1})
	key := newKey()
	x.Script(key, fakebank.Plan{})
	if g := x.send(key); g.status != 201 {
		t.Errorf("got %+v", g)
	}
	if words := x.statuses(key); words != "ACSC" {
		t.Errorf("statuses %q", words)
	}
	if g := x.send(newKey()); g.status == 201 {
		t.Errorf("got %+v", g)
	}
	x.executed(1)
}
