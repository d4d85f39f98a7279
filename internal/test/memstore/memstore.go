// Package memstore implements settle.Store and transfer.Store in memory, for the
// local run without Spanner, for tests and for the simulation.
//
// Every method is atomic, as a transaction of spannerstore is; both packages pass
// the conformance suite of storetest.
package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Store keeps settlements in memory. It is safe for concurrent use. The zero
// value is not usable; see [New].
type Store struct {
	now func() time.Time

	mu           sync.Mutex
	lastCommit   time.Time
	movements    map[string]settle.Movement
	receipts     map[string]spannerstore.ReceiptRow
	instructions map[string]transfer.Instruction
	reversals    map[string]spannerstore.ReversalRow
	events       map[string][]spannerstore.EventRow // by settlement, in the order of their versions
	conflicts    map[string]map[payout.Hash]spannerstore.ConflictRow
	quarantined  map[string]spannerstore.QuarantineRow
}

var _ settle.Store = (*Store)(nil)

// New returns an empty store. Commit timestamps come from now; where it does not
// advance, each is a microsecond after the last.
func New(now func() time.Time) *Store {
	return &Store{
		now:          now,
		movements:    map[string]settle.Movement{},
		receipts:     map[string]spannerstore.ReceiptRow{},
		instructions: map[string]transfer.Instruction{},
		reversals:    map[string]spannerstore.ReversalRow{},
		events:       map[string][]spannerstore.EventRow{},
		conflicts:    map[string]map[payout.Hash]spannerstore.ConflictRow{},
		quarantined:  map[string]spannerstore.QuarantineRow{},
	}
}

// commitTime returns a commit timestamp later than all before it.
func (s *Store) commitTime() time.Time {
	commit := s.now().UTC().Round(0).Truncate(time.Microsecond)
	if !commit.After(s.lastCommit) {
		commit = s.lastCommit.Add(time.Microsecond)
	}
	s.lastCommit = commit
	return commit
}

