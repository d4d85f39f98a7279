package ledger

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Filter narrows a list. The zero value narrows nothing. A list ignores the fields
// that its comment does not mention.
type Filter struct {
	// Since and Until bound the time that the list is ordered by: from Since on, and
	// before Until. Zero: no bound.
	Since, Until time.Time
	// AccountID is the ledger account that is debited.
	AccountID string
	// Reason and State are the list's own.
	Reason, State string
	// Limit bounds the number of entries. Zero: all.
	Limit int
}

// States of conflicts and of quarantined messages.
const (
	StateOpen     = "open" // the default
	StateResolved = "resolved"
	StateReleased = "released"
	StateAll      = "all"
)

// StateNone is the state of movements without a bank instruction.
const StateNone = "none"

// Rows that one query of a list returns: of one shard of an index, and of a table
// that each page scans anew.
const (
	indexPage = 200
	tablePage = 5000
)

// query is the query of a list.
type query struct {
	fields fields
	from   string // FROM …, without WHERE
	where  []string
	params map[string]any
	// shard is the first column of the index that from uses; empty: it uses none.
	shard string
	// time is the column by which the list is ordered, and keys tell rows of the same
	// time apart: the first part of the primary key, and of conflicts the payload hash.
	time string
	keys []string
}

// index is a table hint to read a NULL_FILTERED index. Its second part is for the
// emulator, which does not see that the query needs no rows that the index leaves
// out. Spanner ignores that part.
func index(name string) string {
	return "@{FORCE_INDEX=" + name + ", spanner_emulator.disable_query_null_filtered_index_check=true}"
}

// and adds a condition, with a parameter where one is given.
func (q *query) and(condition, name string, value any) {
	q.where = append(q.where, condition)
	if name != "" {
		q.params[name] = value
	}
}

// narrow adds the conditions that many lists have. account is a column; empty: the
// list has none.
func (q *query) narrow(f Filter, account string) {
	if !f.Since.IsZero() {
		q.and(q.time+" >= @since", "since", f.Since)
	}
	if !f.Until.IsZero() {
		q.and(q.time+" < @until", "until", f.Until)
	}
	if account != "" && f.AccountID != "" {
		q.and(account+" = @account", "account", f.AccountID)
	}
}

// key is the first part of the primary key.
func (q query) key(e *Entry) spannerstore.Field {
	return spannerstore.Computed("key", q.keys[0], &e.key)
}

// statement is the query for the page after last; nil: the first page.
func (q query) statement(shard int64, last *Entry, limit int) spanner.Statement {
	where, params := append([]string(nil), q.where...), maps.Clone(q.params)
	if q.shard != "" {
		where, params["shard"] = append(where, q.shard+" = @shard"), shard
	}
	if last != nil {
		where, params["last_at"] = append(where, q.after()), last.at
		params["last_key0"], params["last_key1"] = last.key, string(last.Conflict.PayloadHash)
	}
	params["page"] = int64(limit)
	var (
		b strings.Builder
		e Entry
	)
	b.WriteString("SELECT " + spannerstore.Select(append(q.fields(&e), q.key(&e))) + "\n" + q.from)
	if len(where) > 0 {
		b.WriteString("\nWHERE " + strings.Join(where, "\n  AND "))
	}
	fmt.Fprintf(&b, "\nORDER BY %s DESC, %s\nLIMIT @page", q.time, strings.Join(q.keys, ", "))
	return spanner.Statement{SQL: b.String(), Params: params}
}

// after is the condition for the rows after one in the order of the list.
func (q query) after() string {
	rest := q.keys[0] + " > @last_key0"
	if len(q.keys) > 1 {
		rest = fmt.Sprintf("(%s OR %s = @last_key0 AND %s > @last_key1)", rest, q.keys[0], q.keys[1])
	}
	// The first comparison follows from the second. A search by time can use it.
	return fmt.Sprintf("%s <= @last_at AND (%s < @last_at OR %s)", q.time, q.time, rest)
}

// cursor is the position of a list in one shard.
type cursor struct {
	shard int64
	page  []Entry
	last  *Entry
	ended bool // there is no page after this one
}

// fill fetches the next page where the present one is used up.
func (c *cursor) fill(ctx context.Context, tx *spanner.ReadOnlyTransaction, q query, size int) error {
	if len(c.page) > 0 || c.ended {
		return nil
	}
	c.page = nil
	err := tx.QueryWithOptions(ctx, q.statement(c.shard, c.last, size), spanner.QueryOptions{RequestTag: tagRead}).Do(func(row *spanner.Row) error {
		e := Entry{fields: q.fields}
		err := e.scan(row, q.key(&e))
		c.page = append(c.page, e)
		return err
	})
	c.ended = len(c.page) < size
	return err
}

// list returns the entries of a query, newest first, at one timestamp.
func (r Reader) list(ctx context.Context, q query, limit int) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		tx := r.Client.ReadOnlyTransaction().WithTimestampBound(r.Bound)
		defer tx.Close()
		cursors, size := newCursors(q, limit)
		if r.page > 0 {
			size = r.page
		}
		if err := fillAll(ctx, tx, q, cursors, size); err != nil {
			yield(Entry{}, err)
			return
		}
		for n := 0; limit == 0 || n < limit; n++ {
			newest := newestOf(cursors)
			if newest == nil {
				return
			}
			newest.last, newest.page = &newest.page[0], newest.page[1:]
			if !yield(*newest.last, nil) {
				return
			}
			if err := newest.fill(ctx, tx, q, size); err != nil {
				yield(Entry{}, err)
				return
			}
		}
	}
}

func newCursors(q query, limit int) (cursors []*cursor, size int) {
	if q.shard == "" {
		return []*cursor{{}}, pageSize(tablePage, limit)
	}
	for shard := range int64(spannerstore.Shards) {
		cursors = append(cursors, &cursor{shard: shard})
	}
	return cursors, pageSize(indexPage, limit)
}

// pageSize keeps a page from being larger than the list.
func pageSize(most, limit int) int {
	if limit > 0 {
		return min(most, limit)
	}
	return most
}

// fillAll fetches the first pages of all shards in parallel.
func fillAll(ctx context.Context, tx *spanner.ReadOnlyTransaction, q query, cursors []*cursor, size int) error {
	var group errgroup.Group
	for _, c := range cursors {
		group.Go(func() error { return c.fill(ctx, tx, q, size) })
	}
	return group.Wait()
}

// newestOf returns the cursor whose next entry is the newest; nil: there is none.
func newestOf(cursors []*cursor) (newest *cursor) {
	for _, c := range cursors {
		if len(c.page) > 0 && (newest == nil || c.page[0].at.After(newest.page[0].at)) {
			newest = c
		}
	}
	return newest
}
