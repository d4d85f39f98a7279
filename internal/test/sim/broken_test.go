package sim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// brokenLedger is the correct ledger, except for the methods that a fault replaces.
type brokenLedger struct {
	ledger
	fault fault
	extra *audit.Snapshot // rows that the fault stores beside the correct ones
}

// fault breaks a ledger. A nil function stands for the correct one.
type fault struct {
	settle     func(ctx context.Context, l brokenLedger, s settle.Settlement) (settle.Result, error)
	look       func(ctx context.Context, l brokenLedger, s settle.Settlement) (settle.Judgement, error)
	quarantine func(ctx context.Context, l brokenLedger, q settle.Quarantined) (known bool, err error)
	keeps      func(ctx context.Context, l brokenLedger, q settle.Quarantined) (bool, error)

	found string // in the text of the broken promise
}

// Settle implements ledger.
func (l brokenLedger) Settle(ctx context.Context, s settle.Settlement) (settle.Result, error) {
	if l.fault.settle == nil {
		return l.ledger.Settle(ctx, s)
	}
	return l.fault.settle(ctx, l, s)
}

// Look implements ledger.
func (l brokenLedger) Look(ctx context.Context, s settle.Settlement) (settle.Judgement, error) {
	if l.fault.look == nil {
		return l.ledger.Look(ctx, s)
	}
	return l.fault.look(ctx, l, s)
}

// Quarantine implements ledger.
func (l brokenLedger) Quarantine(ctx context.Context, q settle.Quarantined) (known bool, err error) {
	if l.fault.quarantine == nil {
		return l.ledger.Quarantine(ctx, q)
	}
	return l.fault.quarantine(ctx, l, q)
}

// Keeps implements ledger.
func (l brokenLedger) Keeps(ctx context.Context, q settle.Quarantined) (bool, error) {
	if l.fault.keeps == nil {
		return l.ledger.Keeps(ctx, q)
	}
	return l.fault.keeps(ctx, l, q)
}

// SnapshotOf implements ledger.
func (l brokenLedger) SnapshotOf(id string) audit.Snapshot {
	rows := l.ledger.SnapshotOf(id)
	for _, c := range l.extra.Conflicts {
		if c.SettlementID == id {
			rows.Conflicts = append(rows.Conflicts, c)
		}
	}
	return rows
}

// Snapshot implements ledger. Extra rows of quarantined messages replace the correct ones.
func (l brokenLedger) Snapshot() audit.Snapshot {
	rows := l.ledger.Snapshot()
	rows.Conflicts = append(rows.Conflicts, l.extra.Conflicts...)
	for _, q := range l.extra.Quarantined {
		i := slices.IndexFunc(rows.Quarantined, func(row spannerstore.QuarantineRow) bool { return row.Identity == q.Identity })
		rows.Quarantined[i].QuarantinedAt = q.QuarantinedAt
	}
	return rows
}

// conflicting is a fault in the settling of a conflict, whose correct judgement it gets.
func conflicting(found string, conflict func(ctx context.Context, l brokenLedger, s settle.Settlement, correct settle.Judgement) (settle.Result, error)) fault {
	return fault{found: found, settle: func(ctx context.Context, l brokenLedger, s settle.Settlement) (settle.Result, error) {
		judged, err := l.ledger.Look(ctx, s)
		if err != nil || judged.Result.Outcome != settle.OutcomeConflict {
			return l.ledger.Settle(ctx, s)
		}
		return conflict(ctx, l, s, judged)
	}}
}

// nothingStored is a fault in the look at a settlement ID without rows.
func nothingStored(found string, look func(s settle.Settlement, correct settle.Judgement) settle.Judgement) fault {
	return fault{found: found, look: func(ctx context.Context, l brokenLedger, s settle.Settlement) (settle.Judgement, error) {
		judged, err := l.ledger.Look(ctx, s)
		if err == nil && judged.Action == settle.ActionInsert {
			judged = look(s, judged)
		}
		return judged, err
	}}
}

