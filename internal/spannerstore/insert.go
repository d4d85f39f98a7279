package spannerstore

import (
	"fmt"
	"reflect"
	"time"

	"cloud.google.com/go/spanner"
)

// Insert returns the mutation that inserts a row as it is, timestamps included. It
// is for tests that need more rows than the service could settle in their time:
// what a store in memory holds becomes a database.
func (t Table[T]) Insert(row T) *spanner.Mutation {
	values := map[string]any{}
	for _, c := range t.columns(&row) {
		if n, ok := c.to.(*nullableColumn); ok {
			values[c.name] = n.value()
			continue
		}
		values[c.name] = reflect.ValueOf(c.to).Elem().Interface()
	}
	return spanner.InsertMap(t.name, values)
}

// value is what is stored of the column: NULL for the zero value.
func (n *nullableColumn) value() any {
	switch to := n.to.(type) {
	case *string:
		return spanner.NullString{StringVal: *to, Valid: *to != ""}
	case *int:
		return spanner.NullInt64{Int64: int64(*to), Valid: *to != 0}
	case *time.Time:
		return spanner.NullTime{Time: *to, Valid: !to.IsZero()}
	}
	panic(fmt.Sprintf("insert from %T: not known", n.to))
}
