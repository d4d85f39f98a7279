package contender

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/schema"
)

// settleOnce is the real service with the real store.
func settleOnce() Contender {
	return Contender{
		Key: "settle_once", Name: "Settle Once",
		About:      "one Commit that inserts; where the key exists, a read without locks",
		System:     Spanner,
		Statements: schema.Statements,
		Open:       func(ctx context.Context, p Place) (Settler, error) { return openInstances(ctx, p, 1, true) },
		table:      "ledger_movements", rows: settlementRows,
	}
}

// fleetSize is the maximum number of instances in deploy/.
const fleetSize = 20

// settleOnceFleet is Settle Once with several instances, each with its own client.
func settleOnceFleet() Contender {
	c := settleOnce()
	c.Key, c.Name = "settle_once_fleet", fmt.Sprintf("Settle Once, %d instances", fleetSize)
	c.Open = func(ctx context.Context, p Place) (Settler, error) { return openInstances(ctx, p, fleetSize, true) }
	return c
}

// settleOnceUncoalesced is Settle Once without coalescing of concurrent deliveries.
func settleOnceUncoalesced() Contender {
	c := settleOnce()
	c.Key, c.Name = "settle_once_uncoalesced", "Settle Once, not coalesced"
	c.Open = func(ctx context.Context, p Place) (Settler, error) { return openInstances(ctx, p, 1, false) }
	return c
}

// instances take the deliveries in turn.
type instances struct {
	now      func() time.Time
	coalesce bool
	stores   []*spannerstore.Store
	services []*settle.Service // one for each store
	next     atomic.Int64
}

func openInstances(ctx context.Context, p Place, n int, coalesce bool) (*instances, error) {
	s := &instances{now: p.Now, coalesce: coalesce}
	for range n {
		store, err := spannerstore.Open(ctx, spannerstore.Config{Database: p.Database, Emulator: p.Emulator != "", Options: p.spannerOptions()})
		if err != nil {
			s.Close()
			return nil, err
		}
		s.stores, s.services = append(s.stores, store), append(s.services, s.service(store))
	}
	return s, nil
}

func (s *instances) service(store *spannerstore.Store) *settle.Service {
	return &settle.Service{Store: store, DefaultCurrency: defaultCurrency, NewID: uuid.NewString, Now: s.now}
}

// Settle implements Settler. A service coalesces its own deliveries, so without coalescing
// each delivery gets its own service with the shared store.
func (s *instances) Settle(ctx context.Context, message []byte) (settle.Outcome, error) {
	i := s.next.Add(1) % int64(len(s.stores))
	service := s.services[i]
	if !s.coalesce {
		service = s.service(s.stores[i])
	}
	result, err := service.Deliver(ctx, settle.Delivery{Message: settle.Message{ID: "1", Data: message}})
	return result.Outcome, err
}

// Close implements Settler.
func (s *instances) Close() {
	for _, store := range s.stores {
		store.Close()
	}
}

// settlementRows are the rows of the real schema for a payout without bank.
func settlementRows(p delivery) []*spanner.Mutation {
	return []*spanner.Mutation{
		p.movement("ledger_movements", map[string]any{"payload_hash": p.hash}),
		p.receipt("settlement_receipts", map[string]any{"expire_from": spanner.CommitTimestamp}),
	}
}
