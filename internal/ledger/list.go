package ledger

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
)

// Filter narrows a list. The zero value narrows nothing. Which of its fields a list
// has stands at the list; the others are ignored.
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
// that has to be searched for each page anew.
const (
	indexPage = 200
	tablePage = 5000
)

// entry is a row of a list, with its place in it.
type entry interface {
	// at is the time by which the list is ordered.
	at() time.Time
	// key are the values of the query's keys.
	key() []any
}

// query is what a list asks.
type query struct {
	// sql is SELECT … FROM …, without WHERE.
	sql    string
	where  []string
	params map[string]any
	// shard is the first column of the index that sql uses; empty: it uses none.
	shard string
	// time is the column by which the list is ordered, and keys tell rows of the same
	// time apart.
	time string
	keys []string
}

// shards is the number of values of the indexes' first column.
const shards = 16

// index is a table's hint to read an index that leaves rows out. The emulator asks
// for the second part of it, because it does not see that the conditions leave the
// same rows out; Spanner ignores that part.
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

// narrow adds the conditions that many lists have.
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

// statement is the query for the page after last; nil: the first page.
func (q query) statement(shard int64, last entry, limit int) spanner.Statement {
	where, params := append([]string(nil), q.where...), maps.Clone(q.params)
	if q.shard != "" {
		where, params["shard"] = append(where, q.shard+" = @shard"), shard
	}
	if last != nil {
		where, params["last_at"] = append(where, q.after()), last.at()
		for i, value := range last.key() {
			params[fmt.Sprintf("last_key%d", i)] = value
		}
	}
	params["page"] = int64(limit)
	var b strings.Builder
	b.WriteString(q.sql)
	if len(where) > 0 {
		b.WriteString("\nWHERE " + strings.Join(where, "\n  AND "))
	}
	fmt.Fprintf(&b, "\nORDER BY %s DESC, %s\nLIMIT @page", q.time, strings.Join(q.keys, ", "))
	return spanner.Statement{SQL: b.String(), Params: params}
}

// after is the condition for what comes after a row in the order of the list.
func (q query) after() string {
	rest := ""
	for i := len(q.keys) - 1; i >= 0; i-- {
		further := fmt.Sprintf("%s > @last_key%d", q.keys[i], i)
		if rest != "" {
			further = fmt.Sprintf("(%s OR %s = @last_key%d AND %s)", further, q.keys[i], i, rest)
		}
		rest = further
	}
	// The first part says nothing new; it is what a search by time can use.
	return fmt.Sprintf("%s <= @last_at AND (%s < @last_at OR %s)", q.time, q.time, rest)
}

// cursor is how far a list has come in one shard.
type cursor[E entry] struct {
	shard int64
	page  []E
	last  E
	begun bool
	ended bool // there is no page after this one
}

// fill fetches the next page, if there is one and it is needed.
func (c *cursor[E]) fill(ctx context.Context, tx *spanner.ReadOnlyTransaction, q query, size int) error {
	if len(c.page) > 0 || c.ended {
		return nil
	}
	var last entry
	if c.begun {
		last = c.last
	}
	c.begun = true
	c.page = c.page[:0]
	rows := tx.QueryWithOptions(ctx, q.statement(c.shard, last, size), spanner.QueryOptions{RequestTag: tag})
	err := forEach(rows, func(row *spanner.Row) error {
		var e E
		err := row.ToStruct(&e)
		c.page = append(c.page, e)
		return err
	})
	c.ended = len(c.page) < size
	return err
}

// list returns the entries that q finds, the newest first, at one timestamp.
func list[E entry](ctx context.Context, r Reader, q query, limit int) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		tx := r.Client.ReadOnlyTransaction().WithTimestampBound(r.Bound)
		defer tx.Close()
		cursors, size := newCursors[E](q, limit)
		if r.page > 0 {
			size = r.page
		}
		var none E
		if err := fillAll(ctx, tx, q, cursors, size); err != nil {
			yield(none, err)
			return
		}
		for n := 0; limit == 0 || n < limit; n++ {
			newest := newestOf(cursors)
			if newest == nil {
				return
			}
			newest.last, newest.page = newest.page[0], newest.page[1:]
			if !yield(newest.last, nil) {
				return
			}
			if err := newest.fill(ctx, tx, q, size); err != nil {
				yield(none, err)
				return
			}
		}
	}
}

func newCursors[E entry](q query, limit int) (cursors []*cursor[E], size int) {
	if q.shard == "" {
		return []*cursor[E]{{}}, pageSize(tablePage, limit)
	}
	for shard := range int64(shards) {
		cursors = append(cursors, &cursor[E]{shard: shard})
	}
	return cursors, pageSize(indexPage, limit)
}

// pageSize is no more than can be of use.
func pageSize(most, limit int) int {
	if limit > 0 {
		return min(most, limit)
	}
	return most
}

// fillAll fetches the first page of every shard, at once.
func fillAll[E entry](ctx context.Context, tx *spanner.ReadOnlyTransaction, q query, cursors []*cursor[E], size int) error {
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for _, c := range cursors {
		wg.Go(func() {
			if err := c.fill(ctx, tx, q, size); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	wg.Wait()
	return first
}

// newestOf returns the cursor whose next entry is the newest; nil: there is none.
func newestOf[E entry](cursors []*cursor[E]) (newest *cursor[E]) {
	for _, c := range cursors {
		if len(c.page) > 0 && (newest == nil || c.page[0].at().After(newest.page[0].at())) {
			newest = c
		}
	}
	return newest
}
