package spannerstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/iterator"

	"github.com/settleonce/settleonce/internal/settle"
)

// Tags by which Spanner's statistics tell this program's work apart.
const (
	tagSettle     = "settle"
	tagQuarantine = "quarantine"
	tagDue        = "due"
)

// rowsFor returns the mutations of a judgement.
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

// conflictRow inserts a conflict, or counts another delivery of it.
func conflictRow(fields []string, deliveries int64, st settle.Settlement) *spanner.Mutation {
	row := ConflictRow{
		SettlementID: st.Payout.SettlementID, PayloadHash: st.Hash, Fields: fields, Payload: st.Message.Data, MessageID: st.Message.ID,
		LastDeliveryID: st.DeliveryID, Deliveries: deliveries + 1, FirstSeenAt: spanner.CommitTimestamp, LastSeenAt: spanner.CommitTimestamp,
	}
	if deliveries > 0 {
		return Conflicts.Update(row, "settlement_id", "payload_hash", "last_delivery_id", "deliveries", "last_seen_at")
	}
	return Conflicts.Insert(row)
}

// storedSQL reads a settlement in one round trip: keyed reads of the four interleaved
// tables, joined on their common key.
var storedSQL = `SELECT ` + Select(new(storedRow).fields()) + `
FROM ledger_movements AS m
LEFT JOIN settlement_receipts AS r ON r.settlement_key = m.settlement_key
LEFT JOIN bank_instructions AS i ON i.settlement_key = m.settlement_key
LEFT JOIN settlement_conflicts AS c ON c.settlement_key = m.settlement_key AND c.payload_hash = @payload_hash
WHERE m.settlement_key = @settlement_key`

// storedRow is a row of storedSQL. The count is the store's own.
type storedRow struct {
	settle.Stored
	conflictDeliveries int64

	movement    settle.Movement
	receipt     ReceiptRow
	instruction InstructionRow
	conflict    ConflictRow
}

func (s *storedRow) fields() []Field {
	return slices.Concat(
		Movements.As("m", &s.movement),
		Optional(Receipts.As("r", &s.receipt, "payload_hash", "delivery_id")),
		Optional(Instructions.As("i", &s.instruction, "state")),
		Optional(Conflicts.As("c", &s.conflict, "last_delivery_id", "deliveries")),
	)
}

// rowReader is a transaction that can read a row by its key, of either kind.
type rowReader interface {
	ReadRowWithOptions(ctx context.Context, table string, key spanner.Key, columns []string, opts *spanner.ReadOptions) (*spanner.Row, error)
}

// Querier is a transaction that can query, of either kind.
type Querier interface {
	QueryWithOptions(ctx context.Context, statement spanner.Statement, opts spanner.QueryOptions) *spanner.RowIterator
}

// SettlementKey is the key of a settlement's rows, as the schema derives it.
func SettlementKey(settlementID string) []byte {
	sum := sha256.Sum256([]byte(settlementID))
	return sum[:]
}

func readStored(ctx context.Context, tx Querier, st settle.Settlement) (storedRow, error) {
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
	return scanStored(row)
}

func scanStored(row *spanner.Row) (s storedRow, err error) {
	if err := Scan(row, s.fields()); err != nil {
		return storedRow{}, fmt.Errorf("read settlement: %w", err)
	}
	s.Stored = settle.Stored{Movement: &s.movement, Instruction: s.instruction.State, ConflictDeliveryID: s.conflict.LastDeliveryID}
	s.conflictDeliveries = s.conflict.Deliveries
	if s.receipt.PayloadHash != "" {
		s.Receipt = &settle.Receipt{PayloadHash: s.receipt.PayloadHash, DeliveryID: s.receipt.DeliveryID}
	}
	return s, nil
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
	return Quarantined.Insert(QuarantineRow{
		Identity: q.Identity(), MessageID: q.Message.ID, Subscription: q.Message.Subscription,
		Reason: q.Refusal.Reason, Member: q.Refusal.Member, Detail: q.Refusal.Detail,
		Data: data, Attributes: attributes, OrderingKey: q.Message.OrderingKey, PublishTime: timeOrNull(q.Message.PublishTime),
		LastDeliveryID: q.DeliveryID, Deliveries: 1, QuarantinedAt: spanner.CommitTimestamp,
	}), nil
}

// quarantinedBefore is the part of a quarantined message's row that another delivery
// changes. The zero value: there is no row.
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
	row := QuarantineRow{Identity: q.Identity(), LastDeliveryID: q.DeliveryID, Deliveries: before.deliveries + 1}
	return Quarantined.Update(row, "identity", "last_delivery_id", "deliveries")
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
