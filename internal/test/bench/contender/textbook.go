package contender

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/iterator"

	"github.com/settleonce/settleonce/internal/settle"
)

// textbook is the usual SQL: select, insert twice, commit.
func textbook() Contender {
	return Contender{
		Name:       "SELECT, two INSERTs",
		About:      "read-write transaction with a SELECT by query and two DML INSERTs",
		Statements: func() ([]string, error) { return textbookTables, nil },
		Open: func(ctx context.Context, p Place) (Settler, error) {
			db, err := p.open(ctx, tables{"movements", textbookRows})
			return &readWriteSettler{db, decideBySQL}, err
		},
	}
}

func textbookRows(p delivery) []*spanner.Mutation {
	return []*spanner.Mutation{p.receipt("receipts", nil), p.movement("movements", map[string]any{"payload_hash": p.hash})}
}

// movementsTable is the DDL of a table of movements. It takes one more column, with its
// type, and the primary key.
const movementsTable = `CREATE TABLE movements (
  settlement_id STRING(128) NOT NULL,
  account_id STRING(128) NOT NULL,
  amount_cents INT64 NOT NULL,
  currency STRING(3) NOT NULL,
  creditor_account STRING(128),
  reference STRING(140),
  %s NOT NULL,
  recorded_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true),
  CONSTRAINT movements_amount_positive CHECK (amount_cents > 0),
) PRIMARY KEY (%s)`

var textbookTables = []string{
	fmt.Sprintf(movementsTable, "payload_hash STRING(128)", "settlement_id"),
	`CREATE TABLE receipts (
  settlement_id STRING(128) NOT NULL,
  payload_hash STRING(128) NOT NULL,
  result_status STRING(16) NOT NULL,
  delivery_id STRING(36) NOT NULL,
  message_id STRING(MAX) NOT NULL,
  applied_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true),
) PRIMARY KEY (settlement_id)`,
}

const (
	selectReceipt = `SELECT payload_hash FROM receipts WHERE settlement_id = @settlement_id`
	insertReceipt = `INSERT INTO receipts (settlement_id, payload_hash, result_status, delivery_id, message_id, applied_at)
VALUES (@settlement_id, @payload_hash, 'applied', @delivery_id, @message_id, PENDING_COMMIT_TIMESTAMP())`
	insertMovement = `INSERT INTO movements (settlement_id, account_id, amount_cents, currency, creditor_account, reference, payload_hash, recorded_at)
VALUES (@settlement_id, @account_id, @amount_cents, @currency, @creditor_account, @reference, @payload_hash, PENDING_COMMIT_TIMESTAMP())`
)

func decideBySQL(ctx context.Context, tx *spanner.ReadWriteTransaction, p delivery) (settle.Outcome, error) {
	stored, err := storedHash(ctx, tx, p.SettlementID)
	if err != nil {
		return settle.OutcomeUnknown, err
	}
	if stored != "" {
		return p.compare(stored), nil
	}
	if _, err := tx.Update(ctx, spanner.Statement{SQL: insertReceipt, Params: map[string]any{
		"settlement_id": p.SettlementID, "payload_hash": p.hash, "delivery_id": p.deliveryID, "message_id": "1",
	}}); err != nil {
		return settle.OutcomeUnknown, err
	}
	_, err = tx.Update(ctx, spanner.Statement{SQL: insertMovement, Params: map[string]any{
		"settlement_id": p.SettlementID, "account_id": p.AccountID, "amount_cents": p.AmountCents, "currency": p.Currency,
		"creditor_account": nullString(p.CreditorAccount), "reference": nullString(p.Reference), "payload_hash": p.hash,
	}})
	return settle.OutcomeApplied, err
}

// storedHash returns the payload hash of a receipt; empty without a receipt.
func storedHash(ctx context.Context, tx *spanner.ReadWriteTransaction, settlementID string) (hash string, err error) {
	rows := tx.Query(ctx, spanner.Statement{SQL: selectReceipt, Params: map[string]any{"settlement_id": settlementID}})
	defer rows.Stop()
	row, err := rows.Next()
	if errors.Is(err, iterator.Done) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	err = row.Columns(&hash)
	return hash, err
}
