package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// settlement holds the rows under one key.
type settlement struct {
	Snapshot

	id           string // of the first row that was read
	instructions []spannerstore.InstructionRow
	wrongIDs     []string // settlement IDs that the key does not derive from
}

// join fills in Instructions. An error says that a key is no UUID.
func (s *settlement) join() (err error) {
	var m settle.Movement
	if len(s.Movements) > 0 {
		m = s.Movements[0]
	}
	for _, row := range s.instructions {
		in, keyErr := row.Join(m)
		s.Instructions = append(s.Instructions, in)
		err = errors.Join(err, keyErr)
	}
	return err
}

// page holds some settlements.
type page struct {
	settlements     map[string]*settlement // by key
	movements, rows int64
	totals          totals
	// conflict is called for each conflict.
	conflict func(*settlement, spannerstore.ConflictRow) error
}

// of returns the settlement of a row.
func (p *page) of(key []byte, id string) *settlement {
	p.rows++
	s := p.settlements[string(key)]
	if s == nil {
		s = &settlement{id: id}
		p.settlements[string(key)] = s
	}
	if !derives(key, id) {
		s.wrongIDs = append(s.wrongIDs, id)
	}
	return s
}

// source is a database at one timestamp. Every call of tx returns a transaction.
type source struct {
	tx      func() spannerstore.Reader
	options func(limit int) *spanner.ReadOptions
}

// readMovements reads at most limit movements, zero for all, and returns the last
// one's key.
func (p *page) readMovements(ctx context.Context, from source, within spanner.KeySet, limit int) (last []byte, err error) {
	err = spannerstore.Movements.Each(ctx, from.tx(), within, from.options(limit), func(key []byte, m settle.Movement) error {
		s := p.of(key, m.SettlementID)
		s.Movements = append(s.Movements, m)
		p.totals.moved(m)
		p.movements++
		last = key
		return nil
	})
	return last, err
}

// readChildren reads the other rows of the movements. Conflicts come last.
func (p *page) readChildren(ctx context.Context, from source, within spanner.KeySet) error {
	steps := []func() error{
		each(ctx, from, within, spannerstore.Receipts, func(key []byte, r spannerstore.ReceiptRow) error {
			s := p.of(key, r.SettlementID)
			s.Receipts = append(s.Receipts, r)
			return nil
		}),
		each(ctx, from, within, spannerstore.Reversals, func(key []byte, r spannerstore.ReversalRow) error {
			s := p.of(key, r.SettlementID)
			s.Reversals = append(s.Reversals, r)
			if len(s.Movements) > 0 {
				p.totals.reversed(s.Movements[0], r)
			}
			return nil
		}),
		each(ctx, from, within, spannerstore.Instructions, func(key []byte, row spannerstore.InstructionRow) error {
			s := p.of(key, row.SettlementID)
			s.instructions = append(s.instructions, row)
			return nil
		}),
		each(ctx, from, within, spannerstore.Events, func(key []byte, e spannerstore.EventRow) error {
			s := p.of(key, e.SettlementID)
			s.Events = append(s.Events, e)
			return nil
		}),
		each(ctx, from, within, spannerstore.Conflicts, func(key []byte, c spannerstore.ConflictRow) error {
			return p.conflict(p.of(key, c.SettlementID), c)
		}),
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// each returns a function that reads the rows of a table.
func each[T any](ctx context.Context, from source, within spanner.KeySet, table spannerstore.Table[T], row func([]byte, T) error) func() error {
	return func() error { return table.Each(ctx, from.tx(), within, from.options(0), row) }
}

// Read returns all rows, as of one timestamp.
func Read(ctx context.Context, client *spanner.Client) (Snapshot, error) {
	tx := client.ReadOnlyTransaction()
	defer tx.Close()
	all, err := readAll(ctx, source{
		tx:      func() spannerstore.Reader { return tx },
		options: func(int) *spanner.ReadOptions { return nil },
	})
	if err != nil {
		return Snapshot{}, fmt.Errorf("read the database: %w", err)
	}
	return all, nil
}

func readAll(ctx context.Context, from source) (all Snapshot, err error) {
	p := &page{settlements: map[string]*settlement{}, totals: totals{}, conflict: func(s *settlement, c spannerstore.ConflictRow) error {
		s.Conflicts = append(s.Conflicts, c)
		return nil
	}}
	if _, err := p.readMovements(ctx, from, spanner.AllKeys(), 0); err != nil {
		return all, err
	}
	if err := p.readChildren(ctx, from, spanner.AllKeys()); err != nil {
		return all, err
	}
	if all.Quarantined, err = spannerstore.Quarantined.Rows(ctx, from.tx(), spanner.AllKeys(), nil); err != nil {
		return all, err
	}
	for _, s := range p.settlements {
		if err := s.join(); err != nil {
			return all, err
		}
	}
	byID := func(a, b *settlement) int { return cmp.Compare(a.id, b.id) }
	for _, s := range slices.SortedFunc(maps.Values(p.settlements), byID) {
		all.Movements = append(all.Movements, s.Movements...)
		all.Receipts = append(all.Receipts, s.Receipts...)
		all.Reversals = append(all.Reversals, s.Reversals...)
		all.Instructions = append(all.Instructions, s.Instructions...)
		all.Events = append(all.Events, s.Events...)
		all.Conflicts = append(all.Conflicts, s.Conflicts...)
	}
	slices.SortFunc(all.Quarantined, func(a, b spannerstore.QuarantineRow) int { return cmp.Compare(a.Identity, b.Identity) })
	return all, nil
}

// columnViolations lists the violations of columns that only a database has.
func (s *settlement) columnViolations() []Violation {
	var found []Violation
	for _, id := range s.wrongIDs {
		found = append(found, Violation{
			Rule: RuleKey, SettlementID: id, Found: "a row whose settlement_key does not derive from its settlement ID", Want: "its SHA-256",
		})
	}
	if len(s.instructions) == 0 {
		return found
	}
	in, since := s.instructions[0], s.instructions[0].UncertainSince
	uncertain := in.State == transfer.StateUncertain
	if uncertain != (since != nil) || uncertain && !since.Equal(in.CreatedAt) {
		found = append(found, Violation{
			Rule: RuleUncertainSince, SettlementID: in.SettlementID,
			Found: fmt.Sprintf("%s bank instruction, uncertain_since set: %t", in.State, since != nil), Want: "the time of its creation while it is uncertain, else NULL",
		})
	}
	return found
}
