// Package readback reads a whole Settle Once database, for the demo and for
// tests on the emulator. It holds everything in memory: it is not for a
// database of any size.
//
// It reads tables and asks no queries: on the emulator a query costs some
// milliseconds whatever it is, and a test may look at everything after every step.
package readback

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/snapshot"
)

// Read returns everything that is stored, as of one timestamp.
func Read(ctx context.Context, client *spanner.Client) (snapshot.Snapshot, error) {
	tx := client.ReadOnlyTransaction()
	defer tx.Close()
	all, err := read(ctx, tx)
	if err != nil {
		return snapshot.Snapshot{}, fmt.Errorf("read back: %w", err)
	}
	return all, nil
}

func read(ctx context.Context, tx *spanner.ReadOnlyTransaction) (all snapshot.Snapshot, err error) {
	for _, table := range []func() error{
		func() error { return readInto(ctx, tx, &all.Movements, "ledger_movements", movementColumns) },
		func() error { return readInto(ctx, tx, &all.Receipts, "settlement_receipts", receiptColumns) },
		func() error { return readInto(ctx, tx, &all.Reversals, "ledger_reversals", reversalColumns) },
		func() error { return readInto(ctx, tx, &all.Instructions, "bank_instructions", instructionColumns) },
		func() error { return readInto(ctx, tx, &all.Events, "bank_instruction_events", eventColumns) },
		func() error { return readInto(ctx, tx, &all.Conflicts, "settlement_conflicts", conflictColumns) },
		func() error { return readInto(ctx, tx, &all.Quarantined, "quarantined_messages", quarantinedColumns) },
	} {
		if err := table(); err != nil {
			return all, err
		}
	}
	for i := range all.Instructions {
		in := &all.Instructions[i]
		if m := all.Movement(in.SettlementID); m != nil {
			in.Transfer.AmountCents, in.Transfer.Currency, in.Transfer.CreditorAccount = m.AmountCents, m.Currency, m.CreditorAccount
		}
	}
	sortByKey(&all)
	return all, nil
}

// sortByKey puts the rows into the order that a snapshot has. A table's own order
// is that of the hashes of its keys.
func sortByKey(all *snapshot.Snapshot) {
	slices.SortFunc(all.Movements, func(a, b settle.Movement) int { return cmp.Compare(a.SettlementID, b.SettlementID) })
	slices.SortFunc(all.Receipts, func(a, b snapshot.Receipt) int { return cmp.Compare(a.SettlementID, b.SettlementID) })
	slices.SortFunc(all.Reversals, func(a, b snapshot.Reversal) int { return cmp.Compare(a.SettlementID, b.SettlementID) })
	slices.SortFunc(all.Instructions, func(a, b settle.Instruction) int { return cmp.Compare(a.SettlementID, b.SettlementID) })
	slices.SortFunc(all.Events, func(a, b snapshot.InstructionEvent) int {
		return cmp.Or(cmp.Compare(a.SettlementID, b.SettlementID), cmp.Compare(a.Version, b.Version))
	})
	slices.SortFunc(all.Conflicts, func(a, b snapshot.Conflict) int {
		return cmp.Or(cmp.Compare(a.SettlementID, b.SettlementID), cmp.Compare(a.PayloadHash, b.PayloadHash))
	})
	slices.SortFunc(all.Quarantined, func(a, b snapshot.Quarantined) int { return cmp.Compare(a.Identity, b.Identity) })
}

// column is a column of a table, and what its value goes to.
type column struct {
	name string
	to   any
}

// readInto appends the rows of a table. columnsOf names the columns, and the parts
// of a row that they go to.
func readInto[T any](ctx context.Context, tx *spanner.ReadOnlyTransaction, rows *[]T, table string, columnsOf func(*T) []column) error {
	var names []string
	for _, c := range columnsOf(new(T)) {
		names = append(names, c.name)
	}
	return tx.Read(ctx, table, spanner.AllKeys(), names).Do(func(row *spanner.Row) error {
		var one T
		for i, c := range columnsOf(&one) {
			if err := row.Column(i, c.to); err != nil {
				return err
			}
		}
		*rows = append(*rows, one)
		return nil
	})
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
	case *uuid.UUID:
		*to, err = uuid.Parse(text)
	default:
		err = fmt.Errorf("read into %T: not known", to)
	}
	return err
}

func nullable(to any) *nullableColumn { return &nullableColumn{to} }

func movementColumns(m *settle.Movement) []column {
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

func receiptColumns(r *snapshot.Receipt) []column {
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

func reversalColumns(r *snapshot.Reversal) []column {
	return []column{
		{"settlement_id", &r.SettlementID},
		{"amount_cents", &r.AmountCents},
		{"reason", &r.Reason},
		{"recorded_at", &r.RecordedAt},
	}
}

func instructionColumns(in *settle.Instruction) []column {
	return []column{
		{"settlement_id", &in.SettlementID},
		{"idempotency_key", nullable(&in.Transfer.Key)},
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
	}
}

func eventColumns(e *snapshot.InstructionEvent) []column {
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

func conflictColumns(c *snapshot.Conflict) []column {
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

func quarantinedColumns(q *snapshot.Quarantined) []column {
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
