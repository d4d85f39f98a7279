// Package readback reads a Settle Once database as plain values: a whole one, for
// the demo and for tests on the emulator, or ranges of its tables, whatever their
// size.
//
// It reads tables and asks no queries: on the emulator a query costs some
// milliseconds whatever it is, and a test may look at everything after every step.
package readback

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/snapshot"
)

// Read returns everything that is stored, as of one timestamp.
func Read(ctx context.Context, client *spanner.Client) (snapshot.Snapshot, error) {
	tx := client.ReadOnlyTransaction()
	defer tx.Close()
	all, err := read(ctx, tx)
	if err != nil {
		return snapshot.Snapshot{}, fmt.Errorf("read back: %w", err)
	}
	return all, nil
}

func read(ctx context.Context, tx Reader) (all snapshot.Snapshot, err error) {
	var superseded []SupersededRow
	for _, table := range []func() error{
		func() error { return readInto(ctx, tx, &all.Movements, Movements) },
		func() error { return readInto(ctx, tx, &all.Receipts, Receipts) },
		func() error { return readInto(ctx, tx, &all.Reversals, Reversals) },
		func() error {
			return Instructions.Each(ctx, tx, spanner.AllKeys(), nil, func(_ []byte, row InstructionRow) error {
				in := row.Instruction
				in.Transfer.Key, err = uuid.Parse(row.IdempotencyKey)
				all.Instructions = append(all.Instructions, in)
				return err
			})
		},
		func() error { return readInto(ctx, tx, &superseded, SupersededKeys) },
		func() error { return readInto(ctx, tx, &all.Events, Events) },
		func() error { return readInto(ctx, tx, &all.Conflicts, Conflicts) },
		func() error { return readInto(ctx, tx, &all.Quarantined, Quarantined) },
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
				in.Superseded = append(in.Superseded, settle.SupersededKey{Key: key, At: old.SupersededAt})
			}
		}
	}
	sortByKey(&all)
	return all, nil
}

// readInto appends the rows of a table.
func readInto[T any](ctx context.Context, tx Reader, rows *[]T, table Table[T]) error {
	return table.Each(ctx, tx, spanner.AllKeys(), nil, func(_ []byte, row T) error {
		*rows = append(*rows, row)
		return nil
	})
}

// sortByKey puts the rows into the order that a snapshot has. A table's own order
// is that of the hashes of its keys.
func sortByKey(all *snapshot.Snapshot) {
	slices.SortFunc(all.Movements, func(a, b settle.Movement) int { return cmp.Compare(a.SettlementID, b.SettlementID) })
	slices.SortFunc(all.Receipts, func(a, b snapshot.Receipt) int { return cmp.Compare(a.SettlementID, b.SettlementID) })
	slices.SortFunc(all.Reversals, func(a, b snapshot.Reversal) int { return cmp.Compare(a.SettlementID, b.SettlementID) })
	slices.SortFunc(all.Instructions, func(a, b settle.Instruction) int { return cmp.Compare(a.SettlementID, b.SettlementID) })
	slices.SortFunc(all.Events, func(a, b snapshot.InstructionEvent) int {
		return cmp.Or(cmp.Compare(a.SettlementID, b.SettlementID), cmp.Compare(a.Version, b.Version))
	})
	slices.SortFunc(all.Conflicts, func(a, b snapshot.Conflict) int {
		return cmp.Or(cmp.Compare(a.SettlementID, b.SettlementID), cmp.Compare(a.PayloadHash, b.PayloadHash))
	})
	slices.SortFunc(all.Quarantined, func(a, b snapshot.Quarantined) int { return cmp.Compare(a.Identity, b.Identity) })
}
