package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Rules about what only this store has.
const (
	// RuleKey: a row's key is the SHA-256 of what the row is about.
	RuleKey Rule = "settlement_key"
	// RuleUncertainSince: uncertain_since is when the key was given while the state is
	// uncertain, and NULL in every other.
	RuleUncertainSince Rule = "uncertain_since"
)

// space is the size of the space of keys, of which only the first 63 bits count.
const space = 1 << 63

// point is the first key at a place of the space; nil: its end.
func point(at uint64) []byte {
	if at == space {
		return nil
	}
	return binary.BigEndian.AppendUint64(nil, at<<1)
}

// place is where a key lies in the space.
func place(key []byte) uint64 {
	var first [8]byte
	copy(first[:], key)
	return binary.BigEndian.Uint64(first[:]) >> 1
}

// after is the key that follows key; nil: there is none.
func after(key []byte) []byte {
	next := bytes.Clone(key)
	for i := len(next) - 1; i >= 0; i-- {
		if next[i]++; next[i] != 0 {
			return next
		}
	}
	return nil
}

// keys is the range of keys from start up to stop; a nil stop is the end of the
// space.
func keys(start, stop []byte) spanner.KeyRange {
	if stop == nil {
		return spanner.KeyRange{Start: spanner.Key{start}, End: spanner.Key{bytes.Repeat([]byte{0xff}, sha256.Size)}, Kind: spanner.ClosedClosed}
	}
	return spanner.KeyRange{Start: spanner.Key{start}, End: spanner.Key{stop}, Kind: spanner.ClosedOpen}
}

// derives reports whether key is what the schema derives from id.
func derives(key []byte, id string) bool {
	return bytes.Equal(key, spannerstore.SettlementKey(id))
}

// share checks a worker's share of the space, a page at a time. A page covers as
// much of the space as the one before has shown to hold a page's settlements.
func (v *verifier) share(ctx context.Context, worker int) error {
	size := space / uint64(v.options.Workers) //nolint:gosec // G115: Run has seen to it that it is above 0
	from := uint64(worker) * size             //nolint:gosec // G115: an index
	to := from + size
	if worker == v.options.Workers-1 {
		to = space
	}
	start, step := point(from), to-from
	for at := from; at < to; {
		end := min(at+step, to)
		p := &page{settlements: map[string]*settlement{}, totals: totals{}}
		last, err := v.read(ctx, p, start, point(end))
		if err != nil {
			return err
		}
		if last != nil {
			step = max(place(last)-at, 1)
			at, start = place(last), after(last)
		} else {
			if p.movements < int64(v.options.PageRows)/2 {
				step = min(step*2, size)
			}
			at, start = end, point(end)
		}
		if err := v.check(ctx, p); err != nil {
			return err
		}
		v.checked(worker, float64(at-from)/float64(to-from), p)
	}
	return nil
}

// page is some settlements, whole but for their conflicts.
type page struct {
	settlements     map[string]*settlement // by key
	movements, rows int64
	totals          totals
}

// settlement is what is stored under one key.
type settlement struct {
	Snapshot

	instruction spannerstore.InstructionRow
	// strange are settlement IDs that the key does not derive from.
	strange []string
}

// of returns the settlement of a row.
func (p *page) of(key []byte, id string) *settlement {
	p.rows++
	s := p.settlements[string(key)]
	if s == nil {
		s = &settlement{}
		p.settlements[string(key)] = s
	}
	if !derives(key, id) {
		s.strange = append(s.strange, id)
	}
	return s
}

// read reads the settlements from start up to stop, or a page of the first of
// them: then last is the last one's key.
func (v *verifier) read(ctx context.Context, p *page, start, stop []byte) (last []byte, err error) {
	tx := v.reader()
	var latest []byte
	err = spannerstore.Movements.Each(ctx, tx, keys(start, stop), readOptions(v.options.PageRows), func(key []byte, m settle.Movement) error {
		s := p.of(key, m.SettlementID)
		s.Movements = append(s.Movements, m)
		p.totals.moved(m)
		p.movements++
		latest = key
		return nil
	})
	if err != nil {
		return nil, err
	}
	if p.movements == int64(v.options.PageRows) {
		last, stop = latest, after(latest)
	}
	if err := v.readChildren(ctx, p, keys(start, stop)); err != nil {
		return nil, err
	}
	return last, nil
}

