package spannerstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

const tagInstruction = "bank_instruction"

// Change implements transfer.Store. After a lost answer it runs the transaction
// again: decide recognises its own change.
func (s *Store) Change(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (transfer.Change, error) {
	ctx, r := withRoute(ctx)
	var lastErr error
	for commits := 1; commits <= maxCommits; commits++ {
		change, decided, err := s.changeInstruction(ctx, id, decide)
		if decided {
			return change, err
		}
		status := commitStatusOf(err)
		if r.repeated() || commits > 1 {
			status = status.afterAnother()
		}
		switch status {
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
// that err comes from decide, or reports a missing instruction.
func (s *Store) changeInstruction(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (change transfer.Change, decided bool, err error) {
	_, err = s.readWrite(ctx, tagInstruction, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		change, decided = transfer.Change{}, false
		in, err := ReadInstruction(ctx, tx, tagInstruction, id)
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

// ReadInstruction reads the bank instruction of a settlement, by key and with a request
// tag. It fails with [transfer.ErrNoInstruction].
func ReadInstruction(ctx context.Context, tx Reader, tag, id string) (transfer.Instruction, error) {
	var (
		key, opts = spanner.Key{SettlementKey(id)}, &spanner.ReadOptions{RequestTag: tag}
		found     []InstructionRow
		movements []settle.Movement
	)
	reads, ctx := errgroup.WithContext(ctx)
	reads.Go(func() (err error) {
		found, err = Instructions.Rows(ctx, tx, key, opts)
		return err
	})
	reads.Go(func() (err error) {
		movements, err = Movements.Rows(ctx, tx, key, opts, "amount_cents", "currency", "creditor_account")
		return err
	})
	if err := reads.Wait(); err != nil {
		return transfer.Instruction{}, fmt.Errorf("read bank instruction: %w", err)
	}
	if len(found) == 0 || len(movements) == 0 {
		return transfer.Instruction{}, transfer.ErrNoInstruction
	}
	return found[0].Join(movements[0])
}

// newInstructionRows inserts an instruction as it is created.
func newInstructionRows(in transfer.Instruction) []*spanner.Mutation {
	in.CreatedAt = spanner.CommitTimestamp
	return []*spanner.Mutation{
		Instructions.Insert(InstructionRow{Instruction: in, IdempotencyKey: in.Transfer.Key.String(), UncertainSince: &spanner.CommitTimestamp}),
		eventRow(in, transfer.Event{To: in.State, Cause: transfer.CauseCreated}),
	}
}

// changingColumns are the key of bank_instructions and the columns that every
// change writes.
var changingColumns = []string{
	"settlement_id", "state", "version", "lease_owner", "lease_until", "sends", "send_deferred", "first_sent_at", "last_sent_at",
	"resend_not_after", "not_found_since", "accepted_at", "final_at", "bank_transfer_id", "bank_status", "checks", "next_check_at",
}

func eventRow(in transfer.Instruction, e transfer.Event) *spanner.Mutation {
	return Events.Insert(EventRow{SettlementID: in.SettlementID, Version: in.Version, Event: e, RecordedAt: spanner.CommitTimestamp})
}

// changeRows returns the mutations of a change, for one commit.
func changeRows(c transfer.Change) []*spanner.Mutation {
	if !c.Write {
		return nil
	}
	columns := slices.Clone(changingColumns)
	if c.Next.State != transfer.StateUncertain {
		columns = append(columns, "uncertain_since") // NULL
	}
	rows := []*spanner.Mutation{Instructions.Update(InstructionRow{Instruction: c.Next}, columns...)}
	if c.Event != nil {
		rows = append(rows, eventRow(c.Next, *c.Event))
	}
	if c.Reverse {
		rows = append(rows, Reversals.Insert(ReversalRow{
			SettlementID: c.Next.SettlementID, AmountCents: c.Next.Transfer.AmountCents, Reason: string(c.Next.State), RecordedAt: spanner.CommitTimestamp,
		}))
	}
	return rows
}

// Shards is the number of values of the first column of each index by shard.
const Shards = 64

// dueSQL returns one array for each shard: the IDs of its due instructions, oldest
// first. Each shard has the limit, so that Spanner reads no more than that of a backlog.
const dueSQL = `
SELECT ARRAY(
  SELECT settlement_id
  FROM bank_instructions@{FORCE_INDEX=bank_instructions_due}
  WHERE due_shard = shard AND next_check_at IS NOT NULL AND next_check_at <= @now
  ORDER BY next_check_at
  LIMIT @limit)
FROM UNNEST(GENERATE_ARRAY(0, @shards - 1)) AS shard`

// backlogSQL takes the first entry of each shard of two indexes, and of these the
// earliest. It counts the entries of the third, up to a limit.
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
  FROM UNNEST(GENERATE_ARRAY(0, @shards - 1)) AS shard)`

// Due implements transfer.Store. It takes from the shards in turn, so that a backlog
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

// Backlog implements transfer.Store.
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

// emulatorHint makes the emulator accept a query that names NULL_FILTERED indexes.
// Spanner proves that such a query needs no row that the index leaves out; the
// emulator does not try.
const emulatorHint = "@{spanner_emulator.disable_query_null_filtered_index_check=true}"

// queryIndexes runs a query of the indexes by shard. It is one strong read, of all
// shards at the same timestamp.
func (s *Store) queryIndexes(ctx context.Context, sql string, params map[string]any, each func(*spanner.Row) error) error {
	params["shards"] = int64(Shards)
	var rows []*spanner.Row
	err := s.read(ctx, s.attemptTimeout, func(ctx context.Context, client *spanner.Client) error {
		rows = rows[:0]
		return client.Single().QueryWithOptions(ctx, spanner.Statement{SQL: s.hint + sql, Params: params},
			spanner.QueryOptions{RequestTag: tagDue}).Do(func(row *spanner.Row) error {
			rows = append(rows, row)
			return nil
		})
	})
	for i := 0; err == nil && i < len(rows); i++ {
		err = each(rows[i])
	}
	return err
}
