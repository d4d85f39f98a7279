package contender

import (
	"context"
	"errors"
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
	return settleOnceInstances("Settle Once", 1, true)
}

// fleetSize is the maximum number of instances in deploy/.
const fleetSize = 20

// settleOnceFleet is Settle Once with several instances, each with its own client.
func settleOnceFleet() Contender {
	return settleOnceInstances(fmt.Sprintf("Settle Once, %d instances", fleetSize), fleetSize, true)
}

// settleOnceUncoalesced is Settle Once without coalescing of concurrent deliveries.
func settleOnceUncoalesced() Contender {
	return settleOnceInstances("Settle Once, not coalesced", 1, false)
}

func settleOnceInstances(name string, n int, coalesce bool) Contender {
	return Contender{
		Name:       name,
		About:      "one Commit that inserts; where the key exists, a read without locks",
		Statements: schema.Statements,
		Open:       func(ctx context.Context, p Place) (Settler, error) { return openInstances(ctx, p, n, coalesce) },
	}
}

// instances take the deliveries in turn.
type instances struct {
	database
	coalesce bool
	services []*settle.Service // one for each store
	stores   []*spannerstore.Store
	next     atomic.Int64
}

func openInstances(ctx context.Context, p Place, n int, coalesce bool) (*instances, error) {
	db, err := p.open(ctx, realTables)
	if err != nil {
		return nil, err
	}
	s := &instances{database: db, coalesce: coalesce}
	for range n {
		store, err := spannerstore.Open(ctx, spannerstore.Config{Database: p.Database, Emulator: p.Emulator != "", Options: p.spannerOptions()})
		if err != nil {
			s.Close()
			return nil, err
		}
		s.stores = append(s.stores, store)
		s.services = append(s.services, &settle.Service{Store: store, DefaultCurrency: defaultCurrency, NewID: uuid.NewString, Now: p.Now})
	}
	return s, nil
}

// Settle implements Settler. A service coalesces its own deliveries, so without coalescing
// each delivery gets its own service with the shared store.
func (s *instances) Settle(ctx context.Context, d settle.Delivery) (settle.Outcome, error) {
	service := s.services[s.next.Add(1)%int64(len(s.services))]
	if !s.coalesce {
		service = &settle.Service{Store: service.Store, DefaultCurrency: defaultCurrency, NewID: uuid.NewString, Now: service.Now}
	}
	result, err := service.Deliver(ctx, d)
	return result.Outcome, err
}

// ClockWait returns how long a read without locks waits for the emulator's clock, which
// gains with each transaction: the time of a read of the present, less that of the past.
func (s *instances) ClockWait(ctx context.Context) (wait time.Duration, err error) {
	for _, bound := range []spanner.TimestampBound{spanner.MaxStaleness(10 * time.Second), spanner.StrongRead()} {
		began := time.Now()
		_, err := s.Single().WithTimestampBound(bound).ReadRow(ctx, s.movements, spanner.Key{[]byte("none")}, []string{"payload_hash"})
		if !errors.Is(err, spanner.ErrRowNotFound) {
			return 0, err
		}
		wait = time.Since(began) - wait
	}
	return wait, nil
}

// Close implements Settler.
func (s *instances) Close() {
	for _, store := range s.stores {
		store.Close()
	}
	s.database.Close()
}

// realTables are those of the real schema, for payouts without bank.
var realTables = tables{"ledger_movements", settlementRows}

func settlementRows(p delivery) []*spanner.Mutation {
	return []*spanner.Mutation{
		p.movement("ledger_movements", map[string]any{"payload_hash": p.hash}),
		p.receipt("settlement_receipts", nil),
	}
}
