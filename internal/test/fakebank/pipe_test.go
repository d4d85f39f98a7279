package fakebank_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// openPiped opens a bank in memory, in a bubble, with the bubble's clock.
func openPiped(t *testing.T) *teller {
	t.Helper()
	pipe := fakebank.NewPipe()
	x := &teller{Bank: fakebank.New(t, time.Now, fakebank.Options{}), t: t, url: "http://bank.example"}
	served := make(chan error, 1)
	go func() { served <- x.Serve(pipe) }()
	t.Cleanup(func() {
		x.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	x.transport = &http.Transport{DialContext: pipe.DialContext, DisableKeepAlives: true}
	return x
}

// TestPipe lets an hour pass, without waiting.
func TestPipe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x, key := openPiped(t), newKey()
		x.Script(key, fakebank.Plan{Attempts: []fakebank.Attempt{
			{Answer: fakebank.AnswerHang, Execute: fakebank.ExecuteLate, LateBy: time.Hour},
			{Answer: fakebank.AnswerReset, Execute: fakebank.ExecuteNever},
		}})
		for i := range 2 {
			if g := x.send(key); g.err == nil {
				t.Errorf("send %d: got %+v", i, g)
			}
		}
		x.executed(0)
		time.Sleep(time.Hour)
		if words := x.statuses(key); words != "ACSC" {
			t.Errorf("statuses %q", words)
		}
		x.Close()
		synctest.Wait()
		if g := x.send(key); g.err == nil {
			t.Errorf("after Close: %+v", g)
		}
	})
}

// TestHang hangs until the client gives up, and until the bank is closed.
func TestHang(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		plan     fakebank.Plan
		executed int
	}{
		"before":   {fakebank.Plan{Rest: fakebank.Attempt{Before: fakebank.BeforeHang}}, 0},
		"after":    {fakebank.Plan{Rest: fakebank.Attempt{Answer: fakebank.AnswerHang}}, 1},
		"midway":   {fakebank.Plan{Rest: fakebank.Attempt{Answer: fakebank.AnswerStall}}, 1},
		"question": {fakebank.Plan{StepsRest: fakebank.Step{Say: fakebank.SayHang}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x, key, call := openPiped(t), newKey(), (*teller).send
				x.Script(key, test.plan)
				if name == "question" {
					call = (*teller).ask
				}
				began := time.Now()
				if g := call(x, key); g.err == nil || time.Since(began) != 30*time.Second {
					t.Errorf("after %v: got %+v", time.Since(began), g)
				}
				x.executed(test.executed)
				time.AfterFunc(time.Second, x.Close)
				if g := call(x, key); g.err == nil || time.Since(began) != 31*time.Second {
					t.Errorf("after %v: got %+v", time.Since(began), g)
				}
				x.executed(test.executed)
			})
		})
	}
}
