package contender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
)

// InProgressExpiry is the time in which a record in progress blocks other deliveries
// of its message. The pattern uses the function's remaining time instead.
const InProgressExpiry = 30 * time.Second

// ErrInProgress reports a record in progress of another delivery.
var ErrInProgress = errors.New("a delivery of this message is in progress")

// storeThenEffect is the pattern of the idempotency utility in Powertools for AWS
// Lambda, with Spanner as its persistence layer: it inserts a record IN_PROGRESS under
// a condition, runs the function's effect, and updates the record to COMPLETED. The
// pattern knows nothing of the effect, so the movement has its own key.
func storeThenEffect() Contender {
	return Contender{
		Name:       "store, effect, update",
		About:      "put IN_PROGRESS under a condition, insert the movement, update to COMPLETED: three commits",
		Statements: func() ([]string, error) { return idempotencyTables, nil },
		Open: func(ctx context.Context, p Place) (Settler, error) {
			db, err := p.open(ctx, tables{"movements", completedRows})
			return &idempotent{db, p}, err
		},
	}
}

func completedRows(p delivery) []*spanner.Mutation {
	return []*spanner.Mutation{putRow(p, statusCompleted, time.Now()), movementRow(p, p.deliveryID)}
}

const (
	statusInProgress = "INPROGRESS"
	statusCompleted  = "COMPLETED"
)

var idempotencyTables = []string{
	fmt.Sprintf(movementsTable, "movement_id STRING(36)", "movement_id"),
	`CREATE TABLE idempotency_records (
  id STRING(128) NOT NULL,
  status STRING(16) NOT NULL,
  in_progress_expiration TIMESTAMP NOT NULL,
  validation STRING(128) NOT NULL,
  data STRING(MAX),
  updated_at TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true),
) PRIMARY KEY (id)`,
}

type idempotent struct {
	database
	place Place
}

// Settle implements Settler.
func (s *idempotent) Settle(ctx context.Context, d settle.Delivery) (settle.Outcome, error) {
	p, err := decode(d.Message.Data)
	if err != nil {
		return settle.OutcomeUnknown, err
	}
	outcome, err := s.putInProgress(ctx, p)
	if err != nil || outcome != settle.OutcomeApplied {
		return outcome, err
	}
	if err := s.write(ctx, movementRow(p, uuid.NewString())); err != nil { // the effect
		return settle.OutcomeUnknown, fmt.Errorf("insert movement: %w", err)
	}
	err = s.write(ctx, spanner.UpdateMap("idempotency_records", map[string]any{
		"id": p.SettlementID, "status": statusCompleted, "data": `{"outcome":"applied"}`, "updated_at": spanner.CommitTimestamp,
	}))
	if err != nil {
		return settle.OutcomeUnknown, fmt.Errorf("complete record: %w", err)
	}
	return settle.OutcomeApplied, nil
}

// putInProgress writes the record if it does not exist or has expired in progress. The
// outcome is then applied, and the caller continues.
func (s *idempotent) putInProgress(ctx context.Context, p delivery) (outcome settle.Outcome, err error) {
	err = s.readWrite(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		outcome = settle.OutcomeApplied
		now := s.place.Now()
		row, err := tx.ReadRow(ctx, "idempotency_records", spanner.Key{p.SettlementID}, []string{"status", "in_progress_expiration", "validation"})
		if errors.Is(err, spanner.ErrRowNotFound) {
			return tx.BufferWrite([]*spanner.Mutation{putRow(p, statusInProgress, now)})
		}
		if err != nil {
			return err
		}
		var (
			status, validation string
			expires            time.Time
		)
		if err := row.Columns(&status, &expires, &validation); err != nil {
			return err
		}
		switch {
		case status == statusCompleted:
			outcome = p.compare(validation)
			return nil
		case now.Before(expires):
			return ErrInProgress
		}
		return tx.BufferWrite([]*spanner.Mutation{putRow(p, statusInProgress, now)})
	})
	if err != nil {
		return settle.OutcomeUnknown, err
	}
	return outcome, nil
}

// write commits a row in its own transaction.
func (s *idempotent) write(ctx context.Context, row *spanner.Mutation) error {
	return s.readWrite(ctx, func(_ context.Context, tx *spanner.ReadWriteTransaction) error {
		return tx.BufferWrite([]*spanner.Mutation{row})
	})
}

func putRow(p delivery, status string, now time.Time) *spanner.Mutation {
	return spanner.InsertOrUpdateMap("idempotency_records", map[string]any{
		"id": p.SettlementID, "status": status, "in_progress_expiration": now.Add(InProgressExpiry), "validation": p.hash,
		"updated_at": spanner.CommitTimestamp,
	})
}

func movementRow(p delivery, id string) *spanner.Mutation {
	return p.movement("movements", map[string]any{"movement_id": id})
}
