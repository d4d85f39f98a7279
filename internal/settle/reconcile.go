package settle

import (
	"context"
	"fmt"
	"time"
)

// Reconciler looks after the bank instructions that are due. Its fields are set
// once, before the first call; it is safe for concurrent use, and runs that
// overlap are harmless.
type Reconciler struct {
	// Store keeps the instructions. Required.
	Store Store
	// Bank is the bank that is asked. Nil means that none is configured: a run
	// that finds anything due fails with [ErrNoBank].
	Bank Bank
	// Now tells the time. Required.
	Now func() time.Time
	// Limit bounds the instructions of one run.
	Limit int
}

// Reconciled is what a run found.
type Reconciled struct {
	// Due counts the instructions that were due, up to the run's limit.
	Due int `json:"due"`
}

// Reconcile makes one run.
func (r *Reconciler) Reconcile(ctx context.Context) (Reconciled, error) {
	due, err := r.Store.Due(ctx, r.Now(), r.Limit)
	if err != nil {
		return Reconciled{}, fmt.Errorf("reconcile: %w", err)
	}
	if len(due) > 0 && r.Bank == nil {
		return Reconciled{Due: len(due)}, fmt.Errorf("reconcile %d bank instructions: %w", len(due), ErrNoBank)
	}
	return Reconciled{Due: len(due)}, nil
}
