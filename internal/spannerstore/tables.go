package spannerstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Reader is a transaction that can read, of any kind.
type Reader interface {
	ReadWithOptions(ctx context.Context, table string, keys spanner.KeySet, columns []string, opts *spanner.ReadOptions) *spanner.RowIterator
}

// Table is a table whose rows are read into values of T.
type Table[T any] struct {
	name string
	// key is the first column of the primary key: the hash of what a row is about.
	key string
	// columns names the columns, and the parts of a row that they go to.
	columns func(*T) []column
}

const settlementKey = "settlement_key"

// The tables.
var (
	Movements      = Table[settle.Movement]{"ledger_movements", settlementKey, movementFields}
	Receipts       = Table[ReceiptRow]{"settlement_receipts", settlementKey, receiptFields}
	Reversals      = Table[ReversalRow]{"ledger_reversals", settlementKey, reversalFields}
	Instructions   = Table[InstructionRow]{"bank_instructions", settlementKey, instructionFields}
	SupersededKeys = Table[SupersededRow]{"bank_superseded_keys", settlementKey, supersededFields}
	Events         = Table[EventRow]{"bank_instruction_events", settlementKey, eventFields}
	Conflicts      = Table[ConflictRow]{"settlement_conflicts", settlementKey, conflictFields}
	Quarantined    = Table[QuarantineRow]{"quarantined_messages", "message_key", quarantinedFields}
)

// InstructionRow is a row of bank_instructions. Its Transfer is empty: what of it
// is stored is the key, as text, and the rest stands in the movement.
type InstructionRow struct {
	transfer.Instruction

	IdempotencyKey string
	UncertainSince *time.Time // nil: the state is another
}

// SupersededRow is a row of bank_superseded_keys.
type SupersededRow struct {
	SettlementID   string
	Generation     int64
	IdempotencyKey string
	DecidedVersion int64
	SupersededAt   time.Time
}

// column is a column of a table, and what its value goes to.
type column struct {
	name string
	to   any
}

// Each calls each for the rows of keys in the order of the primary key, with the
// row's key, and stops at its first error.
func (t Table[T]) Each(ctx context.Context, tx Reader, keys spanner.KeySet, opts *spanner.ReadOptions, each func(key []byte, row T) error) error {
	names := []string{t.key}
	for _, c := range t.columns(new(T)) {
		names = append(names, c.name)
	}
	err := tx.ReadWithOptions(ctx, t.name, keys, names, opts).Do(func(row *spanner.Row) error {
		var (
			key []byte
			one T
		)
		if err := row.Column(0, &key); err != nil {
			return err
		}
		for i, c := range t.columns(&one) {
			if err := row.Column(1+i, c.to); err != nil {
				return err
			}
		}
		return each(key, one)
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", t.name, err)
	}
	return nil
}

// nullableColumn is what a column goes to that can be NULL. NULL leaves it as it is.
type nullableColumn struct{ to any }

// DecodeSpanner implements spanner.Decoder.
func (n *nullableColumn) DecodeSpanner(value any) (err error) {
	if null, ok := value.(*string); ok && null == nil {
		return nil
	}
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("read %T: not text", value)
	}
	switch to := n.to.(type) {
	case *string:
		*to = text
	case *int:
		*to, err = strconv.Atoi(text)
	case *time.Time:
		*to, err = time.Parse(time.RFC3339Nano, text)
	default:
		err = fmt.Errorf("read into %T: not known", to)
	}
	return err
}

func nullable(to any) *nullableColumn { return &nullableColumn{to} }

func movementFields(m *settle.Movement) []column {
	return []column{
		{"settlement_id", &m.SettlementID},
		{"account_id", &m.AccountID},
		{"amount_cents", &m.AmountCents},
		{"currency", &m.Currency},
		{"creditor_account", nullable(&m.CreditorAccount)},
		{"reference", nullable(&m.Reference)},
		{"payload_hash", &m.PayloadHash},
		{"recorded_at", &m.RecordedAt},
	}
}

