package ledger

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
)

// Kinds of what happens.
const (
	HappenedMovement    = "movement"
	HappenedInstruction = "instruction"
	HappenedReversal    = "reversal"
	HappenedConflict    = "conflict"
	HappenedResolved    = "resolved"
	HappenedQuarantine  = "quarantine"
	HappenedReleased    = "released"
)

// Happening is something that was committed. What the kind does not have is nil.
type Happening struct {
	Kind string `json:"kind" spanner:"kind"`
	// At is its commit timestamp.
	At           time.Time `json:"at" spanner:"happened_at"`
	SettlementID *string   `json:"settlement_id,omitzero" spanner:"settlement_id"`
	// MessageID is that of a conflict's or a quarantined message.
	MessageID *string `json:"message_id,omitzero" spanner:"message_id"`
	AccountID *string `json:"account_id,omitzero" spanner:"account_id"`
	// AmountCents is in minor units of Currency.
	AmountCents *int64   `json:"amount_cents,omitzero" spanner:"amount_cents"`
	Currency    *string  `json:"currency,omitzero" spanner:"currency"`
	Version     *int64   `json:"version,omitzero" spanner:"version"`
	From        *string  `json:"from_state,omitzero" spanner:"from_state"`
	To          *string  `json:"to_state,omitzero" spanner:"to_state"`
	Cause       *string  `json:"cause,omitzero" spanner:"cause"`
	HTTPStatus  *int64   `json:"http_status,omitzero" spanner:"http_status"`
	Reason      *string  `json:"reason,omitzero" spanner:"reason"` // of a quarantine or a reversal
	Fields      []string `json:"fields,omitempty" spanner:"fields"`
	Deliveries  *int64   `json:"deliveries,omitzero" spanner:"deliveries"`
	Detail      *string  `json:"detail,omitzero" spanner:"detail"`
	By          *string  `json:"by,omitzero" spanner:"done_by"`
}

// The queries of a poll, in the order in which things of the same commit are told.
// Each compares a commit timestamp with a value, so that Spanner can leave out
// what is older.
var happenings = []string{
	`SELECT 'movement' AS kind, m.recorded_at AS happened_at, m.settlement_id, m.account_id, m.amount_cents, m.currency
FROM ledger_movements AS m
WHERE m.recorded_at > @after ORDER BY happened_at, m.settlement_key`,
	`SELECT 'instruction' AS kind, e.recorded_at AS happened_at, e.settlement_id, e.version, e.from_state, e.to_state, e.cause, e.http_status, e.detail
FROM bank_instruction_events AS e
WHERE e.recorded_at > @after ORDER BY happened_at, e.settlement_key, e.version`,
	`SELECT 'reversal' AS kind, v.recorded_at AS happened_at, v.settlement_id, m.account_id, v.amount_cents, m.currency, v.reason
FROM ledger_reversals AS v
JOIN ledger_movements AS m ON m.settlement_key = v.settlement_key
WHERE v.recorded_at > @after ORDER BY happened_at, v.settlement_key`,
	`SELECT 'conflict' AS kind, c.last_seen_at AS happened_at, c.settlement_id, c.message_id, c.fields, c.deliveries
FROM settlement_conflicts AS c
WHERE c.last_seen_at > @after ORDER BY happened_at, c.settlement_key, c.payload_hash`,
	`SELECT 'resolved' AS kind, c.resolved_at AS happened_at, c.settlement_id, c.message_id, c.fields, c.note AS detail, c.resolved_by AS done_by
FROM settlement_conflicts AS c
WHERE c.resolved_at > @after ORDER BY happened_at, c.settlement_key, c.payload_hash`,
	`SELECT 'quarantine' AS kind, q.quarantined_at AS happened_at, q.message_id, q.reason, q.deliveries, q.detail
FROM quarantined_messages AS q
WHERE q.quarantined_at > @after ORDER BY happened_at, q.message_key`,
	`SELECT 'released' AS kind, q.released_at AS happened_at, q.message_id, q.reason, q.note AS detail, q.released_by AS done_by
FROM quarantined_messages AS q
WHERE q.released_at > @after ORDER BY happened_at, q.message_key`,
}

// Follow tells each of what is committed after since, in the order of the commits,
// until ctx is done, which is not an error, or tell fails. It polls, and calls wait
// between two polls; an error of wait is returned unless ctx is done.
//
// Nothing is missed and nothing is told twice. A poll reads at one timestamp: it
// sees every commit up to that and, since commits get later timestamps than reads
// that have been answered, none that is made after. The next poll begins behind it.
// A row that is changed twice between two polls, such as a conflict that is
// delivered again and again, is told once, as it is then.
func (r Reader) Follow(ctx context.Context, since time.Time, wait func(context.Context) error, tell func(Happening) error) error {
	for ctx.Err() == nil {
		upTo, err := r.poll(ctx, since, tell)
		if err == nil {
			since = upTo
			err = wait(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("follow what is committed: %w", err)
		}
	}
	return nil
}

// Now is the timestamp of a strong read: everything that is committed has an earlier
// one, or the same.
func (r Reader) Now(ctx context.Context) (time.Time, error) {
	tx := r.Client.ReadOnlyTransaction()
	defer tx.Close()
	if err := forEach(tx.Query(ctx, spanner.Statement{SQL: "SELECT 1"}), func(*spanner.Row) error { return nil }); err != nil {
		return time.Time{}, err
	}
	return tx.Timestamp()
}

// poll tells what was committed after since, up to the timestamp that it returns.
func (r Reader) poll(ctx context.Context, since time.Time, tell func(Happening) error) (upTo time.Time, err error) {
	tx := r.Client.ReadOnlyTransaction()
	defer tx.Close()
	streams := make([]*happeningStream, 0, len(happenings))
	defer func() {
		for _, s := range streams {
			s.rows.Stop()
		}
	}()
	for _, sql := range happenings {
		s := &happeningStream{rows: tx.QueryWithOptions(ctx, spanner.Statement{SQL: sql, Params: map[string]any{"after": since}}, spanner.QueryOptions{RequestTag: tag})}
		streams = append(streams, s)
		if err := s.advance(); err != nil {
			return time.Time{}, err
		}
	}
	if upTo, err = tx.Timestamp(); err != nil {
		return time.Time{}, err
	}
	for {
		first := earliest(streams)
		if first == nil {
			return upTo, nil
		}
		if err := tell(*first.next); err != nil {
			return time.Time{}, err
		}
		if err := first.advance(); err != nil {
			return time.Time{}, err
		}
	}
}

// happeningStream is one query of a poll, with the row that comes next.
type happeningStream struct {
	rows *spanner.RowIterator
	next *Happening // nil: there is no more
}

func (s *happeningStream) advance() error {
	s.next = nil
	row, err := nextRow(s.rows)
	if row == nil || err != nil {
		return err
	}
	s.next = new(Happening)
	return row.ToStruct(s.next)
}

// earliest returns the stream whose next row is the earliest, of several the first;
// nil: all have ended.
func earliest(streams []*happeningStream) (first *happeningStream) {
	for _, s := range streams {
		if s.next != nil && (first == nil || s.next.At.Before(first.next.At)) {
			first = s
		}
	}
	return first
}
