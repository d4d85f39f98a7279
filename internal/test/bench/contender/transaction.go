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

// recordConflict inserts a conflict, or increments its number of deliveries.
func recordConflict(ctx context.Context, tx *spanner.ReadWriteTransaction, key []byte, p delivery) error {
	var deliveries int64
	row, err := tx.ReadRow(ctx, "settlement_conflicts", spanner.Key{key, p.hash}, []string{"deliveries"})
	if err == nil {
		err = row.Columns(&deliveries)
	}
	if err != nil && !errors.Is(err, spanner.ErrRowNotFound) {
		return err
	}
	conflict := map[string]any{
		"settlement_id": p.SettlementID, "payload_hash": p.hash, "last_delivery_id": p.deliveryID,
		"deliveries": deliveries + 1, "last_seen_at": spanner.CommitTimestamp,
	}
	if deliveries > 0 {
		return tx.BufferWrite([]*spanner.Mutation{spanner.UpdateMap("settlement_conflicts", conflict)})
	}
	conflict["fields"], conflict["payload"], conflict["message_id"] = []string{"amount_cents"}, p.message, "1"
	conflict["first_seen_at"] = spanner.CommitTimestamp
	return tx.BufferWrite([]*spanner.Mutation{spanner.InsertMap("settlement_conflicts", conflict)})
}
