package spannerstore

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/spanner"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/settle"
)

// lookAt says which stored rows a look reads.
type lookAt int

const (
	lookAtAll      lookAt = iota // the receipt, and where it does not decide, movement and conflict
	lookAtReceipt                // movement and conflict only beside a receipt of another payload
	lookAtMovement               // not the receipt
)

// settleReads tags the reads of a delivery.
var settleReads = &spanner.ReadOptions{RequestTag: tagSettle}

// look reads the stored rows by key, without locks, and judges them. Receipt and movement
// never change, so the reads need no common timestamp.
func (s *Store) look(ctx context.Context, limit time.Duration, st settle.Settlement, at lookAt) (settle.Judgement, error) {
	var stored settle.Stored
	if at != lookAtMovement {
		err := s.read(ctx, limit, func(ctx context.Context, client *spanner.Client) error {
			return readReceipt(ctx, client.Single(), st, &stored)
		})
		if err != nil {
			return settle.Judgement{}, err
		}
	}
	if !stored.Receipt.Decides(st.Payout) && (at != lookAtReceipt || stored.Receipt != nil) {
		err := s.read(ctx, limit, func(ctx context.Context, client *spanner.Client) error {
			return readMovement(ctx, func() Reader { return client.Single() }, st, &stored)
		})
		if err != nil {
			return settle.Judgement{}, err
		}
	}
	judgement, err := settle.Judge(stored, st)
	if at == lookAtMovement {
		judgement.Result.ReceiptExpired = false // another delivery may have inserted it since
	}
	return judgement, err
}

// lookAfter looks after a commit. After a lost answer it has its own deadline, because the
// caller's may be over.
func (s *Store) lookAfter(ctx context.Context, status commitStatus, st settle.Settlement, at lookAt) (settle.Judgement, error) {
	if status != commitUnknown {
		return s.look(ctx, s.attemptTimeout, st, at)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RereadTimeout)
	defer cancel()
	return s.look(ctx, rereadAttempt, st, lookAtAll)
}

// rereadAttempt lets a read after a lost answer try two connections in its time.
const rereadAttempt = RereadTimeout / 2

// read runs a read, and after a timeout again: over other connections.
func (s *Store) read(ctx context.Context, limit time.Duration, f func(context.Context, *spanner.Client) error) (err error) {
	ctx, _ = withRoute(ctx)
	for range maxReads {
		if err = s.exchange(ctx, limit, f); err == nil || ctx.Err() != nil || !timedOut(err) {
			break
		}
	}
	return err
}

func readReceipt(ctx context.Context, tx Reader, st settle.Settlement, stored *settle.Stored) error {
	rows, err := Receipts.Rows(ctx, tx, spanner.Key{SettlementKey(st.Payout.SettlementID)}, settleReads, "payload_hash", "delivery_id", "applied_at")
	for _, row := range rows {
		stored.Receipt = &settle.Receipt{PayloadHash: row.PayloadHash, DeliveryID: row.DeliveryID, AppliedAt: row.AppliedAt}
	}
	return err
}

// readMovement reads the movement, and at the same time whether the conflict is known. tx
// gives a transaction for each read.
func readMovement(ctx context.Context, tx func() Reader, st settle.Settlement, stored *settle.Stored) error {
	key := SettlementKey(st.Payout.SettlementID)
	reads, ctx := errgroup.WithContext(ctx)
	reads.Go(func() error {
		rows, err := Movements.Rows(ctx, tx(), spanner.Key{key}, settleReads)
		if len(rows) > 0 {
			stored.Movement = &rows[0]
		}
		return err
	})
	reads.Go(func() error {
		rows, err := Conflicts.Rows(ctx, tx(), spanner.Key{key, string(st.Hash)}, settleReads, "payload_hash")
		stored.ConflictKnown = len(rows) > 0
		return err
	})
	return reads.Wait() //nolint:wrapcheck // the reads wrap their errors
}

// rowKey is the key of a row.
type rowKey struct {
	table string
	key   spanner.Key
}

// insertOnce inserts a row that no later delivery changes, and reports whether the row
// was stored before this call.
func (s *Store) insertOnce(ctx context.Context, tag string, row *spanner.Mutation, at rowKey) (known bool, err error) {
	ctx, r := withRoute(ctx)
	for commits := 1; ; commits++ {
		_, err := s.commit(ctx, tag, []*spanner.Mutation{row})
		status, own := commitStatusOf(err), r.repeated() || commits > 1
		if own {
			status = status.afterAnother()
		}
		switch {
		case status == commitDone:
			return false, nil
		case status == commitExists:
			return !own, nil
		case status == commitRefused:
			return false, redact(err)
		case callerIsGone(ctx):
			return false, unknownOutcome(err)
		}
		stored, readErr := s.isStored(ctx, at)
		switch {
		case stored:
			return false, nil
		case ctx.Err() != nil || commits == maxCommits:
			return false, unknownOutcome(err, readErr)
		}
	}
}

// isStored reports after a lost answer whether a row is stored. It has its own deadline,
// because the caller's may be over.
func (s *Store) isStored(ctx context.Context, at rowKey) (stored bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RereadTimeout)
	defer cancel()
	err = s.read(ctx, rereadAttempt, func(ctx context.Context, client *spanner.Client) error {
		_, err := client.Single().ReadRowWithOptions(ctx, at.table, at.key, []string{"message_id"}, settleReads)
		stored = err == nil
		if errors.Is(err, spanner.ErrRowNotFound) {
			return nil
		}
		return err
	})
	return stored, err
}
