package spannerstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/iterator"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Tags by which Spanner's statistics tell this program's work apart.
const (
	tagSettle     = "settle"
	tagQuarantine = "quarantine"
	tagDue        = "due"
)

// The columns of what a settlement inserts, in the order of the values in
// settlementRows. They are not maps, because the names and their order are the
// same for every settlement.
var (
	movementColumns = []string{
		"settlement_id", "account_id", "amount_cents", "currency", "creditor_account", "reference", "payload_hash", "recorded_at",
	}
	receiptColumns = []string{
		"settlement_id", "payload_hash", "result_status", "delivery_id", "message_id", "publish_time", "metadata", "applied_at",
		"expire_from", // last: left out while the outcome is not final
	}
)

// settlementRows is everything that a settlement inserts. It is made anew for
// every run of a transaction.
func settlementRows(st settle.Settlement) ([]*spanner.Mutation, error) {
	p, hash := st.Payout, string(st.Hash)
	metadata, err := settle.JSONObject(p.Metadata)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	movement := spanner.Insert("ledger_movements", movementColumns, []any{
		p.SettlementID, p.AccountID, p.AmountCents, p.Currency, nullString(p.CreditorAccount), nullString(p.Reference), hash, spanner.CommitTimestamp,
	})
	columns, receipt := receiptColumns, []any{
		p.SettlementID, hash, settle.OutcomeApplied.String(), st.DeliveryID, st.Message.ID, nullTime(st.Message.PublishTime), nullString(metadata),
		spanner.CommitTimestamp, spanner.CommitTimestamp,
	}
	if st.Instruction == nil {
		return []*spanner.Mutation{movement, spanner.Insert("settlement_receipts", columns, receipt)}, nil
	}
	last := len(columns) - 1
	columns, receipt = columns[:last], receipt[:last] // the receipt is kept until the outcome is final
	rows := append([]*spanner.Mutation{movement}, newInstructionRows(*st.Instruction)...)
	return append(rows, spanner.Insert("settlement_receipts", columns, receipt)), nil
}

// rowsFor is what a judgement writes.
func rowsFor(j settle.Judgement, stored storedRow, st settle.Settlement) ([]*spanner.Mutation, error) {
	switch j.Action {
	case settle.ActionInsert:
		return settlementRows(st)
	case settle.ActionRecordConflict:
		return []*spanner.Mutation{conflictRow(j.Result.Fields, stored.conflictDeliveries, st)}, nil
	case settle.ActionNone:
		return nil, nil
	}
	return nil, fmt.Errorf("carry out judgement: unknown action %d", j.Action)
}

// conflictRow inserts a conflict, or raises the count of one that was delivered
// before.
func conflictRow(fields []string, deliveries int64, st settle.Settlement) *spanner.Mutation {
	row := map[string]any{
		"settlement_id":    st.Payout.SettlementID,
		"payload_hash":     string(st.Hash),
		"last_delivery_id": st.DeliveryID,
		"deliveries":       deliveries + 1,
		"last_seen_at":     spanner.CommitTimestamp,
	}
	if deliveries > 0 {
		return spanner.UpdateMap("settlement_conflicts", row)
	}
	row["fields"] = fields
	row["payload"] = st.Message.Data
	row["message_id"] = st.Message.ID
	row["first_seen_at"] = spanner.CommitTimestamp
	return spanner.InsertMap("settlement_conflicts", row)
}

// storedSQL reads everything that is stored under one settlement ID in one round
// trip: keyed reads of the four interleaved tables, joined on their common key.
const storedSQL = `
SELECT m.account_id, m.amount_cents, m.currency, m.creditor_account, m.reference, m.payload_hash, m.recorded_at,
       r.payload_hash AS receipt_hash, r.delivery_id,
       i.state, c.last_delivery_id AS conflict_delivery_id, c.deliveries AS conflict_deliveries
FROM ledger_movements AS m
LEFT JOIN settlement_receipts AS r ON r.settlement_key = m.settlement_key
LEFT JOIN bank_instructions AS i ON i.settlement_key = m.settlement_key
LEFT JOIN settlement_conflicts AS c ON c.settlement_key = m.settlement_key AND c.payload_hash = @payload_hash
WHERE m.settlement_key = @settlement_key`

// storedRow is what is stored of a settlement, with the count that only the
// store needs.
type storedRow struct {
	settle.Stored
	conflictDeliveries int64
}

// rowReader is a transaction that can read a row by its key, of either kind.
type rowReader interface {
	ReadRowWithOptions(ctx context.Context, table string, key spanner.Key, columns []string, opts *spanner.ReadOptions) (*spanner.Row, error)
}

// querier is a transaction that can query, of either kind.
type querier interface {
	QueryWithOptions(ctx context.Context, statement spanner.Statement, opts spanner.QueryOptions) *spanner.RowIterator
}

