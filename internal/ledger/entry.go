package ledger

import (
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Entry is an entry of a list, or of [Reader.Follow]: the rows that the query joins.
// Columns that it does not read have the zero value. The entry's JSON holds those
// that it reads.
type Entry struct {
	Movement    settle.Movement
	Instruction spannerstore.InstructionRow
	Event       spannerstore.EventRow
	Reversal    spannerstore.ReversalRow
	Conflict    spannerstore.ConflictRow
	// Quarantined has no data; DataBytes is its size.
	Quarantined spannerstore.QuarantineRow
	DataBytes   int64
	// MessageKey is the hex message_key of a quarantined message. It names the message
	// where its Pub/Sub ID does not.
	MessageKey string

	at     time.Time // by which the entries are ordered
	key    []byte    // the first part of the primary key
	fields fields
}

// fields returns the columns of an entry that a query reads. The first is the
// time by which the entries are ordered.
type fields func(*Entry) []spannerstore.Field

// scan reads a row of a query. extra are columns that the entry's JSON lacks.
func (e *Entry) scan(row *spanner.Row, extra ...spannerstore.Field) error {
	columns := e.fields(e)
	if err := spannerstore.Scan(row, append(columns, extra...)); err != nil {
		return err
	}
	at, isTime := columns[0].Value().(*time.Time)
	if !isTime {
		return fmt.Errorf("read %s: no time", columns[0].Name)
	}
	e.at = *at
	return nil
}

// Amount is the movement's amount.
func (e Entry) Amount() Amount { return Cents(e.Movement.AmountCents, e.Movement.Currency) }

// MarshalJSONTo implements json.MarshalerTo.
func (e Entry) MarshalJSONTo(enc *jsontext.Encoder) error {
	return objectOf(e.fields(&e)).MarshalJSONTo(enc)
}

// object is a JSON object.
type object []member

type member struct {
	name  string
	value any // nil: NULL
}

// objectOf returns the names and values of columns.
func objectOf(columns []spannerstore.Field) object {
	o := make(object, len(columns))
	for i, c := range columns {
		o[i] = member{c.Name, c.Value()}
	}
	return o
}

// without returns the object without the named members.
func (o object) without(names ...string) object {
	return slices.DeleteFunc(o, func(m member) bool { return slices.Contains(names, m.name) })
}

// withoutNull returns the object without those of the named members that are NULL.
func (o object) withoutNull(names ...string) object {
	return slices.DeleteFunc(o, func(m member) bool { return m.value == nil && slices.Contains(names, m.name) })
}

// MarshalJSONTo implements json.MarshalerTo.
func (o object) MarshalJSONTo(enc *jsontext.Encoder) error {
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, m := range o {
		if err := enc.WriteToken(jsontext.String(m.name)); err != nil {
			return err
		}
		if err := json.MarshalEncode(enc, m.value); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndObject)
}