// Settle implements settle.Store.
func (s *Store) Settle(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	if err := ctx.Err(); err != nil {
		return settle.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	judgement, err := settle.Judge(s.stored(st), st)
	if err != nil {
		return settle.Result{}, err
	}
	switch judgement.Action {
	case settle.ActionInsert:
		if judgement.Result.AppliedAt, err = s.insert(st); err != nil {
			return settle.Result{}, err
		}
	case settle.ActionRecordConflict:
		s.recordConflict(judgement.Result.Fields, st)
	case settle.ActionNone:
	}
	return judgement.Result, nil
}

func (s *Store) stored(st settle.Settlement) settle.Stored {
	id := st.Payout.SettlementID
	movement, known := s.movements[id]
	if !known {
		return settle.Stored{}
	}
	stored := settle.Stored{
		Movement:           &movement,
		Instruction:        s.instructions[id].State,
		ConflictDeliveryID: s.conflicts[id][st.Hash].LastDeliveryID,
	}
	if receipt, kept := s.receipts[id]; kept {
		stored.Receipt = &settle.Receipt{PayloadHash: receipt.PayloadHash, DeliveryID: receipt.DeliveryID}
	}
	return stored
}

func (s *Store) insert(st settle.Settlement) (time.Time, error) {
	p := st.Payout
	metadata, err := settle.JSONObject(p.Metadata)
	if err != nil {
		return time.Time{}, fmt.Errorf("encode metadata: %w", err)
	}
	commit := s.commitTime()
	expireFrom := &commit
	if in := st.Instruction; in != nil {
		expireFrom = nil
		created := *in
		created.CreatedAt = commit
		s.instructions[p.SettlementID] = created
		s.recordEvent(created, transfer.Event{To: created.State, Cause: transfer.CauseCreated}, commit)
	}
	s.movements[p.SettlementID] = settle.Movement{
		SettlementID: p.SettlementID, AccountID: p.AccountID, AmountCents: p.AmountCents, Currency: p.Currency,
		CreditorAccount: p.CreditorAccount, Reference: p.Reference, PayloadHash: st.Hash, RecordedAt: commit,
	}
	s.receipts[p.SettlementID] = spannerstore.ReceiptRow{
		SettlementID: p.SettlementID, PayloadHash: st.Hash, ResultStatus: settle.OutcomeApplied.String(), DeliveryID: st.DeliveryID,
		MessageID: st.Message.ID, PublishTime: known(st.Message.PublishTime), Metadata: metadata, AppliedAt: commit, ExpireFrom: expireFrom,
	}
	return commit, nil
}

func (s *Store) recordEvent(in transfer.Instruction, e transfer.Event, commit time.Time) {
	id := in.SettlementID
	s.events[id] = append(s.events[id], spannerstore.EventRow{SettlementID: id, Version: in.Version, Event: e, RecordedAt: commit})
}

// Change implements settle.Store.
func (s *Store) Change(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (transfer.Change, error) {
	if err := ctx.Err(); err != nil {
		return transfer.Change{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in, ok := s.instructions[id]
	if !ok {
		return transfer.Change{}, transfer.ErrNoInstruction
	}
	change, err := decide(in)
	if err != nil || !change.Write {
		return change, err
	}
	commit := s.commitTime()
	if change.Supersedes != nil {
		change.Next.Superseded = slices.Clone(change.Next.Superseded)
		change.Next.Superseded[len(change.Next.Superseded)-1].At = commit
	}
	s.instructions[id] = change.Next
	if change.Event != nil {
		s.recordEvent(change.Next, *change.Event, commit)
	}
	if change.Reverse {
		s.reversals[id] = spannerstore.ReversalRow{SettlementID: id, AmountCents: in.Transfer.AmountCents, Reason: string(change.Next.State), RecordedAt: commit}
	}
	if receipt, kept := s.receipts[id]; kept && change.Settled {
		receipt.ExpireFrom = &commit
		s.receipts[id] = receipt
	}
	return change, nil
}

// Backlog implements settle.Store.
func (s *Store) Backlog(ctx context.Context) (transfer.Backlog, error) {
	if err := ctx.Err(); err != nil {
		return transfer.Backlog{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var b transfer.Backlog
	for _, in := range s.instructions {
		if in.State == transfer.StateUncertain {
			since := in.CreatedAt
			if n := len(in.Superseded); n > 0 {
				since = in.Superseded[n-1].At
			}
			b.UncertainSince = earlier(b.UncertainSince, since)
		}
		b.NextDue = earlier(b.NextDue, in.NextCheckAt)
		if in.State == transfer.StateManual && b.Manual < transfer.MaxManual {
			b.Manual++
		}
	}
	return b, nil
}

// earlier returns the earlier of two times; zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (s *Store) recordConflict(fields []string, st settle.Settlement) {
	id := st.Payout.SettlementID
	if s.conflicts[id] == nil {
		s.conflicts[id] = map[payout.Hash]spannerstore.ConflictRow{}
	}
	commit := s.commitTime()
	conflict, again := s.conflicts[id][st.Hash]
	if !again {
		conflict = spannerstore.ConflictRow{
			SettlementID: id, PayloadHash: st.Hash, Fields: fields,
			Payload: bytes.Clone(st.Message.Data), MessageID: st.Message.ID, FirstSeenAt: commit,
		}
	}
	conflict.Deliveries++
	conflict.LastDeliveryID, conflict.LastSeenAt = st.DeliveryID, commit
	s.conflicts[id][st.Hash] = conflict
}

// Quarantine implements settle.Store.
func (s *Store) Quarantine(ctx context.Context, q settle.Quarantined) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	attributes, err := settle.JSONObject(q.Message.Attributes)
	if err != nil {
		return fmt.Errorf("encode attributes: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	row, again := s.quarantined[q.Identity()]
	switch {
	case !again:
		row = spannerstore.QuarantineRow{
			Identity: q.Identity(), MessageID: q.Message.ID, Subscription: q.Message.Subscription,
			Reason: q.Refusal.Reason, Member: q.Refusal.Member, Detail: q.Refusal.Detail,
			Data: append([]byte{}, q.Message.Data...), Attributes: attributes, OrderingKey: q.Message.OrderingKey,
			PublishTime: known(q.Message.PublishTime), QuarantinedAt: s.commitTime(),
		}
	case row.LastDeliveryID == q.DeliveryID:
		return nil
	}
	row.Deliveries++
	row.LastDeliveryID = q.DeliveryID
	s.quarantined[q.Identity()] = row
	return nil
}

// Due implements settle.Store.
func (s *Store) Due(ctx context.Context, now time.Time, limit int) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(s.instructions)) {
		if next := s.instructions[id].NextCheckAt; !next.IsZero() && !next.After(now) && len(ids) < limit {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// DeleteReceipt deletes a receipt, as the row deletion policy of the database does.
func (s *Store) DeleteReceipt(settlementID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.receipts, settlementID)
}

// Snapshot returns all rows.
func (s *Store) Snapshot() audit.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := audit.Snapshot{
		Movements:    sorted(s.movements, func(a, b settle.Movement) int { return cmp.Compare(a.SettlementID, b.SettlementID) }),
		Receipts:     sorted(s.receipts, func(a, b spannerstore.ReceiptRow) int { return cmp.Compare(a.SettlementID, b.SettlementID) }),
		Reversals:    sorted(s.reversals, func(a, b spannerstore.ReversalRow) int { return cmp.Compare(a.SettlementID, b.SettlementID) }),
		Instructions: sorted(s.instructions, func(a, b transfer.Instruction) int { return cmp.Compare(a.SettlementID, b.SettlementID) }),
		Quarantined:  sorted(s.quarantined, func(a, b spannerstore.QuarantineRow) int { return cmp.Compare(a.Identity, b.Identity) }),
	}
	for _, id := range slices.Sorted(maps.Keys(s.events)) {
		all.Events = append(all.Events, s.events[id]...)
	}
	for _, id := range slices.Sorted(maps.Keys(s.conflicts)) {
		all.Conflicts = append(all.Conflicts, sorted(s.conflicts[id], compareHashes)...)
	}
	return all
}

// SnapshotOf returns the rows of one settlement ID. Its cost does not depend on the
// other rows.
func (s *Store) SnapshotOf(settlementID string) audit.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return audit.Snapshot{
		Movements:    row(s.movements, settlementID),
		Receipts:     row(s.receipts, settlementID),
		Reversals:    row(s.reversals, settlementID),
		Instructions: row(s.instructions, settlementID),
		Events:       slices.Clone(s.events[settlementID]),
		Conflicts:    sorted(s.conflicts[settlementID], compareHashes),
	}
}

func compareHashes(a, b spannerstore.ConflictRow) int {
	return cmp.Compare(a.PayloadHash, b.PayloadHash)
}

// row returns the row under the key, or no row.
func row[V any](table map[string]V, key string) []V {
	if v, ok := table[key]; ok {
		return []V{v}
	}
	return nil
}

func sorted[K comparable, V any](m map[K]V, compare func(a, b V) int) []V {
	return slices.SortedFunc(maps.Values(m), compare)
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
