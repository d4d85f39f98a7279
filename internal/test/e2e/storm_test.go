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
	stormRequests    = 5000
	stormConcurrency = 32
	stormTimeout     = 1500 * time.Microsecond
	healthyRequests  = 20
	healthyTimeout   = time.Second
)

// storm sends requests that their clients cancel after 0 to stormTimeout.
func storm(t *testing.T, f *function) {
	t.Helper()
	var (
		wg   sync.WaitGroup
		next atomic.Int64
	)
	for range stormConcurrency {
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n > stormRequests {
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(stormTimeout))
				f.deliver(ctx, fmt.Sprint(n), fmt.Sprintf(`{"settlement_id":"storm-%d","account_id":"a","amount_cents":1}`, n))
				cancel()
			}
		})
	}
	wg.Wait()
}

// answeredInTime sends healthy requests and counts the responses with status 200 within
// healthyTimeout each.
func answeredInTime(t *testing.T, f *function) (answered int, slowest time.Duration) {
	t.Helper()
	for n := range healthyRequests {
		ctx, cancel := context.WithTimeout(t.Context(), healthyTimeout)
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

func TestStormOfCancelledRequestsLeavesTheFunctionResponsive(t *testing.T) {
	db := newDatabase(t)
	f := startFunction(t, db.env(emulatortest.Spanner(t).GRPC)...)
	if answered, _ := answeredInTime(t, f); answered != healthyRequests {
		t.Fatalf("%d of %d answered before the storm: %s", answered, healthyRequests, f.log)
	}
	storm(t, f)
	answered, slowest := answeredInTime(t, f)
	if answered != healthyRequests {
		t.Errorf("%d of %d requests answered within %v after the storm", answered, healthyRequests, healthyTimeout)
	}
	t.Logf("slowest answer after the storm: %v", slowest)
	db.snapshot(t)
}
