package spannerstore_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/storetest"
)

const (
	instances   = 8   // stores, each with its own client
	atOnce      = 32  // deliveries of one settlement
	settlements = 200 // one after another, each delivered atOnce times
	perDatabase = 40  // settlements in one database: the emulator slows down with every row
)

// eachDatabase runs test for all settlements, with perDatabase of them per database.
func eachDatabase(t *testing.T, test func(t *testing.T, b backend, ids []string)) {
	t.Helper()
	for first := 0; first < settlements; first += perDatabase {
		ids := make([]string, perDatabase)
		for i := range ids {
			ids[i] = fmt.Sprintf("stl-%d", first+i)
		}
		t.Run(fmt.Sprintf("settlements from %d", first), func(t *testing.T) {
			t.Parallel()
			test(t, newBackend(t), ids)
		})
	}
}

func openInstances(t *testing.T, b backend) []*spannerstore.Store {
	t.Helper()
	stores := make([]*spannerstore.Store, instances)
	for i := range stores {
		stores[i] = b.open(t)
	}
	return stores
}

// deliverAtOnce delivers settlement n atOnce times; delivery i has message(n, i).
func deliverAtOnce(t *testing.T, stores []*spannerstore.Store, message func(delivery int) string) map[settle.Outcome]int {
	t.Helper()
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		outcomes = map[settle.Outcome]int{}
		start    = make(chan struct{})
	)
	for i := range atOnce {
		st := storetest.NewSettlement(t, message(i))
		wg.Go(func() {
			<-start
			result, err := stores[i%instances].Settle(t.Context(), st)
			if err != nil {
				t.Errorf("settle %q: %v", st.Payout.SettlementID, err)
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[result.Outcome]++
		})
	}
	close(start)
	wg.Wait()
	return outcomes
}

func TestConcurrentDeliveriesOfOneSettlement(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, b backend, ids []string) {
		stores := openInstances(t, b)
		for _, id := range ids {
			outcomes := deliverAtOnce(t, stores, func(int) string {
				return fmt.Sprintf(`{"settlement_id":%q,"account_id":"a","amount_cents":1}`, id)
			})
			if outcomes[settle.OutcomeApplied] != 1 || outcomes[settle.OutcomeDuplicate] != atOnce-1 {
				t.Errorf("settlement %s: %v", id, outcomes)
			}
		}
		all := b.Snapshot(t)
		if len(all.Movements) != len(ids) || len(all.Receipts) != len(ids) || len(all.Conflicts) != 0 {
			t.Errorf("%d movements, %d receipts, %d conflicts", len(all.Movements), len(all.Receipts), len(all.Conflicts))
		}
		for _, violation := range all.Violations(false) {
			t.Error(violation)
		}
	})
}

func TestTwoPayloadsRaceUnderOneID(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, b backend, ids []string) {
		stores := openInstances(t, b)
		for _, id := range ids {
			outcomes := deliverAtOnce(t, stores, func(delivery int) string {
				return fmt.Sprintf(`{"settlement_id":%q,"account_id":"a","amount_cents":%d}`, id, 1+delivery%2)
			})
			if outcomes[settle.OutcomeApplied] != 1 || outcomes[settle.OutcomeDuplicate] != atOnce/2-1 || outcomes[settle.OutcomeConflict] != atOnce/2 {
				t.Errorf("settlement %s: %v", id, outcomes)
			}
		}
		all := b.Snapshot(t)
		if len(all.Movements) != len(ids) || len(all.Receipts) != len(ids) || len(all.Conflicts) != len(ids) {
			t.Errorf("%d movements, %d receipts, %d conflicts", len(all.Movements), len(all.Receipts), len(all.Conflicts))
		}
		for _, violation := range all.Violations(false) {
			t.Error(violation)
		}
	})
}
