package settle

import (
	"context"
	"errors"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"testing"
	"testing/synctest"
)

// Lines are gone with the last delivery, however that ended: they would be all the
// memory that the service ever fills.
func TestLinesEndWithTheirDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			all   inflight
			s     = Settlement{Payout: payout.Payout{SettlementID: "stl-8472"}}
			store = make(chan error)
			ended = errors.New("ended")
		)
		ctx, cancel := context.WithCancel(t.Context())
		deliver := func(ctx context.Context, outcome Outcome) {
			_, _, _ = all.settle(ctx, s, func() (Result, error) { return Result{Outcome: outcome}, <-store })
		}
		go deliver(t.Context(), OutcomeConflict)
		synctest.Wait()
		go deliver(ctx, OutcomeApplied)
		synctest.Wait()
		go deliver(t.Context(), OutcomeApplied)
		synctest.Wait()
		if len(all.byID) != 1 || all.byID["stl-8472"].waiting != 3 {
			t.Fatalf("%d lines, want one of three deliveries", len(all.byID))
		}
		cancel()
		synctest.Wait()
		store <- ended
		store <- ended
		synctest.Wait()
		if len(all.byID) != 0 {
			t.Errorf("lines left: %v", all.byID)
		}
	})
}
