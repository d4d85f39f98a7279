package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Read returns everything that is stored, as of one timestamp.
func Read(ctx context.Context, client *spanner.Client) (Snapshot, error) {
	tx := client.ReadOnlyTransaction()
	defer tx.Close()
	all, err := read(ctx, tx)
	if err != nil {
		return Snapshot{}, fmt.Errorf("read back: %w", err)
	}
	return all, nil
}

func read(ctx context.Context, tx spannerstore.Reader) (all Snapshot, err error) {
	var superseded []spannerstore.SupersededRow
	for _, table := range []func() error{
		func() error { return readInto(ctx, tx, &all.Movements, spannerstore.Movements) },
		func() error { return readInto(ctx, tx, &all.Receipts, spannerstore.Receipts) },
		func() error { return readInto(ctx, tx, &all.Reversals, spannerstore.Reversals) },
		func() error {
			return spannerstore.Instructions.Each(ctx, tx, spanner.AllKeys(), nil, func(_ []byte, row spannerstore.InstructionRow) error {
				in := row.Instruction
				in.Transfer.Key, err = uuid.Parse(row.IdempotencyKey)
				all.Instructions = append(all.Instructions, in)
				return err
			})
		},
		func() error { return readInto(ctx, tx, &superseded, spannerstore.SupersededKeys) },
		func() error { return readInto(ctx, tx, &all.Events, spannerstore.Events) },
		func() error { return readInto(ctx, tx, &all.Conflicts, spannerstore.Conflicts) },
		func() error { return readInto(ctx, tx, &all.Quarantined, spannerstore.Quarantined) },
	} {
		if err := table(); err != nil {
			return all, err
		}
	}
	for i := range all.Instructions {
		in := &all.Instructions[i]
		if m := all.Movement(in.SettlementID); m != nil {
			in.Transfer.AmountCents, in.Transfer.Currency, in.Transfer.CreditorAccount = m.AmountCents, m.Currency, m.CreditorAccount
		}
		for _, old := range superseded { // in the order of the generations, as the table is
			if old.SettlementID == in.SettlementID {
				key, err := uuid.Parse(old.IdempotencyKey)
				if err != nil {
					return all, err
				}
				in.Superseded = append(in.Superseded, transfer.SupersededKey{Key: key, At: old.SupersededAt})
			}
		}
	}
	sortByKey(&all)
	return all, nil
}

// readInto appends the rows of a table.
func readInto[T any](ctx context.Context, tx spannerstore.Reader, rows *[]T, table spannerstore.Table[T]) error {
	return table.Each(ctx, tx, spanner.AllKeys(), nil, func(_ []byte, row T) error {
		*rows = append(*rows, row)
		return nil
	})
}

// sortByKey puts the rows into the order that a snapshot has. A table's own order
// is that of the hashes of its keys.
func sortByKey(all *Snapshot) {
	slices.SortFunc(all.Movements, func(a, b settle.Movement) int { return cmp.Compare(a.SettlementID, b.SettlementID) })
	slices.SortFunc(all.Receipts, func(a, b spannerstore.ReceiptRow) int { return cmp.Compare(a.SettlementID, b.SettlementID) })
	slices.SortFunc(all.Reversals, func(a, b spannerstore.ReversalRow) int { return cmp.Compare(a.SettlementID, b.SettlementID) })
	slices.SortFunc(all.Instructions, func(a, b transfer.Instruction) int { return cmp.Compare(a.SettlementID, b.SettlementID) })
	slices.SortFunc(all.Events, func(a, b spannerstore.EventRow) int {
		return cmp.Or(cmp.Compare(a.SettlementID, b.SettlementID), cmp.Compare(a.Version, b.Version))
	})
	slices.SortFunc(all.Conflicts, func(a, b spannerstore.ConflictRow) int {
		return cmp.Or(cmp.Compare(a.SettlementID, b.SettlementID), cmp.Compare(a.PayloadHash, b.PayloadHash))
	})
	slices.SortFunc(all.Quarantined, func(a, b spannerstore.QuarantineRow) int { return cmp.Compare(a.Identity, b.Identity) })
}
