package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// maxConflicts bounds the conflicts of one settlement that are read: a producer
// can make any number.
const maxConflicts = 100

// Settlement holds all rows of a settlement ID, as of ReadAt.
type Settlement struct {
	ReadAt   time.Time
	Movement settle.Movement
	// CurrencyDefaulted says that the message had no currency.
	CurrencyDefaulted bool
	// Intact is false where the movement's columns do not hash to its payload hash:
	// the ledger was changed by hand, or a newer version has written it.
	Intact bool
	// Receipt is nil where it has expired.
	Receipt *spannerstore.ReceiptRow
	// Instruction is nil where the payout has no creditor account.
	Instruction *transfer.Instruction
	// Superseded are the instruction's earlier keys, oldest first; usually none.
	Superseded []spannerstore.SupersededRow
	Events     []spannerstore.EventRow
	// Reversal is nil where the movement stands.
	Reversal *spannerstore.ReversalRow
	// Conflicts are the newest 100, newest first.
	Conflicts []Conflict
	// MoreConflicts says that there are more.
	MoreConflicts bool
	// Next lists the next actions, the most urgent first; never empty.
	Next []Next
}

// Conflict is a message with other content under the settlement ID.
type Conflict struct {
	spannerstore.ConflictRow

	// Members are the members of both payouts, side by side.
	Members []Member
	// Fault says why the kept message is not a payout; empty: it is one.
	Fault string
}

// Amount is the movement's amount.
func (s Settlement) Amount() Amount { return Cents(s.Movement.AmountCents, s.Movement.Currency) }

// Settlement reads all rows of a settlement ID at one timestamp. It fails with
// [ErrNoSettlement].
func (r Reader) Settlement(ctx context.Context, id string) (Settlement, error) {
	tx := r.Client.ReadOnlyTransaction().WithTimestampBound(r.Bound)
	defer tx.Close()
	s, err := readSettlement(ctx, tx, id)
	switch {
	case errors.Is(err, ErrNoSettlement):
		return Settlement{}, fmt.Errorf("settlement %q: %w", id, err)
	case err != nil:
		return Settlement{}, fmt.Errorf("read settlement %q: %w", id, err)
	}
	settled, intact := s.Movement.Payout()
	s.CurrencyDefaulted, s.Intact = intact && settled.CurrencyDefaulted, intact
	for i := range s.Conflicts {
		s.Conflicts[i].compare(s.Movement)
	}
	s.Next = s.next()
	return s, nil
}

func readSettlement(ctx context.Context, tx *spanner.ReadOnlyTransaction, id string) (s Settlement, err error) {
	if s.Movement, err = readMovement(ctx, tx, id); err != nil {
		return s, err
	}
	for _, read := range []func() error{
		func() (err error) { s.Receipt, err = rowOf(ctx, tx, spannerstore.Receipts, id); return err },
		func() error {
			in, err := spannerstore.ReadInstruction(ctx, tx, tagRead, id)
			if errors.Is(err, transfer.ErrNoInstruction) {
				return nil
			}
			if err != nil {
				return err
			}
			s.Instruction = &in
			s.Superseded, err = rowsOf(ctx, tx, spannerstore.SupersededKeys, id)
			return err
		},
		func() (err error) { s.Events, err = rowsOf(ctx, tx, spannerstore.Events, id); return err },
		func() (err error) { s.Reversal, err = rowOf(ctx, tx, spannerstore.Reversals, id); return err },
		func() error { return s.readConflicts(ctx, tx) },
		func() (err error) { s.ReadAt, err = tx.Timestamp(); return err },
	} {
		if err := read(); err != nil {
			return s, err
		}
	}
	if s.Receipt != nil && s.Receipt.Metadata != "" && !jsontext.Value(s.Receipt.Metadata).IsValid() {
		return s, errors.New("the receipt's metadata is not JSON")
	}
	return s, nil
}