var faults = map[string]fault{
	"conflict without a record": conflicting("answered conflict, and none is recorded",
		func(_ context.Context, _ brokenLedger, _ settle.Settlement, correct settle.Judgement) (settle.Result, error) {
			return correct.Result, nil
		}),
	"new conflict called known": conflicting("called known, and no commit recorded it",
		func(ctx context.Context, l brokenLedger, s settle.Settlement, _ settle.Judgement) (settle.Result, error) {
			r, err := l.ledger.Settle(ctx, s)
			r.Known = true
			return r, err
		}),
	"known conflict called new": conflicting("recorded 2 times",
		func(ctx context.Context, l brokenLedger, s settle.Settlement, _ settle.Judgement) (settle.Result, error) {
			r, err := l.ledger.Settle(ctx, s)
			r.Known = false
			return r, err
		}),
	"known conflict recorded again": conflicting("has changed",
		func(ctx context.Context, l brokenLedger, s settle.Settlement, correct settle.Judgement) (settle.Result, error) {
			if correct.Result.Known {
				l.extra.Conflicts = append(l.extra.Conflicts, spannerstore.ConflictRow{
					SettlementID: s.Payout.SettlementID, PayloadHash: s.Hash, Fields: correct.Result.Fields,
					Payload: s.Message.Data, MessageID: s.Message.ID, SeenAt: time.Now(),
				})
			}
			return l.ledger.Settle(ctx, s)
		}),
	"conflict taken for a duplicate": conflicting("answered duplicate",
		func(_ context.Context, _ brokenLedger, _ settle.Settlement, correct settle.Judgement) (settle.Result, error) {
			correct.Result.Outcome = settle.OutcomeDuplicate
			return correct.Result, nil
		}),
	"quarantine that stores nothing": {
		found:      "is answered quarantined, and has 0 rows",
		quarantine: func(context.Context, brokenLedger, settle.Quarantined) (bool, error) { return false, nil },
	},
	"quarantine not read after a lost answer": {
		found: "is answered quarantined, and has 0 rows",
		keeps: func(context.Context, brokenLedger, settle.Quarantined) (bool, error) { return true, nil },
	},
	"known message called new": {
		found: "recorded 2 times",
		quarantine: func(ctx context.Context, l brokenLedger, q settle.Quarantined) (bool, error) {
			_, err := l.ledger.Quarantine(ctx, q)
			return false, err
		},
	},
	"known message stored again": {
		found: "has changed",
		quarantine: func(ctx context.Context, l brokenLedger, q settle.Quarantined) (bool, error) {
			known, err := l.ledger.Quarantine(ctx, q)
			if known {
				l.extra.Quarantined = append(l.extra.Quarantined, spannerstore.QuarantineRow{Identity: q.Identity(), QuarantinedAt: time.Now()})
			}
			return known, err
		},
	},
	"redelivery that finds nothing is a duplicate": nothingStored("answered duplicate without a movement",
		func(s settle.Settlement, correct settle.Judgement) settle.Judgement {
			if s.Redelivered {
				correct.Action, correct.Result.Outcome = settle.ActionNone, settle.OutcomeDuplicate
			}
			return correct
		}),
	"timed-out attempt is applied, and nothing is stored": nothingStored("answered applied without a movement",
		func(s settle.Settlement, correct settle.Judgement) settle.Judgement {
			if !s.Redelivered {
				correct.Action = settle.ActionNone
			}
			return correct
		}),
}

// TestOracleRejectsBrokenStores runs sequences over stores that break one promise each.
func TestOracleRejectsBrokenStores(t *testing.T) {
	t.Parallel()
	const most = 500 // sequences
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(most) {
				p := fromSeed(seed)
				p.breakStore = func(correct ledger) ledger { return brokenLedger{correct, f, &audit.Snapshot{}} }
				r := play(t, p)
				if r.broken == nil {
					continue
				}
				if !strings.Contains(r.broken.text, f.found) {
					t.Errorf("seed %d: %s, want %q", seed, r.broken.text, f.found)
				}
				return
			}
			t.Errorf("not found in %d sequences", most)
		})
	}
}
