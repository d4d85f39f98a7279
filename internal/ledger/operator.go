package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Transaction tags by which Spanner's statistics tell the operator's work apart.
const (
	tagResolve = "operator_resolve"
	tagRelease = "operator_release"
)

// Operator makes the changes. Its fields are set once, before the first call.
type Operator struct {
	// Client is the database. Required.
	Client *spanner.Client
	// Store changes bank instructions. Required for decisions.
	Store transfer.Store
	// Bank is asked before a decision. Nil means that none is configured: every
	// status is then unknown.
	Bank transfer.Bank
	// Policy is the bank's. Required for decisions.
	Policy transfer.Policy
	// Topic takes messages that are released. Required for releases.
	Topic Publisher
	// NewID returns an ID that is unique to each call. Required for decisions.
	NewID func() string
	// Now tells the time. Required.
	Now func() time.Time
}

// Refused says why a change was not made and what to do instead. Nothing was
// changed.
type Refused struct{ Why, Do string }

// Error gives both, in one line.
func (r *Refused) Error() string { return r.Why + "; " + r.Do }

// ClockOff returns by how much Now differs from Spanner's clock at least; positive
// where Now is ahead. What the question took is not counted.
func (o *Operator) ClockOff(ctx context.Context) (time.Duration, error) {
	var spanners time.Time
	began := o.Now()
	err := o.Client.Single().Query(ctx, spanner.NewStatement("SELECT CURRENT_TIMESTAMP()")).Do(func(row *spanner.Row) error {
		return row.Columns(&spanners)
	})
	ended := o.Now()
	if err != nil {
		return 0, fmt.Errorf("read Spanner's clock: %w", err)
	}
	return max(began.Sub(spanners), 0) + min(ended.Sub(spanners), 0), nil
}

// rowReader is a transaction that can read a row by its key, of either kind.
type rowReader interface {
	ReadRow(ctx context.Context, table string, key spanner.Key, columns []string) (*spanner.Row, error)
}

// settled fails with [ErrNoSettlement] where nothing was settled under the ID. Which
// ID that is says the caller.
func settled(ctx context.Context, tx rowReader, id string) error {
	_, err := tx.ReadRow(ctx, "ledger_movements", spanner.Key{spannerstore.SettlementKey(id)}, []string{"settlement_id"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return ErrNoSettlement
	}
	if err != nil {
		return fmt.Errorf("read movement: %w", err)
	}
	return nil
}
