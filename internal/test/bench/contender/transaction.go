package contender

import (
	"context"
	"crypto/sha256"
	"errors"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/schema"
)

// transactionOnly is Settle Once without its first Commit: it always decides in a
// read-write transaction, on the same tables.
func transactionOnly() Contender {
	return Contender{
		Name:       "transaction only",
		About:      "read-write transaction on the same tables: read by key, check, buffer the inserts, commit",
		Statements: schema.Statements,
		Open: func(ctx context.Context, p Place) (Settler, error) {
			db, err := p.open(ctx, realTables)
			return &readWriteSettler{db, decideByKey}, err
		},
	}
}

func decideByKey(ctx context.Context, tx *spanner.ReadWriteTransaction, p delivery) (settle.Outcome, error) {
	key := sha256.Sum256([]byte(p.SettlementID))
	row, err := tx.ReadRow(ctx, "ledger_movements", spanner.Key{key[:]}, []string{"payload_hash"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return settle.OutcomeApplied, tx.BufferWrite(settlementRows(p))
	}
	if err != nil {
		return settle.OutcomeUnknown, err
	}
	var stored string
	if err := row.Columns(&stored); err != nil {
		return settle.OutcomeUnknown, err
	}
	outcome := p.compare(stored)
	if outcome == settle.OutcomeConflict {
		err = recordConflict(ctx, tx, key[:], p)
	}
	return outcome, err
}

// recordConflict inserts a conflict unless it is known.
func recordConflict(ctx context.Context, tx *spanner.ReadWriteTransaction, key []byte, p delivery) error {
	_, err := tx.ReadRow(ctx, "settlement_conflicts", spanner.Key{key, p.hash}, []string{"payload_hash"})
	if !errors.Is(err, spanner.ErrRowNotFound) {
		return err
	}
	return tx.BufferWrite([]*spanner.Mutation{spanner.InsertMap("settlement_conflicts", map[string]any{
		"settlement_id": p.SettlementID, "payload_hash": p.hash, "fields": []string{"amount_cents"}, "payload": p.message,
		"message_id": "1", "seen_at": spanner.CommitTimestamp,
	})})
}
