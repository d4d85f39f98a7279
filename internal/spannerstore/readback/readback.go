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
		{instructionsSQL, &all.Instructions},
		{eventsSQL, &all.Events},
		{conflictsSQL, &all.Conflicts},
		{quarantinedSQL, &all.Quarantined},
	} {
		if err := readInto(ctx, tx, table.sql, table.rows); err != nil {
			return snapshot.Snapshot{}, fmt.Errorf("read back: %w", err)
		}
	}
	return all, nil
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
	instructionsSQL = `SELECT settlement_id AS SettlementID, idempotency_key AS IdempotencyKey, request_body AS RequestBody, state AS State,
  version AS Version, next_check_at AS NextCheckAt, created_at AS CreatedAt
FROM bank_instructions ORDER BY settlement_id`
	eventsSQL = `SELECT settlement_id AS SettlementID, version AS Version, IFNULL(from_state, '') AS FromState, to_state AS ToState,
  cause AS Cause, recorded_at AS RecordedAt
FROM bank_instruction_events ORDER BY settlement_id, version`
	conflictsSQL = `SELECT settlement_id AS SettlementID, payload_hash AS PayloadHash, fields AS Fields, payload AS Payload, message_id AS MessageID,
  last_delivery_id AS LastDeliveryID, deliveries AS Deliveries, first_seen_at AS FirstSeenAt, last_seen_at AS LastSeenAt
FROM settlement_conflicts ORDER BY settlement_id, payload_hash`
	quarantinedSQL = `SELECT identity AS Identity, message_id AS MessageID, subscription AS Subscription, reason AS Reason,
  IFNULL(member, '') AS Member, detail AS Detail, data AS Data, IFNULL(attributes, '') AS Attributes, IFNULL(ordering_key, '') AS OrderingKey,
  publish_time AS PublishTime, last_delivery_id AS LastDeliveryID, deliveries AS Deliveries, quarantined_at AS QuarantinedAt
FROM quarantined_messages ORDER BY identity`
)