// readChildren reads what belongs to the movements. Conflicts come last, and are
// judged as they come.
func (v *verifier) readChildren(ctx context.Context, p *page, within spanner.KeySet) error {
	for _, read := range []func() error{
		func() error {
			return child(ctx, v, spannerstore.Receipts, within, func(key []byte, r spannerstore.ReceiptRow) error {
				s := p.of(key, r.SettlementID)
				s.Receipts = append(s.Receipts, r)
				return nil
			})
		},
		func() error {
			return child(ctx, v, spannerstore.Reversals, within, func(key []byte, r spannerstore.ReversalRow) error {
				p.reverse(p.of(key, r.SettlementID), r)
				return nil
			})
		},
		func() error {
			return child(ctx, v, spannerstore.Instructions, within, func(key []byte, row spannerstore.InstructionRow) error {
				p.of(key, row.SettlementID).instruct(row)
				return nil
			})
		},
		func() error {
			return child(ctx, v, spannerstore.SupersededKeys, within, func(key []byte, row spannerstore.SupersededRow) error {
				p.of(key, row.SettlementID).supersede(row)
				return nil
			})
		},
		func() error {
			return child(ctx, v, spannerstore.Events, within, func(key []byte, e spannerstore.EventRow) error {
				s := p.of(key, e.SettlementID)
				s.Events = append(s.Events, e)
				return nil
			})
		},
		func() error {
			return child(ctx, v, spannerstore.Conflicts, within, func(key []byte, c spannerstore.ConflictRow) error {
				return v.conflict(p.of(key, c.SettlementID), c)
			})
		},
	} {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

// child reads the rows of a table.
func child[T any](ctx context.Context, v *verifier, table spannerstore.Table[T], within spanner.KeySet, each func([]byte, T) error) error {
	return table.Each(ctx, v.reader(), within, readOptions(0), each)
}

// conflict judges a conflict.
func (v *verifier) conflict(s *settlement, c spannerstore.ConflictRow) error {
	if len(s.Movements) > 0 {
		return v.tell(false, ConflictViolations(s.Movements[0], c)...)
	}
	s.Conflicts = []spannerstore.ConflictRow{{SettlementID: c.SettlementID}} // one of them is enough to miss the movement
	return nil
}

// reverse adds a reversal.
func (p *page) reverse(s *settlement, r spannerstore.ReversalRow) {
	s.Reversals = append(s.Reversals, r)
	if len(s.Movements) > 0 {
		p.totals.reversed(s.Movements[0], r)
	}
}

// instruct adds the bank instruction, with what of it stands in the movement.
func (s *settlement) instruct(row spannerstore.InstructionRow) {
	in := row.Instruction
	in.Transfer.Key, _ = uuid.Parse(row.IdempotencyKey) // what is no UUID is not the right one either
	if len(s.Movements) > 0 {
		m := s.Movements[0]
		in.Transfer.AmountCents, in.Transfer.Currency, in.Transfer.CreditorAccount = m.AmountCents, m.Currency, m.CreditorAccount
	}
	s.instruction = row
	s.Instructions = append(s.Instructions, in)
}

// supersede adds a key that the bank instruction had.
func (s *settlement) supersede(row spannerstore.SupersededRow) {
	if len(s.Instructions) == 0 {
		s.Events = append(s.Events, spannerstore.EventRow{SettlementID: row.SettlementID}) // as much without its instruction as an event
		return
	}
	key, _ := uuid.Parse(row.IdempotencyKey) // what is no UUID is not the right one either
	in := &s.Instructions[0]
	in.Superseded = append(in.Superseded, transfer.SupersededKey{Key: key, At: row.SupersededAt})
}

// check judges a page's settlements, and asks the bank about them.
func (v *verifier) check(ctx context.Context, p *page) error {
	for _, key := range slices.Sorted(maps.Keys(p.settlements)) {
		s := p.settlements[key]
		if err := v.tell(false, append(v.terms.Settlement(s.Snapshot), s.columns()...)...); err != nil {
			return err
		}
		if v.options.Bank == nil || len(s.Instructions) == 0 {
			continue
		}
		if err := v.compare(ctx, s.Instructions[0]); err != nil {
			return err
		}
	}
	return nil
}

// columns lists what is wrong with the columns that only this store has.
func (s *settlement) columns() []Violation {
	var found []Violation
	for _, id := range s.strange {
		found = append(found, Violation{
			Rule: RuleKey, SettlementID: id, Found: "a row whose settlement_key is not the SHA-256 of its settlement ID", Want: "that",
		})
	}
	if len(s.Instructions) == 0 {
		return found
	}
	in, since := s.instruction, s.instruction.UncertainSince
	uncertain, from := in.State == transfer.StateUncertain, in.CreatedAt
	if given := s.Instructions[0].Superseded; len(given) > 0 {
		from = given[len(given)-1].At
	}
	if uncertain != (since != nil) || uncertain && !since.Equal(from) {
		found = append(found, Violation{
			Rule: RuleUncertainSince, SettlementID: in.SettlementID,
			Found: fmt.Sprintf("%s bank instruction, uncertain_since set: %t", in.State, since != nil), Want: "since it has its key while it is uncertain, else NULL",
		})
	}
	return found
}
