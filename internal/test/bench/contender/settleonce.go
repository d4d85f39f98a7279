package contender

import (
	"context"
	"fmt"
	"sync/atomic"

	"cloud.google.com/go/spanner"

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
		Open: func(ctx context.Context, p Place) (Settler, error) {
			return openSettleOnce(ctx, p)
		},
		table: "ledger_movements", rows: settlementRows,
	}
}

type service struct {
	settle.Service
	store *spannerstore.Store
}

func openSettleOnce(ctx context.Context, p Place) (*service, error) {
	store, err := spannerstore.Open(ctx, spannerstore.Config{Database: p.Database, Emulator: p.Emulator, Options: p.spannerOptions()})
	if err != nil {
		return nil, err
	}
	return &service{
		Service: settle.Service{Store: store, DefaultCurrency: defaultCurrency, NewID: p.NewID, Now: p.Now},
		store:   store,
	}, nil
}

// Settle implements Settler.
func (s *service) Settle(ctx context.Context, message []byte) (settle.Outcome, error) {
	result, err := s.Deliver(ctx, settle.Delivery{Message: settle.Message{ID: "1", Data: message}})
	return result.Outcome, err
}

// Close implements Settler.
func (s *service) Close() { s.store.Close() }

// fleetSize is the maximum number of instances in deploy/.
const fleetSize = 20

// settleOnceFleet is Settle Once with several instances, each with its own client, that
// take the deliveries in turn.
func settleOnceFleet() Contender {
	c := settleOnce()
	c.Key, c.Name = "settle_once_fleet", fmt.Sprintf("Settle Once, %d instances", fleetSize)
	c.Open = func(ctx context.Context, p Place) (Settler, error) {
		f := &fleet{}
		for range fleetSize {
			s, err := openSettleOnce(ctx, p)
			if err != nil {
				f.Close()
				return nil, err
			}
			f.instances = append(f.instances, s)
		}
		return f, nil
	}
	return c
}

type fleet struct {
	instances []*service
	next      atomic.Int64
}

// Settle implements Settler.
func (f *fleet) Settle(ctx context.Context, message []byte) (settle.Outcome, error) {
	return f.instances[f.next.Add(1)%int64(len(f.instances))].Settle(ctx, message)
}

// Close implements Settler.
func (f *fleet) Close() {
	for _, s := range f.instances {
		s.Close()
	}
}

// settleOnceUncoalesced is Settle Once without coalescing of concurrent deliveries.
func settleOnceUncoalesced() Contender {
	c := settleOnce()
	c.Key, c.Name = "settle_once_uncoalesced", "Settle Once, not coalesced"
	c.Open = func(ctx context.Context, p Place) (Settler, error) {
		s, err := openSettleOnce(ctx, p)
		return &uncoalesced{s}, err
	}
	return c
}

type uncoalesced struct{ *service }

// Settle implements Settler. A service coalesces its own deliveries, so each delivery
// gets its own service with the shared store.
func (u *uncoalesced) Settle(ctx context.Context, message []byte) (settle.Outcome, error) {
	s := service{
		Service: settle.Service{Store: u.store, DefaultCurrency: u.DefaultCurrency, NewID: u.NewID, Now: u.Now},
		store:   u.store,
	}
	return s.Settle(ctx, message)
}

// settlementRows are the rows of the real schema for a payout without bank.
func settlementRows(p delivery) []*spanner.Mutation {
	return []*spanner.Mutation{
		p.movement("ledger_movements", map[string]any{"payload_hash": p.hash}),
		p.receipt("settlement_receipts", map[string]any{"expire_from": spanner.CommitTimestamp}),
	}
}
