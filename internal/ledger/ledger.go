package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Request and transaction tags, by which Spanner's statistics tell this work apart.
const (
	tagRead    = "investigate"
	tagResolve = "operator_resolve"
	tagRelease = "operator_release"
)

// ErrNoSettlement reports a settlement ID that was never settled.
var ErrNoSettlement = errors.New("no such settlement")

// ErrNoMessage reports a message that is not in quarantine.
var ErrNoMessage = errors.New("no such message in quarantine")

// Reader reads a database. It is safe for concurrent use.
type Reader struct {
	// Client is the database's. Required.
	Client *spanner.Client
	// Bound is the timestamp bound of all reads. Defaults to a strong read.
	Bound spanner.TimestampBound

	page int // rows of one page of a list; zero: [listPage]
}

// Operator makes changes. Its fields are set once, before the first call. A change
// that it does not make fails with a *[transfer.Refused].
type Operator struct {
	// Client is the database's. Required.
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

// ClockOff returns the least difference between Now and Spanner's clock; positive
// where Now is ahead. The duration of the query does not count.
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

func readOptions() *spanner.ReadOptions { return &spanner.ReadOptions{RequestTag: tagRead} }

// rowsOf reads a settlement's rows of a table.
func rowsOf[T any](ctx context.Context, tx spannerstore.Reader, table spannerstore.Table[T], id string, columns ...string) ([]T, error) {
	return table.Rows(ctx, tx, spanner.Key{spannerstore.SettlementKey(id)}.AsPrefix(), readOptions(), columns...)
}

// rowOf reads a settlement's only row of a table; nil: there is none.
func rowOf[T any](ctx context.Context, tx spannerstore.Reader, table spannerstore.Table[T], id string) (*T, error) {
	rows, err := rowsOf(ctx, tx, table, id)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// readMovement fails with [ErrNoSettlement]. The caller adds the ID to the error.
func readMovement(ctx context.Context, tx spannerstore.Reader, id string) (settle.Movement, error) {
	m, err := rowOf(ctx, tx, spannerstore.Movements, id)
	if err != nil {
		return settle.Movement{}, err
	}
	if m == nil {
		return settle.Movement{}, ErrNoSettlement
	}
	return *m, nil
}