func receiptFields(r *ReceiptRow) []column {
	return []column{
		{"settlement_id", &r.SettlementID},
		{"payload_hash", &r.PayloadHash},
		{"result_status", &r.ResultStatus},
		{"delivery_id", &r.DeliveryID},
		{"message_id", &r.MessageID},
		{"publish_time", &r.PublishTime},
		{"metadata", nullable(&r.Metadata)},
		{"applied_at", &r.AppliedAt},
		{"expire_from", &r.ExpireFrom},
	}
}

func reversalFields(r *ReversalRow) []column {
	return []column{
		{"settlement_id", &r.SettlementID},
		{"amount_cents", &r.AmountCents},
		{"reason", &r.Reason},
		{"recorded_at", &r.RecordedAt},
	}
}

func instructionFields(in *InstructionRow) []column {
	return []column{
		{"settlement_id", &in.SettlementID},
		{"idempotency_key", &in.IdempotencyKey},
		{"request_body", &in.Body},
		{"state", &in.State},
		{"version", &in.Version},
		{"lease_owner", nullable(&in.Owner)},
		{"lease_until", nullable(&in.LeaseUntil)},
		{"created_at", &in.CreatedAt},
		{"sends", &in.Sends},
		{"send_deferred", &in.SendDeferred},
		{"first_sent_at", nullable(&in.FirstSentAt)},
		{"last_sent_at", nullable(&in.LastSentAt)},
		{"resend_not_after", nullable(&in.ResendNotAfter)},
		{"not_found_since", nullable(&in.NotFoundSince)},
		{"accepted_at", nullable(&in.AcceptedAt)},
		{"final_at", nullable(&in.FinalAt)},
		{"bank_transfer_id", nullable(&in.TransferID)},
		{"bank_status", nullable(&in.BankStatus)},
		{"checks", &in.Checks},
		{"next_check_at", nullable(&in.NextCheckAt)},
		{"uncertain_since", &in.UncertainSince},
	}
}

func supersededFields(k *SupersededRow) []column {
	return []column{
		{"settlement_id", &k.SettlementID},
		{"generation", &k.Generation},
		{"idempotency_key", &k.IdempotencyKey},
		{"decided_version", &k.DecidedVersion},
		{"superseded_at", &k.SupersededAt},
	}
}

func eventFields(e *EventRow) []column {
	return []column{
		{"settlement_id", &e.SettlementID},
		{"version", &e.Version},
		{"from_state", nullable((*string)(&e.Event.From))},
		{"to_state", &e.Event.To},
		{"cause", &e.Event.Cause},
		{"http_status", nullable(&e.Event.HTTPStatus)},
		{"detail", nullable(&e.Event.Detail)},
		{"recorded_at", &e.RecordedAt},
	}
}

func conflictFields(c *ConflictRow) []column {
	return []column{
		{"settlement_id", &c.SettlementID},
		{"payload_hash", &c.PayloadHash},
		{"fields", &c.Fields},
		{"payload", &c.Payload},
		{"message_id", &c.MessageID},
		{"last_delivery_id", &c.LastDeliveryID},
		{"deliveries", &c.Deliveries},
		{"first_seen_at", &c.FirstSeenAt},
		{"last_seen_at", &c.LastSeenAt},
		{"resolved_at", &c.ResolvedAt},
		{"resolved_by", nullable(&c.ResolvedBy)},
		{"note", nullable(&c.Note)},
	}
}

func quarantinedFields(q *QuarantineRow) []column {
	return []column{
		{"identity", &q.Identity},
		{"message_id", &q.MessageID},
		{"subscription", &q.Subscription},
		{"reason", &q.Reason},
		{"member", nullable(&q.Member)},
		{"detail", &q.Detail},
		{"data", &q.Data},
		{"attributes", nullable(&q.Attributes)},
		{"ordering_key", nullable(&q.OrderingKey)},
		{"publish_time", &q.PublishTime},
		{"last_delivery_id", &q.LastDeliveryID},
		{"deliveries", &q.Deliveries},
		{"quarantined_at", &q.QuarantinedAt},
		{"released_at", &q.ReleasedAt},
		{"released_by", nullable(&q.ReleasedBy)},
		{"note", nullable(&q.Note)},
		{"expire_from", &q.ExpireFrom},
	}
}
