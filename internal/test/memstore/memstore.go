// Package memstore implements settle.Store and transfer.Store in memory, for the
// local run without Spanner, for tests and for the simulation.
//
// Every method is atomic, as a transaction of spannerstore is; both packages pass
// the conformance suite of storetest.
package memstore

import (
	"bytes"
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

	mu          sync.Mutex
	lastCommit  time.Time
	settlements map[string]*rows
	quarantined map[string]spannerstore.QuarantineRow
}

// rows are the rows of one settlement. Its events are in the order of their versions.
type rows struct {
	movement    settle.Movement
	receipt     *spannerstore.ReceiptRow // nil: expired
	instruction *transfer.Instruction
	reversals   []spannerstore.ReversalRow
	events      []spannerstore.EventRow
	conflicts   map[payout.Hash]spannerstore.ConflictRow
}

var _ settle.Store = (*Store)(nil)

// New returns an empty store. Commit timestamps come from now; where it does not
// advance, each is a microsecond after the last.
func New(now func() time.Time) *Store {
	return &Store{now: now, settlements: map[string]*rows{}, quarantined: map[string]spannerstore.QuarantineRow{}}
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
	known := s.settlements[st.Payout.SettlementID]
	judgement, err := settle.Judge(known.stored(st.Hash), st)
	if err != nil {
		return settle.Result{}, err
	}
	switch judgement.Action {
	case settle.ActionInsert:
		if judgement.Result.AppliedAt, err = s.insert(st); err != nil {
			return settle.Result{}, err
		}
	case settle.ActionRecordConflict:
		s.recordConflict(known, judgement.Result.Fields, st)
	case settle.ActionNone:
	}
	return judgement.Result, nil
}

