package spannerstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"
	"google.golang.org/api/iterator"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

const tagInstruction = "bank_instruction"

// Change implements settle.Store. A lost answer is made good by
// running the transaction again: decide recognises its own change.
func (s *Store) Change(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (transfer.Change, error) {
	var lastErr error
	for range maxAttempts {
		change, decided, err := s.changeInstruction(ctx, id, decide)
		if decided {
			return change, err
		}
		switch commitStatusOf(err) {
		case commitDone:
			return change, nil
		case commitRefused, commitExists:
			return transfer.Change{}, redact(err)
		case commitUnknown:
			if ctx.Err() != nil {
				return transfer.Change{}, unknownOutcome(err)
			}
		}
		lastErr = err
	}
	return transfer.Change{}, unknownOutcome(lastErr)
}

// changeInstruction makes the change in one read-write transaction. decided says
// that err is decide's, or says that there is nothing to decide about.
func (s *Store) changeInstruction(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (change transfer.Change, decided bool, err error) {
	_, err = s.readWrite(ctx, tagInstruction, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		change, decided = transfer.Change{}, false
		in, err := readInstruction(ctx, tx, id)
		if err != nil {
			decided = errors.Is(err, transfer.ErrNoInstruction)
			return err
		}
		if change, err = decide(in); err != nil {
			decided = true
			return err
		}
		return tx.BufferWrite(changeRows(change))
	})
	return change, decided, err
}

func readInstruction(ctx context.Context, tx querier, id string) (transfer.Instruction, error) {
	rows := tx.QueryWithOptions(ctx, spanner.Statement{
		SQL: InstructionSQL + ` WHERE i.settlement_key = @settlement_key`, Params: map[string]any{"settlement_key": SettlementKey(id)},
	}, spanner.QueryOptions{RequestTag: tagInstruction})
	defer rows.Stop()
	row, err := rows.Next()
	if errors.Is(err, iterator.Done) {
		return transfer.Instruction{}, transfer.ErrNoInstruction
	}
	if err != nil {
		return transfer.Instruction{}, fmt.Errorf("read bank instruction: %w", err)
	}
	return ScanInstruction(row)
}

// InstructionSQL selects what [ScanInstruction] reads. The transfer's amount,
// currency and creditor stand in the movement, the keys that it had in a table of
// their own.
const InstructionSQL = `
SELECT i.settlement_id, i.idempotency_key, m.amount_cents, m.currency, m.creditor_account, i.request_body, i.state, i.version,
       i.lease_owner, i.lease_until, i.created_at, i.sends, i.send_deferred, i.first_sent_at, i.last_sent_at, i.resend_not_after, i.not_found_since,
       i.accepted_at, i.final_at, i.bank_transfer_id, i.bank_status, i.checks, i.next_check_at,
       ARRAY(SELECT AS STRUCT k.idempotency_key, k.superseded_at
             FROM bank_superseded_keys AS k WHERE k.settlement_key = i.settlement_key ORDER BY k.generation) AS superseded
FROM bank_instructions AS i
JOIN ledger_movements AS m ON m.settlement_key = i.settlement_key`

// ScanInstruction reads a row of [InstructionSQL].
func ScanInstruction(row *spanner.Row) (transfer.Instruction, error) {
	var (
		in                                                         transfer.Instruction
		key, state                                                 string
		creditor, owner, tr, status                                spanner.NullString
		leaseUntil, first, last, resend, notFound, accepted, final spanner.NullTime
		next                                                       spanner.NullTime
		superseded                                                 []*supersededKey
	)
	err := row.Columns(&in.SettlementID, &key, &in.Transfer.AmountCents, &in.Transfer.Currency, &creditor, &in.Body, &state, &in.Version,
		&owner, &leaseUntil, &in.CreatedAt, &in.Sends, &in.SendDeferred, &first, &last, &resend, &notFound,
		&accepted, &final, &tr, &status, &in.Checks, &next, &superseded)
	if err != nil {
		return transfer.Instruction{}, fmt.Errorf("read bank instruction: %w", err)
	}
	if in.Transfer.Key, err = uuid.Parse(key); err != nil {
		return transfer.Instruction{}, fmt.Errorf("read bank instruction of settlement %q: idempotency key: %w", in.SettlementID, err)
	}
	for _, old := range superseded {
		oldKey, err := uuid.Parse(old.Key)
		if err != nil {
			return transfer.Instruction{}, fmt.Errorf("read bank instruction of settlement %q: superseded key: %w", in.SettlementID, err)
		}
		in.Superseded = append(in.Superseded, transfer.SupersededKey{Key: oldKey, At: old.At})
	}
	in.Transfer.CreditorAccount, in.State = creditor.StringVal, transfer.State(state)
	in.Owner, in.TransferID, in.BankStatus = owner.StringVal, tr.StringVal, status.StringVal
	in.LeaseUntil, in.NextCheckAt = leaseUntil.Time, next.Time
	in.FirstSentAt, in.LastSentAt, in.ResendNotAfter = first.Time, last.Time, resend.Time
	in.NotFoundSince, in.AcceptedAt, in.FinalAt = notFound.Time, accepted.Time, final.Time
	return in, nil
}

// supersededKey is an element of [InstructionSQL]'s last column.
type supersededKey struct {
	Key string    `spanner:"idempotency_key"`
	At  time.Time `spanner:"superseded_at"`
}

// newInstructionRows inserts an instruction as it is created.
func newInstructionRows(in transfer.Instruction) []*spanner.Mutation {
	row := instructionColumns(in)
	row["idempotency_key"] = in.Transfer.Key.String()
	row["request_body"] = in.Body
	row["created_at"] = spanner.CommitTimestamp
	row["uncertain_since"] = spanner.CommitTimestamp
	return []*spanner.Mutation{
		spanner.InsertMap("bank_instructions", row),
		eventRow(in, transfer.Event{To: in.State, Cause: transfer.CauseCreated}),
	}
}

// instructionColumns are the columns that change.
func instructionColumns(in transfer.Instruction) map[string]any {
	return map[string]any{
		"settlement_id":    in.SettlementID,
		"state":            string(in.State),
		"version":          in.Version,
		"lease_owner":      nullString(in.Owner),
		"lease_until":      nullTime(in.LeaseUntil),
		"sends":            in.Sends,
		"send_deferred":    in.SendDeferred,
		"first_sent_at":    nullTime(in.FirstSentAt),
		"last_sent_at":     nullTime(in.LastSentAt),
		"resend_not_after": nullTime(in.ResendNotAfter),
		"not_found_since":  nullTime(in.NotFoundSince),
		"accepted_at":      nullTime(in.AcceptedAt),
		"final_at":         nullTime(in.FinalAt),
		"bank_transfer_id": nullString(in.TransferID),
		"bank_status":      nullString(in.BankStatus),
		"checks":           in.Checks,
		"next_check_at":    nullTime(in.NextCheckAt),
	}
}

func eventRow(in transfer.Instruction, e transfer.Event) *spanner.Mutation {
	return spanner.InsertMap("bank_instruction_events", map[string]any{
		"settlement_id": in.SettlementID,
		"version":       in.Version,
		"from_state":    nullString(string(e.From)),
		"to_state":      string(e.To),
		"cause":         e.Cause,
		"http_status":   spanner.NullInt64{Int64: int64(e.HTTPStatus), Valid: e.HTTPStatus != 0},
		"detail":        nullString(e.Detail),
		"recorded_at":   spanner.CommitTimestamp,
	})
}

// changeRows is everything that a change writes, in one commit.
func changeRows(c transfer.Change) []*spanner.Mutation {
	if !c.Write {
		return nil
	}
	row := instructionColumns(c.Next)
	if c.Next.State != transfer.StateUncertain {
		row["uncertain_since"] = spanner.NullTime{}
	}
	var superseded []*spanner.Mutation
	if c.Supersedes != nil {
		row["idempotency_key"] = c.Next.Transfer.Key.String()
		row["request_body"] = c.Next.Body
		row["uncertain_since"] = spanner.CommitTimestamp
		superseded = append(superseded, supersededRow(c))
	}
	rows := append([]*spanner.Mutation{spanner.UpdateMap("bank_instructions", row)}, superseded...)
	if c.Event != nil {
		rows = append(rows, eventRow(c.Next, *c.Event))
	}
	if c.Reverse {
		rows = append(rows, spanner.InsertMap("ledger_reversals", map[string]any{
			"settlement_id": c.Next.SettlementID,
			"amount_cents":  c.Next.Transfer.AmountCents,
			"reason":        string(c.Next.State),
			"recorded_at":   spanner.CommitTimestamp,
		}))
	}
	if c.Settled {
		rows = append(rows, spanner.UpdateMap("settlement_receipts", map[string]any{
			"settlement_id": c.Next.SettlementID,
			"expire_from":   spanner.CommitTimestamp,
		}))
	}
	return rows
}

// supersededRow keeps the key that a change takes from its instruction.
func supersededRow(c transfer.Change) *spanner.Mutation {
	was := c.Supersedes
	return spanner.InsertMap("bank_superseded_keys", map[string]any{
		"settlement_id":    was.SettlementID,
		"generation":       len(was.Superseded) + 1,
		"idempotency_key":  was.Transfer.Key.String(),
		"request_body":     was.Body,
		"sends":            was.Sends,
		"first_sent_at":    nullTime(was.FirstSentAt),
		"last_sent_at":     nullTime(was.LastSentAt),
		"bank_transfer_id": nullString(was.TransferID),
		"bank_status":      nullString(was.BankStatus),
		"decided_version":  c.Next.Version,
		"superseded_at":    spanner.CommitTimestamp,
	})
}

// dueSQL asks for one array a shard, of which there are 16: the IDs of what is due
// in it, oldest first. The limit holds for each shard, so that what is read does not
// grow with what is not returned.
const dueSQL = `
SELECT ARRAY(
  SELECT settlement_id
  FROM bank_instructions@{FORCE_INDEX=bank_instructions_due}
  WHERE due_shard = shard AND next_check_at IS NOT NULL AND next_check_at <= @now
  ORDER BY next_check_at
  LIMIT @limit)
FROM UNNEST(GENERATE_ARRAY(0, 15)) AS shard`

// backlogSQL takes the first entry of each shard of two indexes, and of these the
// earliest. Of the third it counts the entries, as far as anybody wants to know.
const backlogSQL = `
SELECT MIN(uncertain_since), MIN(next_check_at), (
  SELECT COUNT(*)
  FROM (
    SELECT settlement_key
    FROM bank_instructions@{FORCE_INDEX=bank_instructions_manual}
    WHERE manual_shard IS NOT NULL
    LIMIT @manual))
FROM (
  SELECT
    (SELECT uncertain_since
     FROM bank_instructions@{FORCE_INDEX=bank_instructions_uncertain}
     WHERE due_shard = shard AND uncertain_since IS NOT NULL
     ORDER BY uncertain_since
     LIMIT 1) AS uncertain_since,
    (SELECT next_check_at
     FROM bank_instructions@{FORCE_INDEX=bank_instructions_due}
     WHERE due_shard = shard AND next_check_at IS NOT NULL
     ORDER BY next_check_at
     LIMIT 1) AS next_check_at
  FROM UNNEST(GENERATE_ARRAY(0, 15)) AS shard)`

// Due implements settle.Store. It takes from the shards in turn, so that a backlog
// in one does not starve the others.
func (s *Store) Due(ctx context.Context, now time.Time, limit int) ([]string, error) {
	var byShard [][]string
	err := s.queryIndexes(ctx, dueSQL, map[string]any{"now": now, "limit": int64(limit)}, func(row *spanner.Row) error {
		var ids []string
		err := row.Columns(&ids)
		byShard = append(byShard, ids)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list due bank instructions: %w", err)
	}
	return inTurn(byShard, limit), nil
}

// inTurn takes the first of each list, then the second of each, up to limit.
func inTurn(lists [][]string, limit int) []string {
	var taken []string
	for n, more := 0, true; more; n++ {
		more = false
		for _, list := range lists {
			if n < len(list) && len(taken) < limit {
				taken = append(taken, list[n])
				more = true
			}
		}
	}
	return taken
}

// Backlog implements settle.Store.
func (s *Store) Backlog(ctx context.Context) (transfer.Backlog, error) {
	var uncertain, due spanner.NullTime
	var manual int64
	err := s.queryIndexes(ctx, backlogSQL, map[string]any{"manual": int64(transfer.MaxManual)}, func(row *spanner.Row) error {
		return row.Columns(&uncertain, &due, &manual)
	})
	if err != nil {
		return transfer.Backlog{}, fmt.Errorf("find the oldest uncertain, the next due and the manual bank instructions: %w", err)
	}
	return transfer.Backlog{UncertainSince: uncertain.Time, NextDue: due.Time, Manual: int(manual)}, nil
}

// emulatorHint makes the emulator answer a query that is forced to NULL_FILTERED
// indexes. Spanner works out that they leave out no row that is asked for; the
// emulator does not even try, and has to be told.
const emulatorHint = "@{spanner_emulator.disable_query_null_filtered_index_check=true}"

// queryIndexes runs a query of the indexes by shard. It is one strong read: all
// shards are seen at the same moment.
func (s *Store) queryIndexes(ctx context.Context, sql string, params map[string]any, each func(*spanner.Row) error) error {
	return s.client.Single().QueryWithOptions(ctx, spanner.Statement{SQL: s.hint + sql, Params: params},
		spanner.QueryOptions{RequestTag: tagDue}).Do(each)
}
