package contender

import (
	"context"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settleonce/settleonce/internal/settle"
)

// postgres is what one writes on PostgreSQL: the receipt's primary key decides, and
// receipt and movement are in one transaction.
func postgres() Contender {
	return Contender{
		Key: "postgres", Name: "PostgreSQL",
		About:      "INSERT … ON CONFLICT DO NOTHING and the movement in one transaction, fsync on",
		System:     Postgres,
		Statements: func() ([]string, error) { return postgresTables, nil },
		Open:       openPostgres,
		Load:       loadPostgres,
		Movements:  countPostgres,
	}
}

var postgresTables = []string{
	`CREATE TABLE receipts (
  settlement_id varchar(128) PRIMARY KEY,
  payload_hash varchar(128) NOT NULL,
  result_status varchar(16) NOT NULL,
  delivery_id varchar(36) NOT NULL,
  message_id text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
)`,
	`CREATE TABLE movements (
  settlement_id varchar(128) PRIMARY KEY REFERENCES receipts,
  account_id varchar(128) NOT NULL,
  amount_cents bigint NOT NULL CHECK (amount_cents > 0),
  currency varchar(3) NOT NULL,
  creditor_account varchar(128),
  reference varchar(140),
  payload_hash varchar(128) NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT now()
)`,
}

const (
	pgInsertReceipt = `INSERT INTO receipts (settlement_id, payload_hash, result_status, delivery_id, message_id)
VALUES ($1, $2, 'applied', $3, $4) ON CONFLICT DO NOTHING`
	pgInsertMovement = `INSERT INTO movements (settlement_id, account_id, amount_cents, currency, creditor_account, reference, payload_hash)
VALUES ($1, $2, $3, $4, NULLIF($5, ''), NULLIF($6, ''), $7)`
	pgSelectHash = `SELECT payload_hash FROM receipts WHERE settlement_id = $1`
)

// connections is the pool's size: as many as deliveries are ever in flight.
const connections = 64

type pooled struct {
	*pgxpool.Pool
	place Place
}

func (p Place) pool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(p.Database)
	if err != nil {
		return nil, fmt.Errorf("open postgres database: %w", err)
	}
	config.MaxConns = connections
	if p.Dial != nil {
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			return p.Dial(ctx, network, address)
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open postgres database: %w", err)
	}
	return pool, nil
}

func openPostgres(ctx context.Context, p Place) (Settler, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	return &pooled{pool, p}, nil
}

// Settle implements Settler.
func (s *pooled) Settle(ctx context.Context, message []byte) (outcome settle.Outcome, err error) {
	p, err := s.place.read(message)
	if err != nil {
		return settle.OutcomeUnknown, err
	}
	err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		inserted, err := tx.Exec(ctx, pgInsertReceipt, p.SettlementID, p.hash, p.deliveryID, "1")
		if err != nil {
			return err
		}
		if inserted.RowsAffected() == 0 {
			var stored string
			err := tx.QueryRow(ctx, pgSelectHash, p.SettlementID).Scan(&stored)
			outcome = p.judge(stored)
			return err
		}
		outcome = settle.OutcomeApplied
		_, err = tx.Exec(ctx, pgInsertMovement, p.SettlementID, p.AccountID, p.AmountCents, p.Currency, p.CreditorAccount, p.Reference, p.hash)
		return err
	})
	if err != nil {
		return settle.OutcomeUnknown, fmt.Errorf("settle %q: %w", p.SettlementID, err)
	}
	return outcome, nil
}

func loadPostgres(ctx context.Context, p Place, from, n int) error {
	pool, err := p.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	settled := make([]payoutRow, n)
	for i := range settled {
		if settled[i], err = p.read(Message(from + i)); err != nil {
			return err
		}
	}
	_, err = pool.CopyFrom(ctx, pgx.Identifier{"receipts"}, []string{"settlement_id", "payload_hash", "result_status", "delivery_id", "message_id"},
		pgx.CopyFromSlice(n, func(i int) ([]any, error) {
			return []any{settled[i].SettlementID, settled[i].hash, "applied", settled[i].deliveryID, "1"}, nil
		}))
	if err != nil {
		return fmt.Errorf("load receipts: %w", err)
	}
	_, err = pool.CopyFrom(ctx, pgx.Identifier{"movements"}, []string{"settlement_id", "account_id", "amount_cents", "currency", "reference", "payload_hash"},
		pgx.CopyFromSlice(n, func(i int) ([]any, error) {
			s := settled[i]
			return []any{s.SettlementID, s.AccountID, s.AmountCents, s.Currency, s.Reference, s.hash}, nil
		}))
	if err != nil {
		return fmt.Errorf("load movements: %w", err)
	}
	return nil
}

func countPostgres(ctx context.Context, p Place) (map[string]int, error) {
	pool, err := p.pool(ctx)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	rows, err := pool.Query(ctx, `SELECT settlement_id, count(*) FROM movements GROUP BY settlement_id`)
	if err != nil {
		return nil, fmt.Errorf("count movements: %w", err)
	}
	counts := map[string]int{}
	var (
		id string
		n  int
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		counts[id] = n
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count movements: %w", err)
	}
	return counts, nil
}
