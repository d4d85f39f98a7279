package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/api/iterator"

	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Kinds of changes.
const (
	KindMovement    = "movement"
	KindInstruction = "instruction"
	KindReversal    = "reversal"
	KindConflict    = "conflict"
	KindResolved    = "resolved"
	KindQuarantine  = "quarantine"
	KindReleased    = "released"
)

// Change is one committed change, with the columns that its kind reads.
type Change struct {
	Entry

	Kind string
	// At is the commit timestamp.
	At time.Time
}

// MarshalJSONTo implements json.MarshalerTo. NULL columns are left out.
func (c Change) MarshalJSONTo(enc *jsontext.Encoder) error {
	rest := objectOf(c.fields(&c.Entry)[1:])
	rest = slices.DeleteFunc(rest, func(m member) bool { return m.value == nil })
	return append(object{{"kind", c.Kind}, {"at", c.At}}, rest...).MarshalJSONTo(enc)
}

// The queries of a poll. Changes of one commit come in this order. Each query
// compares a commit timestamp with a value, so that Spanner can skip older storage.
var changes = []struct {
	kind, from, time, order string
	fields                  fields
}{
	{KindMovement, `ledger_movements AS m`, `m.recorded_at`, `m.settlement_key`, func(e *Entry) []spannerstore.Field {
		return movement(e, "recorded_at", "settlement_id", "account_id", "amount_cents", "currency", "source")
	}},
	{KindInstruction, `bank_instruction_events AS e`, `e.recorded_at`, `e.settlement_key, e.version`, func(e *Entry) []spannerstore.Field {
		return event(e, "recorded_at", "settlement_id", "version", "from_state", "to_state", "cause", "http_status", "detail")
	}},
	{
		KindReversal, `ledger_reversals AS v JOIN ledger_movements AS m ON m.settlement_key = v.settlement_key`, `v.recorded_at`, `v.settlement_key`,
		func(e *Entry) []spannerstore.Field {
			return slices.Concat(reversal(e, "recorded_at", "settlement_id"), movement(e, "account_id"),
				reversal(e, "amount_cents"), movement(e, "currency"), reversal(e, "reason"))
		},
	},
	{KindConflict, `settlement_conflicts AS c`, `c.seen_at`, `c.settlement_key, c.payload_hash`, func(e *Entry) []spannerstore.Field {
		return conflict(e, "seen_at", "settlement_id", "message_id", "source", "fields")
	}},
	{KindResolved, `settlement_conflicts AS c`, `c.resolved_at`, `c.settlement_key, c.payload_hash`, func(e *Entry) []spannerstore.Field {
		return renamed(conflict(e, "resolved_at", "settlement_id", "message_id", "fields", "note", "resolved_by"))
	}},
	{KindQuarantine, `quarantined_messages AS q`, `q.quarantined_at`, `q.message_key`, func(e *Entry) []spannerstore.Field {
		return quarantined(e, "quarantined_at", "message_id", "reason", "detail")
	}},
	{KindReleased, `quarantined_messages AS q`, `q.released_at`, `q.message_key`, func(e *Entry) []spannerstore.Field {
		return renamed(quarantined(e, "released_at", "message_id", "reason", "note", "released_by"))
	}},
}

// renamed gives the last two columns the names that they have in JSON.
func renamed(columns []spannerstore.Field) []spannerstore.Field {
	columns[len(columns)-2].Name, columns[len(columns)-1].Name = "detail", "by"
	return columns
}

// Follow calls tell for each change that was committed after since, in the order of
// the commits, until ctx is done, which is not an error, or tell fails. It polls, and
// calls wait between two polls; an error of wait is returned unless ctx is done.
//
// It misses nothing and repeats nothing. A poll reads at one timestamp and sees all
// commits up to it. Later commits have later timestamps, and the next poll begins
// there.
func (r Reader) Follow(ctx context.Context, since time.Time, wait func(context.Context) error, tell func(Change) error) error {
	for ctx.Err() == nil {
		upTo, err := r.poll(ctx, since, tell)
		if err == nil {
			since = upTo
			err = wait(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("follow commits: %w", err)
		}
	}
	return nil
}

// Now returns the timestamp of a strong read. No earlier commit has a later one.
func (r Reader) Now(ctx context.Context) (time.Time, error) {
	tx := r.Client.ReadOnlyTransaction()
	defer tx.Close()
	if err := tx.Query(ctx, spanner.NewStatement("SELECT 1")).Do(func(*spanner.Row) error { return nil }); err != nil {
		return time.Time{}, err
	}
	return tx.Timestamp()
}

// poll tells the changes after since, up to the timestamp that it returns.
func (r Reader) poll(ctx context.Context, since time.Time, tell func(Change) error) (upTo time.Time, err error) {
	tx := r.Client.ReadOnlyTransaction()
	defer tx.Close()
	streams := make([]*changeStream, 0, len(changes))
	defer func() {
		for _, s := range streams {
			s.rows.Stop()
		}
	}()
	for _, c := range changes {
		sql := "SELECT " + spannerstore.Select(c.fields(new(Entry))) + " FROM " + c.from + " WHERE " + c.time + " > @after ORDER BY " + c.time + ", " + c.order
		statement := spanner.Statement{SQL: sql, Params: map[string]any{"after": since}}
		s := &changeStream{kind: c.kind, fields: c.fields, rows: tx.QueryWithOptions(ctx, statement, spanner.QueryOptions{RequestTag: tagRead})}
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

// changeStream is one query of a poll, with its next row.
type changeStream struct {
	kind   string
	fields fields
	rows   *spanner.RowIterator
	next   *Change // nil: the stream has ended
}

func (s *changeStream) advance() error {
	s.next = nil
	row, err := s.rows.Next()
	if errors.Is(err, iterator.Done) {
		return nil
	}
	if err != nil {
		return err
	}
	s.next = &Change{Kind: s.kind, Entry: Entry{fields: s.fields}}
	err = s.next.scan(row)
	s.next.At = s.next.at
	return err
}

// earliest returns the stream whose next row is the earliest, of several the first;
// nil: all have ended.
func earliest(streams []*changeStream) (first *changeStream) {
	for _, s := range streams {
		if s.next != nil && (first == nil || s.next.At.Before(first.next.At)) {
			first = s
		}
	}
	return first
}
