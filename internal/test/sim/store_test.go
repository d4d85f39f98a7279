package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

const (
	// attemptTimeout limits one exchange with the store: a third of settleTimeout, as in
	// the function, and at most 8 s.
	attemptTimeout = spannerstore.MaxAttemptTimeout
	// maxCommits bounds the commits of one call of the store, as in spannerstore.
	maxCommits = 5
)

// ledger keeps the rows of a sequence. Each method is one exchange with a database.
type ledger interface {
	settle.Store
	transfer.Store
	// Look reads the rows of a settlement ID and judges them.
	Look(ctx context.Context, s settle.Settlement) (settle.Judgement, error)
	// Keeps reports whether the message is in quarantine.
	Keeps(ctx context.Context, q settle.Quarantined) (bool, error)
	// DeleteReceipt deletes a receipt, as the row deletion policy does.
	DeleteReceipt(settlementID string)
	Snapshot() audit.Snapshot
	SnapshotOf(settlementID string) audit.Snapshot
}

// memory is the correct ledger.
type memory struct{ *memstore.Store }

// Look implements ledger.
func (m memory) Look(ctx context.Context, s settle.Settlement) (settle.Judgement, error) {
	if err := ctx.Err(); err != nil {
		return settle.Judgement{}, err
	}
	id := s.Payout.SettlementID
	rows := m.SnapshotOf(id)
	stored := settle.Stored{Movement: rows.Movement(id)}
	if r := rows.Receipt(id); r != nil {
		stored.Receipt = &settle.Receipt{PayloadHash: r.PayloadHash, DeliveryID: r.DeliveryID, AppliedAt: r.AppliedAt}
	}
	stored.ConflictKnown = slices.ContainsFunc(rows.Conflicts, func(c spannerstore.ConflictRow) bool { return c.PayloadHash == s.Hash })
	return settle.Judge(stored, s)
}

// Keeps implements ledger.
func (m memory) Keeps(ctx context.Context, q settle.Quarantined) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	return slices.ContainsFunc(m.Snapshot().Quarantined, func(row spannerstore.QuarantineRow) bool { return row.Identity == q.Identity() }), nil
}

// callStore parks a call of the store until the sequence runs op and answers.
func callStore[T any](ctx context.Context, p *instance, c *call, op func(ctx context.Context) (T, error)) (T, error) {
	var result T
	c.op = func(ctx context.Context) (err error) {
		result, err = op(ctx)
		return err
	}
	err := p.park(ctx, c)
	if err == nil {
		err = c.err
	}
	if err != nil {
		return *new(T), err
	}
	return result, nil
}

// Settle implements settle.Store by exchanges that the sequence can interrupt, as
// spannerstore does: a redelivery reads before it writes, and a read decides after a
// commit whose answer was lost.
func (p *instance) Settle(ctx context.Context, s settle.Settlement) (settle.Result, error) {
	ctx = withoutTurns(ctx)
	if s.Redelivered {
		if judged, err := p.look(ctx, s); err == nil && judged.Action == settle.ActionNone {
			p.w.countLater("redelivery decided by its first read")
			return judged.Result, nil
		}
	}
	for commits := 1; ; commits++ {
		result, err := callStore(ctx, p, &call{kind: "settle", id: s.Payout.SettlementID}, func(ctx context.Context) (settle.Result, error) {
			r, err := p.w.store.Settle(ctx, s)
			p.w.oracle.settled(s, r, err)
			return r, err
		})
		if err == nil || errors.Is(err, transfer.ErrNoBank) || p.givesUp(ctx) {
			return result, err
		}
		judged, readErr := p.lookAgain(ctx, s)
		switch {
		case readErr == nil && judged.Action == settle.ActionNone:
			p.w.countLater("read after a lost answer: " + judged.Result.Outcome.String())
			return judged.Result, nil
		case ctx.Err() != nil || commits == maxCommits:
			return settle.Result{}, errors.Join(settle.ErrOutcomeUnknown, err, readErr)
		}
	}
}

// givesUp reports whether a call ends without a read after a commit without an answer:
// the caller is gone, or the instance has crashed.
func (p *instance) givesUp(ctx context.Context) bool {
	return p.crashed.Load() || errors.Is(ctx.Err(), context.Canceled)
}

func (p *instance) look(ctx context.Context, s settle.Settlement) (settle.Judgement, error) {
	return callStore(ctx, p, &call{kind: "look", id: s.Payout.SettlementID}, func(ctx context.Context) (settle.Judgement, error) {
		return p.w.store.Look(ctx, s)
	})
}

// lookAgain looks with a deadline of its own, because the caller's may be over.
func (p *instance) lookAgain(ctx context.Context, s settle.Settlement) (settle.Judgement, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spannerstore.RereadTimeout)
	defer cancel()
	return p.look(ctx, s)
}

// Movement implements settle.Store.
func (p *instance) Movement(ctx context.Context, settlementID string) (*settle.Movement, error) {
	return callStore(ctx, p, &call{kind: "look", id: settlementID}, func(ctx context.Context) (*settle.Movement, error) {
		return p.w.store.Movement(ctx, settlementID)
	})
}

// Quarantine implements settle.Store, as Settle does.
func (p *instance) Quarantine(ctx context.Context, q settle.Quarantined) (known bool, err error) {
	ctx = withoutTurns(ctx)
	for commits := 1; ; commits++ {
		known, err = callStore(ctx, p, &call{kind: "quarantine"}, func(ctx context.Context) (bool, error) {
			known, err := p.w.store.Quarantine(ctx, q)
			p.w.oracle.quarantined(q, known, err)
			return known, err
		})
		if err == nil || p.givesUp(ctx) {
			return known && commits == 1, err
		}
		kept, readErr := p.keeps(ctx, q)
		switch {
		case kept:
			p.w.countLater("read after a lost answer: quarantined")
			return false, nil
		case ctx.Err() != nil || commits == maxCommits:
			return false, errors.Join(settle.ErrOutcomeUnknown, err, readErr)
		}
	}
}

// keeps reads whether a message is in quarantine, with a deadline of its own.
func (p *instance) keeps(ctx context.Context, q settle.Quarantined) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spannerstore.RereadTimeout)
	defer cancel()
	return callStore(ctx, p, &call{kind: "look"}, func(ctx context.Context) (bool, error) { return p.w.store.Keeps(ctx, q) })
}

// Change implements transfer.Store.
func (p *instance) Change(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (transfer.Change, error) {
	abort := func(ctx context.Context) {
		_, _ = p.w.store.Change(ctx, id, func(in transfer.Instruction) (transfer.Change, error) {
			_, _ = decide(in)
			return transfer.Change{}, errAborted
		})
	}
	return callStore(ctx, p, &call{kind: "change", id: id, abort: abort}, func(ctx context.Context) (transfer.Change, error) {
		change, err := p.w.store.Change(ctx, id, decide)
		if err == nil && change.Write {
			p.w.oracle.changed(id, change)
		}
		return change, err
	})
}

// Due implements transfer.Store.
func (p *instance) Due(ctx context.Context, now time.Time, limit int) ([]string, error) {
	return callStore(ctx, p, &call{kind: "due"}, func(ctx context.Context) ([]string, error) { return p.w.store.Due(ctx, now, limit) })
}

// Backlog implements transfer.Store.
func (p *instance) Backlog(ctx context.Context) (transfer.Backlog, error) {
	return callStore(ctx, p, &call{kind: "backlog"}, p.w.store.Backlog)
}
