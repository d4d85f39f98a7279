package settle_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

const (
	// roundTrip is the duration of one exchange with the modelled Spanner.
	roundTrip = 15 * time.Millisecond
	// slots is the number of concurrent requests of an instance.
	slots = 32
)

// timedStore is a store whose calls take the round trips of the design: a fresh payout 1,
// a duplicate 2, a known conflict 3, a new conflict 4. Writes of one row
// follow one another; reads wait for nothing.
type timedStore struct {
	*memstore.Store

	mu   sync.Mutex
	rows map[string]chan struct{}
}

func (s *timedStore) row(key string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows[key] == nil {
		s.rows[key] = make(chan struct{}, 1)
	}
	return s.rows[key]
}

func (s *timedStore) Settle(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	result, err := s.Store.Settle(ctx, st)
	reads, writes := 0, 1
	switch {
	case result.Known:
		reads, writes = 3, 0
	case result.Outcome == settle.OutcomeConflict:
		reads = 3
	case result.Outcome == settle.OutcomeDuplicate:
		reads, writes = 2, 0
	}
	time.Sleep(time.Duration(reads) * roundTrip) // of the bubble's time
	if writes > 0 {
		row := s.row(st.Payout.SettlementID + string(st.Hash))
		row <- struct{}{}
		time.Sleep(roundTrip)
		<-row
	}
	return result, err
}

// load is a rate of messages. Each message is made from its number.
type load struct {
	perSecond int
	message   func(n int) string
	measured  bool
}

// run delivers the loads for some seconds to the instances, and returns the sorted
// latencies of the measured ones, with the wait for a free request slot.
func run(t *testing.T, instances int, loads ...load) []time.Duration {
	t.Helper()
	const seconds = 20
	store := &timedStore{Store: memstore.New(time.Now), rows: map[string]chan struct{}{}}
	services := make([]*settle.Service, instances)
	for i := range services {
		services[i] = newService(store)
	}
	if _, err := services[0].Deliver(t.Context(), message(`{"settlement_id":"hot","account_id":"a","amount_cents":1}`)); err != nil {
		t.Fatal(err)
	}
	var (
		mu        sync.Mutex
		wg        sync.WaitGroup
		latencies []time.Duration
		free      = make(chan struct{}, instances*slots)
	)
	deliver := func(service *settle.Service, data string, measured bool) {
		arrived := time.Now()
		free <- struct{}{}
		defer func() { <-free }()
		if _, err := service.Deliver(t.Context(), message(data)); err != nil {
			t.Error(err)
		}
		if measured {
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, time.Since(arrived))
		}
	}
	for _, l := range loads {
		wg.Go(func() {
			for n := range seconds * l.perSecond {
				wg.Go(func() { deliver(services[n%instances], l.message(n), l.measured) })
				time.Sleep(time.Second / time.Duration(l.perSecond)) // of the bubble's time
			}
		})
	}
	wg.Wait()
	slices.Sort(latencies)
	return latencies
}

func fresh(n int) string {
	return fmt.Sprintf(`{"settlement_id":"fresh-%d","account_id":"a","amount_cents":1}`, n)
}

// Conflicts of one settlement ID, of many payloads or of one, delay other payouts by at
// most three times their calm latency.
func TestConflictsOfOneIDDelayNoOtherPayout(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		instances int
		fresh     int
		hot       load
	}{
		{"200 distinct conflicts a second at one instance", 1, 100, load{perSecond: 200, message: func(n int) string {
			return fmt.Sprintf(`{"settlement_id":"hot","account_id":"a","amount_cents":1,"reference":"claim at %d"}`, n)
		}}},
		{"one conflict 100 times a second at 20 instances", 20, 500, load{perSecond: 100, message: func(int) string {
			return `{"settlement_id":"hot","account_id":"a","amount_cents":2}`
		}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				payouts := load{perSecond: test.fresh, message: fresh, measured: true}
				calm := run(t, test.instances, payouts)
				beside := run(t, test.instances, payouts, test.hot)
				p99 := func(latencies []time.Duration) time.Duration { return latencies[len(latencies)*99/100] }
				t.Logf("p99 %v, calm %v", p99(beside), p99(calm))
				if p99(beside) > 3*p99(calm) {
					t.Errorf("p99 %v, want at most 3 times %v", p99(beside), p99(calm))
				}
			})
		})
	}
}

// Each distinct conflict takes as long as alone.
func TestDistinctConflictsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := rpcStore{}
		service := newService(store)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range slots {
			data := fmt.Sprintf(`{"settlement_id":"hot","account_id":"a","amount_cents":%d}`, i+1)
			wg.Go(func() { _, _ = service.Deliver(t.Context(), message(data)) })
		}
		wg.Wait()
		if took := time.Since(began); took != 4*roundTrip {
			t.Errorf("%d conflicts took %v, one takes %v", slots, took, 4*roundTrip)
		}
	})
}

// rpcStore answers every settlement with a conflict.
type rpcStore struct{ settle.Store }

func (rpcStore) Settle(context.Context, settle.Settlement) (settle.Result, error) {
	time.Sleep(4 * roundTrip) // of the bubble's time
	return settle.Result{Outcome: settle.OutcomeConflict}, nil
}
