//go:build soak

package e2e_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/test/crash"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

var (
	soakMinutes  = flag.Int("soak.minutes", 0, "soak: duration in minutes; 0 means a number of messages")
	soakMessages = flag.Int("soak.messages", 50_000, "soak: number of messages, without -soak.minutes")
	soakSeed     = flag.Uint64("soak.seed", 0, "soak: seed of the messages; 0 means a random one")
)

const (
	soakConcurrency = 64
	// soakRound is the number of messages until the tables are emptied. The emulator reads
	// all rows to find a key: with 40,000 rows a duplicate takes most of a second, and 64
	// that wait for each other exceed every deadline.
	soakRound = 1000
	// soakWarm is the share of the run after which memory must not grow.
	soakWarm     = 0.2
	soakProgress = 5 * time.Second
)

// TestSoak delivers messages, 64 at a time, to the function with the Spanner emulator and
// the fake bank. After each round every answer, row and transfer must match the plan. At
// the end, memory must match the memory after a fifth of the run.
//
// The test delivers over HTTP, as Eventarc does. The Pub/Sub emulator delivers at most two
// messages at a time.
func TestSoak(t *testing.T) {
	s := newSoak(t)
	s.say("seed %d, %d deliveries at a time", s.seed, soakConcurrency)
	stop := s.showProgress(t)
	defer stop()
	warm := s.deliverUntil(t, soakWarm)
	s.say("warm after %d", s.total.delivered())
	end := s.deliverUntil(t, 1)
	stop()
	end.compare(t, warm)
	s.say("%s; %s; %d errors logged; %s", s.total.String(), end.after(warm), s.errorsLogged, time.Since(s.began).Round(time.Second))
}

type soak struct {
	*world
	settler, reconciler *watched

	seed         uint64
	dice         dice
	began        time.Time
	say          func(format string, args ...any)
	payouts      int // drawn so far
	total        soakTally
	errorsLogged int
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{world: newWorld(t, fakebank.Plan{}), seed: *soakSeed}
	s.say = func(format string, args ...any) { _, _ = fmt.Fprintf(t.Output(), format+"\n", args...) }
	if s.seed == 0 {
		s.seed = rand.Uint64N(1<<40) + 1 // few digits, to be typed
	}
	s.dice = dice{rand.New(rand.NewPCG(s.seed, 0))}
	start := func(target string) *watched {
		return watch(t, func(env ...string) *function {
			// A slow machine must not reach a timeout, which would change the planned outcomes.
			env = append(env, "SETTLE_TIMEOUT=5m", "BANK_SEND_TIMEOUT=50s", "BANK_STATUS_TIMEOUT=50s")
			return s.start(t, target, emulatortest.Spanner(t).GRPC, env...)
		})
	}
	s.settler, s.reconciler = start("SettlePayout"), start("ReconcileBank")
	s.settler.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: soakConcurrency}, Timeout: 10 * time.Minute}
	s.began = time.Now()
	return s
}

// deliverUntil delivers up to a share of the whole run, and returns the memory of the
// idle functions.
func (s *soak) deliverUntil(t *testing.T, share float64) memories {
	t.Helper()
	before := s.total.delivered()
	deadline := s.began.Add(time.Duration(share * float64(*soakMinutes) * float64(time.Minute)))
	limited := *soakMinutes > 0
	for {
		size := soakRound
		if !limited {
			size = min(size, int(share*float64(*soakMessages))-s.total.delivered())
		}
		if size <= 0 || limited && time.Now().After(deadline) {
			break
		}
		if s.total.delivered() > 0 {
			s.db.empty(t)
		}
		proceed := func() bool { return !limited || time.Now().Before(deadline) }
		round := s.deliver(t, s.draw(size), proceed)
		s.confirm(t)
		s.check(t, round)
	}
	if s.total.delivered() == before {
		t.Fatalf("no delivery until %.0f %% of the run", 100*share)
	}
	s.settler.client.CloseIdleConnections()
	return memories{s.settler.rest(t, "SettlePayout"), s.reconciler.rest(t, "ReconcileBank")}
}

// deliver delivers the messages in order, soakConcurrency at a time, while proceed returns
// true, and returns the delivered ones.
func (s *soak) deliver(t *testing.T, messages []*soakMessage, proceed func() bool) []*soakMessage {
	t.Helper()
	var (
		wg    sync.WaitGroup
		taken atomic.Int64
	)
	for range soakConcurrency {
		wg.Go(func() {
			for proceed() {
				n := int(taken.Add(1)) - 1
				if n >= len(messages) {
					return
				}
				m := messages[n]
				m.wait()
				m.answer = s.settler.deliver(t.Context(), m.id, m.data)
				m.answered()
				s.total.count(m.answer.Outcome)
			}
		})
	}
	wg.Wait()
	return messages[:min(int(taken.Load()), len(messages))]
}

// confirm advances the clock and reconciles, until the bank has confirmed every
// instruction.
func (s *soak) confirm(t *testing.T) {
	t.Helper()
	for range 20 {
		crash.AdvanceClock(t, s.db.client, "", time.Hour)
		a := s.reconciler.post(t.Context(), pushHeader, strings.NewReader(push("tick", event.Tick)))
		if a.Status != http.StatusOK {
			t.Fatalf("reconcile: %d %s %s", a.Status, a.Body, a.Error)
		}
		if s.db.unconfirmed(t) == 0 {
			return
		}
	}
	t.Fatal("unconfirmed instructions after 20 hours")
}

// showProgress prints the progress every few seconds, until stop is called.
func (s *soak) showProgress(t *testing.T) (stop func()) {
	t.Helper()
	var wg sync.WaitGroup
	ended, tick := make(chan struct{}), time.NewTicker(soakProgress)
	wg.Go(func() {
		before := 0
		for {
			select {
			case <-tick.C:
			case <-ended:
				return
			}
			delivered := s.total.delivered()
			s.say("%8s  %d delivered, %.0f/s: %s; %s", time.Since(s.began).Round(time.Second), delivered,
				float64(delivered-before)/soakProgress.Seconds(), s.total.outcomes(), s.settler.memory(t))
			before = delivered
		}
	})
	return sync.OnceFunc(func() {
		tick.Stop()
		close(ended)
		wg.Wait()
	})
}