func (r *rows) stored(hash payout.Hash) settle.Stored {
	if r == nil {
		return settle.Stored{}
	}
	movement := r.movement
	_, known := r.conflicts[hash]
	stored := settle.Stored{Movement: &movement, ConflictKnown: known}
	if r.receipt != nil {
		stored.Receipt = &settle.Receipt{PayloadHash: r.receipt.PayloadHash, DeliveryID: r.receipt.DeliveryID, AppliedAt: r.receipt.AppliedAt}
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
	r := &rows{
		movement: settle.Movement{
			SettlementID: p.SettlementID, AccountID: p.AccountID, AmountCents: p.AmountCents, Currency: p.Currency,
			CreditorAccount: p.CreditorAccount, Reference: p.Reference, PayloadHash: st.Hash, Source: st.Message.Source, RecordedAt: commit,
		},
		receipt: &spannerstore.ReceiptRow{
			SettlementID: p.SettlementID, PayloadHash: st.Hash, ResultStatus: settle.OutcomeApplied.String(), DeliveryID: st.DeliveryID,
			MessageID: st.Message.ID, PublishTime: timeOrNull(st.Message.PublishTime), Metadata: metadata, AppliedAt: commit,
		},
		conflicts: map[payout.Hash]spannerstore.ConflictRow{},
	}
	if st.Instruction != nil {
		created := *st.Instruction
		created.CreatedAt = commit
		r.instruction = &created
		r.recordEvent(transfer.Event{To: created.State, Cause: transfer.CauseCreated}, commit)
	}
	s.settlements[p.SettlementID] = r
	return commit, nil
}

func (r *rows) recordEvent(e transfer.Event, commit time.Time) {
	r.events = append(r.events, spannerstore.EventRow{
		SettlementID: r.movement.SettlementID, Version: r.instruction.Version, Event: e, RecordedAt: commit,
	})
}

// Change implements transfer.Store.
func (s *Store) Change(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (transfer.Change, error) {
	if err := ctx.Err(); err != nil {
		return transfer.Change{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.settlements[id]
	if r == nil || r.instruction == nil {
		return transfer.Change{}, transfer.ErrNoInstruction
	}
	change, err := decide(*r.instruction)
	if err != nil || !change.Write {
		return change, err
	}
	commit := s.commitTime()
	if change.Reverse {
		amount := r.instruction.Transfer.AmountCents
		r.reversals = []spannerstore.ReversalRow{{SettlementID: id, AmountCents: amount, Reason: string(change.Next.State), RecordedAt: commit}}
	}
	r.instruction = &change.Next
	if change.Event != nil {
		r.recordEvent(*change.Event, commit)
	}
	return change, nil
}

// Backlog implements transfer.Store.
func (s *Store) Backlog(ctx context.Context) (transfer.Backlog, error) {
	if err := ctx.Err(); err != nil {
		return transfer.Backlog{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var b transfer.Backlog
	for _, r := range s.settlements {
		in := r.instruction
		if in == nil {
			continue
		}
		if in.State == transfer.StateUncertain {
			b.UncertainSince = earlier(b.UncertainSince, in.CreatedAt)
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

func (s *Store) recordConflict(r *rows, fields []string, st settle.Settlement) {
	r.conflicts[st.Hash] = spannerstore.ConflictRow{
		SettlementID: st.Payout.SettlementID, PayloadHash: st.Hash, Fields: fields,
		Payload: bytes.Clone(st.Message.Data), MessageID: st.Message.ID, Source: st.Message.Source, SeenAt: s.commitTime(),
	}
}

// Movement implements settle.Store.
func (s *Store) Movement(ctx context.Context, settlementID string) (*settle.Movement, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.settlements[settlementID]
	if r == nil {
		return nil, nil //nolint:nilnil // no movement is an answer
	}
	movement := r.movement
	return &movement, nil
}

// Quarantine implements settle.Store.
func (s *Store) Quarantine(ctx context.Context, q settle.Quarantined) (known bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	attributes, err := settle.JSONObject(q.Message.Attributes)
	if err != nil {
		return false, fmt.Errorf("encode attributes: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known = s.quarantined[q.Identity()]; known {
		return true, nil
	}
	s.quarantined[q.Identity()] = spannerstore.QuarantineRow{
		Identity: q.Identity(), MessageID: q.Message.ID, Subscription: q.Message.Subscription,
		Reason: q.Refusal.Reason, Member: q.Refusal.Member, Detail: q.Refusal.Detail,
		Data: append([]byte{}, q.Message.Data...), Attributes: attributes, OrderingKey: q.Message.OrderingKey,
		PublishTime: timeOrNull(q.Message.PublishTime), QuarantinedAt: s.commitTime(),
	}
	return false, nil
}

// Due implements transfer.Store.
func (s *Store) Due(ctx context.Context, now time.Time, limit int) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(s.settlements)) {
		in := s.settlements[id].instruction
		if in != nil && !in.NextCheckAt.IsZero() && !in.NextCheckAt.After(now) && len(ids) < limit {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// DeleteReceipt deletes a receipt, as the row deletion policy of the database does.
func (s *Store) DeleteReceipt(settlementID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.settlements[settlementID]; r != nil {
		r.receipt = nil
	}
}

// Snapshot returns all rows.
func (s *Store) Snapshot() audit.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all audit.Snapshot
	for _, id := range slices.Sorted(maps.Keys(s.settlements)) {
		s.settlements[id].appendTo(&all)
	}
	for _, identity := range slices.Sorted(maps.Keys(s.quarantined)) {
		all.Quarantined = append(all.Quarantined, s.quarantined[identity])
	}
	return all
}

// SnapshotOf returns the rows of one settlement ID. Its cost does not depend on the
// other rows.
func (s *Store) SnapshotOf(settlementID string) (one audit.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.settlements[settlementID]; r != nil {
		r.appendTo(&one)
	}
	return one
}

func (r *rows) appendTo(all *audit.Snapshot) {
	all.Movements = append(all.Movements, r.movement)
	if r.receipt != nil {
		all.Receipts = append(all.Receipts, *r.receipt)
	}
	if r.instruction != nil {
		all.Instructions = append(all.Instructions, *r.instruction)
	}
	all.Reversals = append(all.Reversals, r.reversals...)
	all.Events = append(all.Events, r.events...)
	for _, hash := range slices.Sorted(maps.Keys(r.conflicts)) {
		all.Conflicts = append(all.Conflicts, r.conflicts[hash])
	}
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
