package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

const (
	stormRequests = 5000
	stormAtOnce   = 32
	stormPatience = 1500 * time.Microsecond // the most that a client of the storm waits
	healthy       = 20
	healthyLimit  = time.Second
)

// storm sends requests whose clients give up within 0 to stormPatience.
func storm(t *testing.T, f *function) {
	t.Helper()
	var (
		wg   sync.WaitGroup
		next atomic.Int64
	)
	for range stormAtOnce {
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n > stormRequests {
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(stormPatience))
				f.deliver(ctx, fmt.Sprint(n), fmt.Sprintf(`{"settlement_id":"storm-%d","account_id":"a","amount_cents":1}`, n))
				cancel()
			}
		})
	}
	wg.Wait()
}

// answeredInTime sends healthy requests and counts those that are answered with
// 200 within healthyLimit each.
func answeredInTime(t *testing.T, f *function) (answered int, slowest time.Duration) {
	t.Helper()
	for n := range healthy {
		ctx, cancel := context.WithTimeout(t.Context(), healthyLimit)
		began := time.Now()
		a := f.deliver(ctx, fmt.Sprint(n), fmt.Sprintf(`{"settlement_id":"healthy-%d","account_id":"a","amount_cents":1}`, n))
		cancel()
		slowest = max(slowest, time.Since(began))
		if a.Status == 200 {
			answered++
		}
	}
	return answered, slowest
}

func TestStormOfCancelledRequests(t *testing.T) {
	db := newDatabase(t)
	f := startChild(t, db.env(emulatortest.Spanner(t).GRPC)...)
	if answered, _ := answeredInTime(t, f); answered != healthy {
		t.Fatalf("%d of %d answered before the storm: %s", answered, healthy, f.log)
	}
	storm(t, f)
	answered, slowest := answeredInTime(t, f)
	if answered != healthy {
		t.Errorf("%d of %d requests answered within %v after the storm", answered, healthy, healthyLimit)
	}
	t.Logf("slowest answer after the storm: %v", slowest)
	db.snapshot(t)
}