func (s *Settlement) readConflicts(ctx context.Context, tx *spanner.ReadOnlyTransaction) error {
	statement := spanner.Statement{
		SQL: `SELECT ` + spannerstore.Select(spannerstore.Conflicts.As("c", new(spannerstore.ConflictRow))) + `
FROM settlement_conflicts AS c WHERE c.settlement_key = @key ORDER BY c.seen_at DESC, c.payload_hash LIMIT @limit`,
		Params: map[string]any{"key": spannerstore.SettlementKey(s.Movement.SettlementID), "limit": int64(maxConflicts + 1)},
	}
	err := tx.QueryWithOptions(ctx, statement, spanner.QueryOptions{RequestTag: tagRead}).Do(func(row *spanner.Row) error {
		var c Conflict
		err := spannerstore.Scan(row, spannerstore.Conflicts.Fields(&c.ConflictRow))
		s.Conflicts = append(s.Conflicts, c)
		return err
	})
	if len(s.Conflicts) > maxConflicts {
		s.Conflicts, s.MoreConflicts = s.Conflicts[:maxConflicts], true
	}
	return err
}

// MarshalJSONTo implements json.MarshalerTo.
func (s Settlement) MarshalJSONTo(enc *jsontext.Encoder) error {
	o := object{
		{"read_at", s.ReadAt},
		{"movement", s.movementJSON()},
		{"receipt", nil},
		{"bank_instruction", nil},
		{"bank_instruction_events", objectsOf(spannerstore.Events, s.Events)},
		{"reversal", nil},
		{"conflicts", s.Conflicts},
		{"more_conflicts", s.MoreConflicts},
		{"next", s.Next},
	}
	if s.Receipt != nil {
		o[2].value = s.receiptJSON()
	}
	if s.Instruction != nil {
		o[3].value = s.instructionJSON()
	}
	if s.Reversal != nil {
		o[5].value = object{
			{"amount", Cents(s.Reversal.AmountCents, s.Movement.Currency)}, {"reason", s.Reversal.Reason}, {"recorded_at", s.Reversal.RecordedAt},
		}
	}
	return o.MarshalJSONTo(enc)
}

func (s Settlement) movementJSON() object {
	return slices.Concat(
		objectOf(spannerstore.Movements.Fields(&s.Movement, "settlement_id", "account_id")),
		object{{"amount", s.Amount()}},
		objectOf(spannerstore.Movements.Fields(&s.Movement, "creditor_account", "reference", "payload_hash", "source", "recorded_at")),
		object{{"currency_defaulted", s.CurrencyDefaulted}, {"intact", s.Intact}},
	)
}

// receiptJSON holds the metadata as JSON, not as text.
func (s Settlement) receiptJSON() object {
	o := objectOf(spannerstore.Receipts.Fields(s.Receipt)).without("settlement_id").withoutNull("metadata")
	for i := range o {
		if o[i].name == "metadata" {
			o[i].value = jsontext.Value(s.Receipt.Metadata)
		}
	}
	return o
}

func (s Settlement) instructionJSON() object {
	row := spannerstore.InstructionRow{Instruction: *s.Instruction, IdempotencyKey: s.Instruction.Transfer.Key.String()}
	o := objectOf(spannerstore.Instructions.Fields(&row)).
		without("settlement_id", "uncertain_since").withoutNull("lease_owner", "bank_transfer_id", "bank_status")
	if len(s.Superseded) > 0 {
		o = append(o, member{"superseded_keys", objectsOf(spannerstore.SupersededKeys, s.Superseded)})
	}
	return o
}

// MarshalJSONTo implements json.MarshalerTo.
func (c Conflict) MarshalJSONTo(enc *jsontext.Encoder) error {
	o := append(objectOf(spannerstore.Conflicts.Fields(&c.ConflictRow)).without("settlement_id"), member{"members", c.Members})
	if c.Fault != "" {
		o = append(o, member{"fault", c.Fault})
	}
	return o.MarshalJSONTo(enc)
}

// objectsOf returns the rows without their settlement ID.
func objectsOf[T any](table spannerstore.Table[T], rows []T) []object {
	all := make([]object, len(rows))
	for i := range rows {
		all[i] = objectOf(table.Fields(&rows[i])).without("settlement_id")
	}
	return all
}
