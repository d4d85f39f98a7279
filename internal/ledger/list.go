package ledger

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

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

// listPage is the number of rows of a page. It is large because each page scans the
// index or the table anew.
const listPage = 5000

// query is the query of a list.
type query struct {
	fields fields
	from   string // FROM …, without WHERE
	where  []string
	params map[string]any
	// time is the column by which the list is ordered, and keys tell rows of the same
	// time apart: the first part of the primary key, and of conflicts the payload hash.
	time string
	keys []string
}

// index is a table hint to read a NULL_FILTERED index. The query must exclude the rows
// that the index leaves out. The second part is for the emulator, which does not see that.
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
func (q query) statement(last *Entry, limit int) spanner.Statement {
	where, params := append([]string(nil), q.where...), maps.Clone(q.params)
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

// list returns the entries of a query, newest first, at one timestamp.
func (r Reader) list(ctx context.Context, q query, limit int) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		tx := r.Client.ReadOnlyTransaction().WithTimestampBound(r.Bound)
		defer tx.Close()
		var last *Entry
		for left := limit; ; {
			size := cmp.Or(r.page, listPage)
			if limit > 0 {
				size = min(size, left)
			}
			page, err := q.page(ctx, tx, last, size)
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if left -= len(page); len(page) < size || left == 0 {
				return
			}
			last = &page[len(page)-1]
		}
	}
}

// page fetches the page after last.
func (q query) page(ctx context.Context, tx *spanner.ReadOnlyTransaction, last *Entry, size int) (page []Entry, err error) {
	options := spanner.QueryOptions{RequestTag: tagRead}
	err = tx.QueryWithOptions(ctx, q.statement(last, size), options).Do(func(row *spanner.Row) error {
		e := Entry{fields: q.fields}
		err := e.scan(row, q.key(&e))
		page = append(page, e)
		return err
	})
	return page, err
}
