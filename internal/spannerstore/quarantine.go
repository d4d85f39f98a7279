package spannerstore

import (
	"context"
	"errors"

	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/settle"
)

// Quarantine implements settle.Store.
func (s *Store) Quarantine(ctx context.Context, q settle.Quarantined) (err error) {
	client, release, err := s.acquire(ctx)
	defer func() { release(err) }()
	if err != nil {
		return err
	}
	err = insertQuarantined(ctx, client, q)
	for commits := 1; ; commits++ {
		switch status := commitStatusOf(err); {
		case status == commitDone:
			return nil
		case status == commitRefused:
			return redact(err)
		case status == commitUnknown && ctx.Err() != nil:
			return rereadQuarantined(ctx, client, q, err)
		case commits == maxCommits:
			return unknownOutcome(err)
		}
		err = s.quarantineInTransaction(ctx, client, q) // recognises this delivery's own row
	}
}

// rereadQuarantined reports, after the deadline, whether this delivery's row is stored.
// lost is the error that left the commit unknown.
func rereadQuarantined(ctx context.Context, client *spanner.Client, q settle.Quarantined, lost error) error {
	unknown := unknownOutcome(lost)
	if callerIsGone(ctx) {
		return unknown
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RereadTimeout)
	defer cancel()
	known, err := readQuarantined(ctx, client.Single(), q)
	switch {
	case err != nil:
		return errors.Join(unknown, redact(err))
	case known.lastDeliveryID == q.DeliveryID:
		return nil
	}
	return unknown
}

func insertQuarantined(ctx context.Context, client *spanner.Client, q settle.Quarantined) error {
	row, err := quarantinedRow(q)
	if err != nil {
		return err
	}
	_, err = insert(ctx, client, tagQuarantine, []*spanner.Mutation{row})
	return err
}

func (s *Store) quarantineInTransaction(ctx context.Context, client *spanner.Client, q settle.Quarantined) error {
	_, err := s.readWrite(ctx, client, tagQuarantine, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		known, err := readQuarantined(ctx, tx, q)
		if err != nil {
			return err
		}
		switch {
		case known.deliveries == 0:
			row, err := quarantinedRow(q)
			if err != nil {
				return err
			}
			return tx.BufferWrite([]*spanner.Mutation{row})
		case known.lastDeliveryID == q.DeliveryID:
			return nil
		default:
			return tx.BufferWrite([]*spanner.Mutation{quarantinedAgainRow(q, known)})
		}
	})
	return err
}
