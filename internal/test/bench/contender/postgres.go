package contender

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settleonce/settleonce/internal/settle"
)

// postgres is the usual SQL of PostgreSQL: the receipt's primary key detects duplicates,
// and one transaction inserts receipt and movement.
func postgres() Contender {
	return Contender{
		Name:       "PostgreSQL",
		About:      "INSERT … ON CONFLICT DO NOTHING and the movement in one transaction, fsync on",
		Postgres:   true,
		Statements: func() ([]string, error) { return postgresTables, nil },
		Open:       openPostgres,
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

func (p delivery) receiptValues() []any { return []any{p.SettlementID, p.hash, p.deliveryID, "1"} }

func (p delivery) movementValues() []any {
	return []any{p.SettlementID, p.AccountID, p.AmountCents, p.Currency, p.CreditorAccount, p.Reference, p.hash}
}

// connections is the pool's size, the highest number of concurrent deliveries.
const connections = 64

type pooled struct{ *pgxpool.Pool }

func openPostgres(ctx context.Context, p Place) (Settler, error) {
	config, err := pgxpool.ParseConfig(p.Database)
	if err != nil {
		return nil, fmt.Errorf("open postgres database: %w", err)
	}
	config.MaxConns = connections
	if p.Dial != nil {
		config.ConnConfig.DialFunc = p.Dial
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open postgres database: %w", err)
	}
	return &pooled{pool}, nil
}

// Settle implements Settler.
func (s *pooled) Settle(ctx context.Context, d settle.Delivery) (outcome settle.Outcome, err error) {
	p, err := decode(d.Message.Data)
	if err != nil {
		return settle.OutcomeUnknown, err
	}
	err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		inserted, err := tx.Exec(ctx, pgInsertReceipt, p.receiptValues()...)
		if err != nil {
			return err
		}
		if inserted.RowsAffected() == 0 {
			var stored string
			err := tx.QueryRow(ctx, pgSelectHash, p.SettlementID).Scan(&stored)
			outcome = p.compare(stored)
			return err
		}
		outcome = settle.OutcomeApplied
		_, err = tx.Exec(ctx, pgInsertMovement, p.movementValues()...)
		return err
	})
	if err != nil {
		return settle.OutcomeUnknown, fmt.Errorf("settle %q: %w", p.SettlementID, err)
	}
	return outcome, nil
}

// insert implements Settler.
func (s *pooled) insert(ctx context.Context, settled []delivery) error {
	var batch pgx.Batch
	for _, p := range settled {
		batch.Queue(pgInsertReceipt, p.receiptValues()...)
		batch.Queue(pgInsertMovement, p.movementValues()...)
	}
	return s.SendBatch(ctx, &batch).Close()
}

// Movements implements Settler.
func (s *pooled) Movements(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	rows, err := s.Query(ctx, "SELECT settlement_id FROM movements")
	if err != nil {
		return nil, err
	}
	var id string
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		counts[id]++
		return nil
	})
	return counts, err
}
