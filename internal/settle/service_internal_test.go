package settle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

// gate is a store whose calls of Settle end with the errors that the test sends.
type gate struct {
	Store
	results chan error
}

func (g gate) Settle(context.Context, Settlement) (Result, error) {
	return Result{Outcome: OutcomeConflict}, <-g.results
}

// A leak in the map would fill the memory of the instance.
func TestInflightIsEmptyAfterItsDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := gate{results: make(chan error)}
		service := &Service{Store: store, NewID: func() string { return "d" }, Now: time.Now}
		st := Settlement{Payout: payout.Payout{SettlementID: "stl-8472"}}
		ctx, cancel := context.WithCancel(t.Context())
		for _, c := range []context.Context{t.Context(), ctx, t.Context()} {
			go func() { _, _ = service.coalesce(c, &st) }()
			synctest.Wait()
		}
		if len(service.inflight) != 1 {
			t.Fatalf("%d payouts in progress, want 1", len(service.inflight))
		}
		cancel()
		synctest.Wait()
		store.results <- errors.New("store is down")
		synctest.Wait()
		if len(service.inflight) != 0 {
			t.Errorf("left in progress: %v", service.inflight)
		}
	})
}
