// Package readback reads a whole Settle Once database, for the demo and for
// tests on the emulator. It holds everything in memory: it is not for a
// database of any size.
package readback

import (
	"context"
	"fmt"
	"reflect"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/snapshot"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Read returns everything that is stored, as of one timestamp.
func Read(ctx context.Context, client *spanner.Client) (snapshot.Snapshot, error) {
	tx := client.ReadOnlyTransaction()
	defer tx.Close()
	var all snapshot.Snapshot
	for _, table := range []struct {
		sql  string
		rows any
	}{
		{movementsSQL, &all.Movements},
		{receiptsSQL, &all.Receipts},
		{reversalsSQL, &all.Reversals},
		{conflictsSQL, &all.Conflicts},
		{quarantinedSQL, &all.Quarantined},
	} {
		if err := readInto(ctx, tx, table.sql, table.rows); err != nil {
			return snapshot.Snapshot{}, fmt.Errorf("read back: %w", err)
		}
	}
	if err := readInstructions(ctx, tx, &all); err != nil {
		return snapshot.Snapshot{}, fmt.Errorf("read back: %w", err)
	}
	return all, nil
}

func readInstructions(ctx context.Context, tx *spanner.ReadOnlyTransaction, all *snapshot.Snapshot) error {
	err := tx.Query(ctx, spanner.NewStatement(spannerstore.InstructionSQL+` ORDER BY i.settlement_id`)).Do(func(row *spanner.Row) error {
		in, err := spannerstore.ScanInstruction(row)
		all.Instructions = append(all.Instructions, in)
		return err
	})
	if err != nil {
		return err
	}
	return tx.Query(ctx, spanner.NewStatement(eventsSQL)).Do(func(row *spanner.Row) error {
		var (
			e          snapshot.InstructionEvent
			httpStatus int64
		)
		err := row.Columns(&e.SettlementID, &e.Version, &e.Event.From, &e.Event.To, &e.Event.Cause, &httpStatus, &e.Event.Detail, &e.RecordedAt)
		e.Event.HTTPStatus = int(httpStatus)
		all.Events = append(all.Events, e)
		return err
	})
}

// readInto appends the rows of a query to the slice that rows points to.
func readInto(ctx context.Context, tx *spanner.ReadOnlyTransaction, sql string, rows any) error {
	slice := reflect.ValueOf(rows).Elem()
	return tx.Query(ctx, spanner.NewStatement(sql)).Do(func(row *spanner.Row) error {
		element := reflect.New(slice.Type().Elem())
		if err := row.ToStruct(element.Interface()); err != nil {
			return err
		}
		slice.Set(reflect.Append(slice, element.Elem()))
		return nil
	})
}

// The columns are named after the fields that they go to.
const (
	movementsSQL = `SELECT settlement_id AS SettlementID, account_id AS AccountID, amount_cents AS AmountCents, currency AS Currency,
  IFNULL(creditor_account, '') AS CreditorAccount, IFNULL(reference, '') AS Reference, payload_hash AS PayloadHash, recorded_at AS RecordedAt
FROM ledger_movements ORDER BY settlement_id`
	receiptsSQL = `SELECT settlement_id AS SettlementID, payload_hash AS PayloadHash, result_status AS ResultStatus, delivery_id AS DeliveryID,
  message_id AS MessageID, publish_time AS PublishTime, IFNULL(metadata, '') AS Metadata, applied_at AS AppliedAt, expire_from AS ExpireFrom
FROM settlement_receipts ORDER BY settlement_id`
	reversalsSQL = `SELECT settlement_id AS SettlementID, amount_cents AS AmountCents, reason AS Reason, recorded_at AS RecordedAt
FROM ledger_reversals ORDER BY settlement_id`
	eventsSQL = `SELECT settlement_id, version, IFNULL(from_state, ''), to_state, cause, IFNULL(http_status, 0), IFNULL(detail, ''), recorded_at
FROM bank_instruction_events ORDER BY settlement_id, version`
	conflictsSQL = `SELECT settlement_id AS SettlementID, payload_hash AS PayloadHash, fields AS Fields, payload AS Payload, message_id AS MessageID,
  last_delivery_id AS LastDeliveryID, deliveries AS Deliveries, first_seen_at AS FirstSeenAt, last_seen_at AS LastSeenAt
FROM settlement_conflicts ORDER BY settlement_id, payload_hash`
	quarantinedSQL = `SELECT identity AS Identity, message_id AS MessageID, subscription AS Subscription, reason AS Reason,
  IFNULL(member, '') AS Member, detail AS Detail, data AS Data, IFNULL(attributes, '') AS Attributes, IFNULL(ordering_key, '') AS OrderingKey,
  publish_time AS PublishTime, last_delivery_id AS LastDeliveryID, deliveries AS Deliveries, quarantined_at AS QuarantinedAt
FROM quarantined_messages ORDER BY identity`
)
