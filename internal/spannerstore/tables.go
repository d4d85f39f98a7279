package spannerstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
)

// Reader is a transaction that can read, of any kind.
type Reader interface {
	ReadWithOptions(ctx context.Context, table string, keys spanner.KeySet, columns []string, opts *spanner.ReadOptions) *spanner.RowIterator
}

// Table is a table whose rows are values of T. Its fields are the only list of
// the table's columns: reads, queries, inserts and updates are built from it.
type Table[T any] struct {
	name string
	// key is the first column of the primary key: the hash of the row's ID.
	key    string
	fields func(*T) []Field
}

const settlementKey = "settlement_key"

// Field is one column of a row, and a pointer to its value.
type Field struct {
	// Name is the column's name.
	Name string

	expression string // in a query
	to         any
	nullable   bool // the zero value is stored as NULL
}

// Value returns a pointer to the field's value, or the value itself where it is
// a slice; nil: NULL.
func (f Field) Value() any {
	switch to := f.to.(type) {
	case *string:
		if f.nullable && *to == "" {
			return nil
		}
	case *int:
		if f.nullable && *to == 0 {
			return nil
		}
		return *to
	case *time.Time:
		if f.nullable && to.IsZero() {
			return nil
		}
	case **time.Time:
		if *to == nil {
			return nil
		}
		return *to
	case *[]byte:
		return *to
	case *[]string:
		return *to
	}
	return f.to
}

// DecodeSpanner implements spanner.Decoder for nullable fields. NULL leaves the
// value as it is.
func (f Field) DecodeSpanner(value any) (err error) {
	if null, ok := value.(*string); ok && null == nil {
		return nil
	}
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("read %s from %T: not text", f.Name, value)
	}
	switch to := f.to.(type) {
	case *string:
		*to = text
	case *int:
		*to, err = strconv.Atoi(text)
	case *int64:
		*to, err = strconv.ParseInt(text, 10, 64)
	case *time.Time:
		*to, err = time.Parse(time.RFC3339Nano, text)
	default:
		err = fmt.Errorf("read %s into %T: not supported", f.Name, to)
	}
	return err
}

// Scan reads a row of a query into the fields that it selected.
func Scan(row *spanner.Row, fields []Field) error { return scanFrom(row, 0, fields) }

func scanFrom(row *spanner.Row, first int, fields []Field) error {
	for i, f := range fields {
		to := f.to
		if f.nullable {
			to = f
		}
		if err := row.Column(first+i, to); err != nil {
			return err
		}
	}
	return nil
}

// Select returns the SELECT list of fields.
func Select(fields []Field) string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = f.expression
	}
	return strings.Join(list, ", ")
}

// As returns the fields that [Table.Fields] returns, for a query that gives the table
// an alias.
func (t Table[T]) As(alias string, row *T, names ...string) []Field {
	fields := t.Fields(row, names...)
	for i, f := range fields {
		fields[i].expression = alias + "." + f.Name
	}
	return fields
}

// Computed returns a field that a query computes by an expression.
func Computed(name, expression string, to any) Field {
	return Field{Name: name, expression: expression, to: to}
}

// Optional returns the fields of a table that an outer join adds: all can be NULL.
func Optional(fields []Field) []Field {
	for i := range fields {
		fields[i].nullable = true
	}
	return fields
}

// Fields returns the named columns of row, in that order; without names, all. It
// panics for a column that the table lacks.
func (t Table[T]) Fields(row *T, names ...string) []Field {
	all := t.fields(row)
	if len(names) == 0 {
		return all
	}
	picked := make([]Field, len(names))
	for i, name := range names {
		n := slices.IndexFunc(all, func(f Field) bool { return f.Name == name })
		if n < 0 {
			panic("table " + t.name + " has no column " + name)
		}
		picked[i] = all[n]
	}
	return picked
}

// Each calls each for the rows of keys in the order of the primary key, with the
// row's key, and stops at its first error. It reads the named columns; without
// names, all.
func (t Table[T]) Each(ctx context.Context, tx Reader, keys spanner.KeySet, opts *spanner.ReadOptions, each func(key []byte, row T) error, names ...string) error {
	columns := []string{t.key}
	for _, f := range t.Fields(new(T), names...) {
		columns = append(columns, f.Name)
	}
	err := tx.ReadWithOptions(ctx, t.name, keys, columns, opts).Do(func(row *spanner.Row) error {
		var (
			key []byte
			one T
		)
		if err := row.Column(0, &key); err != nil {
			return err
		}
		if err := scanFrom(row, 1, t.Fields(&one, names...)); err != nil {
			return err
		}
		return each(key, one)
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", t.name, err)
	}
	return nil
}

// Rows returns the rows of keys in the order of the primary key, with the named
// columns; without names, all.
func (t Table[T]) Rows(ctx context.Context, tx Reader, keys spanner.KeySet, opts *spanner.ReadOptions, names ...string) (rows []T, err error) {
	err = t.Each(ctx, tx, keys, opts, func(_ []byte, row T) error {
		rows = append(rows, row)
		return nil
	}, names...)
	return rows, err
}

// Insert returns the mutation that inserts a row as it is. A timestamp can be
// [spanner.CommitTimestamp].
func (t Table[T]) Insert(row T) *spanner.Mutation {
	fields := t.fields(&row)
	columns, values := make([]string, len(fields)), make([]any, len(fields))
	for i, f := range fields {
		columns[i], values[i] = f.Name, f.Value()
	}
	return spanner.Insert(t.name, columns, values)
}

// Update returns the mutation that updates the named columns of a row, the
// primary key's among them.
func (t Table[T]) Update(row T, names ...string) *spanner.Mutation {
	fields := t.Fields(&row, names...)
	values := make([]any, len(fields))
	for i, f := range fields {
		values[i] = f.Value()
	}
	return spanner.Update(t.name, names, values)
}