// SettlementKey is the key of a settlement's rows, as the schema derives it.
func SettlementKey(settlementID string) []byte {
	sum := sha256.Sum256([]byte(settlementID))
	return sum[:]
}

func readStored(ctx context.Context, tx querier, st settle.Settlement) (storedRow, error) {
	rows := tx.QueryWithOptions(ctx, spanner.Statement{SQL: storedSQL, Params: map[string]any{
		"settlement_key": SettlementKey(st.Payout.SettlementID), "payload_hash": string(st.Hash),
	}}, spanner.QueryOptions{RequestTag: tagSettle})
	defer rows.Stop()
	row, err := rows.Next()
	if errors.Is(err, iterator.Done) {
		return storedRow{}, nil
	}
	if err != nil {
		return storedRow{}, fmt.Errorf("read settlement: %w", err)
	}
	return scanStored(row, st.Payout.SettlementID)
}

func scanStored(row *spanner.Row, settlementID string) (storedRow, error) {
	var (
		m                                      = settle.Movement{SettlementID: settlementID}
		hash                                   string
		creditor, reference                    spanner.NullString
		receiptHash, delivery, state, conflict spanner.NullString
		conflictDeliveries                     spanner.NullInt64
	)
	err := row.Columns(&m.AccountID, &m.AmountCents, &m.Currency, &creditor, &reference, &hash, &m.RecordedAt,
		&receiptHash, &delivery, &state, &conflict, &conflictDeliveries)
	if err != nil {
		return storedRow{}, fmt.Errorf("read settlement: %w", err)
	}
	m.CreditorAccount, m.Reference, m.PayloadHash = creditor.StringVal, reference.StringVal, payout.Hash(hash)
	stored := settle.Stored{
		Movement:           &m,
		Instruction:        transfer.State(state.StringVal),
		ConflictDeliveryID: conflict.StringVal,
	}
	if receiptHash.Valid {
		stored.Receipt = &settle.Receipt{
			PayloadHash: payout.Hash(receiptHash.StringVal), DeliveryID: delivery.StringVal,
		}
	}
	return storedRow{Stored: stored, conflictDeliveries: conflictDeliveries.Int64}, nil
}

func quarantinedRow(q settle.Quarantined) (*spanner.Mutation, error) {
	attributes, err := settle.JSONObject(q.Message.Attributes)
	if err != nil {
		return nil, fmt.Errorf("encode attributes: %w", err)
	}
	data := q.Message.Data
	if data == nil {
		data = []byte{} // a nil slice would be NULL
	}
	return spanner.InsertMap("quarantined_messages", map[string]any{
		"identity":         q.Identity(),
		"message_id":       q.Message.ID,
		"subscription":     q.Message.Subscription,
		"reason":           string(q.Refusal.Reason),
		"member":           nullString(q.Refusal.Member),
		"detail":           q.Refusal.Detail,
		"data":             data,
		"attributes":       nullString(attributes),
		"ordering_key":     nullString(q.Message.OrderingKey),
		"publish_time":     nullTime(q.Message.PublishTime),
		"last_delivery_id": q.DeliveryID,
		"deliveries":       1,
		"quarantined_at":   spanner.CommitTimestamp,
	}), nil
}

// quarantinedBefore is what a transaction needs to know of a message that was
// quarantined before. The zero value is a message that was not.
type quarantinedBefore struct {
	lastDeliveryID string
	deliveries     int64
}

func readQuarantined(ctx context.Context, tx rowReader, q settle.Quarantined) (quarantinedBefore, error) {
	key := sha256.Sum256([]byte(q.Identity()))
	row, err := tx.ReadRowWithOptions(ctx, "quarantined_messages", spanner.Key{key[:]},
		[]string{"last_delivery_id", "deliveries"}, &spanner.ReadOptions{RequestTag: tagQuarantine})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return quarantinedBefore{}, nil
	}
	if err != nil {
		return quarantinedBefore{}, fmt.Errorf("read quarantined message: %w", err)
	}
	var before quarantinedBefore
	if err := row.Columns(&before.lastDeliveryID, &before.deliveries); err != nil {
		return quarantinedBefore{}, fmt.Errorf("read quarantined message: %w", err)
	}
	return before, nil
}

func quarantinedAgainRow(q settle.Quarantined, before quarantinedBefore) *spanner.Mutation {
	return spanner.UpdateMap("quarantined_messages", map[string]any{
		"identity":         q.Identity(),
		"last_delivery_id": q.DeliveryID,
		"deliveries":       before.deliveries + 1,
	})
}

func nullString(s string) spanner.NullString { return spanner.NullString{StringVal: s, Valid: s != ""} }

func nullTime(t time.Time) spanner.NullTime { return spanner.NullTime{Time: t, Valid: !t.IsZero()} }
