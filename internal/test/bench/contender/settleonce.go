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

// settleOnce is the real service on the real store.
func settleOnce() Contender {
	return Contender{
		Key: "settle_once", Name: "Settle Once",
		About:      "one Commit that inserts; where the key exists, a read without locks",
		System:     Spanner,
		Statements: schema.Statements,
		Open: func(ctx context.Context, p Place) (Settler, error) {
			return openSettleOnce(ctx, p)
		},
		Load:      loadSettlements,
		Movements: countSettlements,
	}
}

type service struct {
	settle.Service
	store *spannerstore.Store
}

func openSettleOnce(ctx context.Context, p Place) (*service, error) {
	store, err := spannerstore.Open(ctx, spannerstore.Config{Database: p.Database, Emulator: p.Emulator, Options: p.Options})
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

// fleetSize is how many instances deploy/ lets there be at most.
const fleetSize = 20

// settleOnceFleet is Settle Once as so many instances, with a client each, which are
// given deliveries in turn.
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

// settleOnceApart is Settle Once where no delivery waits for another.
func settleOnceApart() Contender {
	c := settleOnce()
	c.Key, c.Name = "settle_once_apart", "Settle Once, no delivery waits for another"
	c.Open = func(ctx context.Context, p Place) (Settler, error) {
		s, err := openSettleOnce(ctx, p)
		return &apart{s}, err
	}
	return c
}

type apart struct{ *service }

// Settle implements Settler. Deliveries wait for each other within a service, so each
// has one of its own, over the one store.
func (a *apart) Settle(ctx context.Context, message []byte) (settle.Outcome, error) {
	s := service{
		Service: settle.Service{Store: a.store, DefaultCurrency: a.DefaultCurrency, NewID: a.NewID, Now: a.Now},
		store:   a.store,
	}
	return s.Settle(ctx, message)
}

// settlementRows are the rows of the real schema for a payout without bank.
func settlementRows(p payoutRow) []*spanner.Mutation {
	return []*spanner.Mutation{
		spanner.InsertMap("ledger_movements", map[string]any{
			"settlement_id": p.SettlementID, "account_id": p.AccountID, "amount_cents": p.AmountCents, "currency": p.Currency,
			"creditor_account": nullString(p.CreditorAccount), "reference": nullString(p.Reference),
			"payload_hash": p.hash, "recorded_at": spanner.CommitTimestamp,
		}),
		spanner.InsertMap("settlement_receipts", map[string]any{
			"settlement_id": p.SettlementID, "payload_hash": p.hash, "result_status": "applied", "delivery_id": p.deliveryID,
			"message_id": "1", "applied_at": spanner.CommitTimestamp, "expire_from": spanner.CommitTimestamp,
		}),
	}
}

func loadSettlements(ctx context.Context, p Place, from, n int) error {
	return p.load(ctx, from, n, settlementRows)
}

func countSettlements(ctx context.Context, p Place) (map[string]int, error) {
	return p.count(ctx, "ledger_movements")
}
