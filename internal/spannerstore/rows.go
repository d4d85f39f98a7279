package spannerstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle"
)

// Tags by which Spanner's statistics tell this program's work apart.
const (
	tagSettle     = "settle"
	tagQuarantine = "quarantine"
	tagDue        = "due"
)

// rowsFor returns the mutations of a judgement.
func rowsFor(j settle.Judgement, st settle.Settlement) ([]*spanner.Mutation, error) {
	switch j.Action {
	case settle.ActionInsert:
		return settlementRows(st)
	case settle.ActionRecordConflict:
		return []*spanner.Mutation{conflictRow(j.Result.Fields, st)}, nil
	case settle.ActionNone:
		return nil, nil
	}
	return nil, fmt.Errorf("carry out judgement: unknown action %d", j.Action)
}

func conflictRow(fields []string, st settle.Settlement) *spanner.Mutation {
	return Conflicts.Insert(ConflictRow{
		SettlementID: st.Payout.SettlementID, PayloadHash: st.Hash, Fields: fields, Payload: st.Message.Data, MessageID: st.Message.ID,
		Source: st.Message.Source, SeenAt: spanner.CommitTimestamp,
	})
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
		QuarantinedAt: spanner.CommitTimestamp,
	}), nil
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
