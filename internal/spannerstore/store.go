package spannerstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/settle"
)

// RereadTimeout bounds the read that finds out about a lost answer. It comes on
// top of the caller's deadline.
const RereadTimeout = 5 * time.Second

// maxAttempts bounds the commits of one call. Two are usual at most; each further
// one means that an insert lost a race or that an answer was lost.
const maxAttempts = 5

// Store keeps settlements in a Spanner database. It is safe for concurrent use.
// The zero value is not usable; see [Open].
type Store struct {
	client *spanner.Client
	// turn, when not nil, lets one read-write transaction run at a time: the
	// emulator mishandles two of one client.
	emulatorTxLock chan struct{}
	// hint stands before the queries of NULL_FILTERED indexes; empty but for the
	// emulator.
	hint string
}

var _ settle.Store = (*Store)(nil)

// Config says which database to open, and how.
type Config struct {
	// Database is projects/P/instances/I/databases/D. Required.
	Database string
	// DatabaseRole is the database role of every session. Empty means the account's
	// own rights.
	DatabaseRole string
	// Emulator says that the database is the Spanner emulator's. The client
	// finds the emulator by SPANNER_EMULATOR_HOST or by Options; this field does
	// the two things that the emulator needs: read-write transactions run one after
	// another, and queries of NULL_FILTERED indexes carry a hint.
	Emulator bool
	// Options are passed to the Spanner client. Usually empty.
	Options []option.ClientOption
}

// Open opens the database. It does not wait for Spanner to answer: a database
// that cannot be reached shows in the first call.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	client, err := spanner.NewClientWithConfig(ctx, cfg.Database, spanner.ClientConfig{
		DatabaseRole: cfg.DatabaseRole,
		// The built-in metrics want monitoring.timeSeries.create and an exporter
		// that works while the function's CPU sleeps. Spanner measures the same
		// on its side.
		DisableNativeMetrics: true,
	}, cfg.Options...)
	if err != nil {
		return nil, fmt.Errorf("open spanner database %s: %w", cfg.Database, err)
	}
	s := &Store{client: client}
	if cfg.Emulator {
		s.emulatorTxLock, s.hint = make(chan struct{}, 1), emulatorHint
	}
	return s, nil
}

// Close closes the connections. Calls that are still running fail.
func (s *Store) Close() { s.client.Close() }

// attempt is one way to settle, in one commit.
type attempt func(ctx context.Context, st settle.Settlement) (settle.Result, error)

// Settle implements settle.Store.
func (s *Store) Settle(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	try := attempt(s.insertSettlement)
	var lastErr error
	for range maxAttempts {
		result, err := try(ctx, st)
		fate := commitStatusOf(err)
		switch {
		case fate == commitDone:
			return result, nil
		case fate == commitRefused:
			return settle.Result{}, redact(err)
		case fate == commitUnknown && callerIsGone(ctx):
			return settle.Result{}, unknownOutcome(err)
		}
		result, next, lookErr := s.readAndJudge(ctx, fate, st)
		if next == nil && lookErr == nil {
			return result, nil
		}
		if fate == commitUnknown && (lookErr != nil || ctx.Err() != nil) {
			return settle.Result{}, unknownOutcome(err, lookErr)
		}
		if try, lastErr = next, err; lookErr != nil {
			try = s.settleInTransaction // which is right whatever is stored
		}
	}
	return settle.Result{}, unknownOutcome(lastErr)
}

// unknownOutcome is what is returned where all that is left to do is to deliver
// the message again.
func unknownOutcome(errs ...error) error {
	for i, err := range errs {
		errs[i] = redact(err)
	}
	return fmt.Errorf("%w: %w", settle.ErrOutcomeUnknown, errors.Join(errs...))
}

// callerIsGone reports whether nobody waits for the outcome any more. The
// message is delivered again in any case, and a storm of such callers must not
// cause reads that hold up others.
func callerIsGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// insertSettlement is the first attempt: one Commit.
func (s *Store) insertSettlement(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	rows, err := settlementRows(st)
	if err != nil {
		return settle.Result{}, err
	}
	appliedAt, err := s.insert(ctx, tagSettle, rows)
	if err != nil {
		return settle.Result{}, err
	}
	judgement, err := settle.Judge(settle.Stored{}, st)
	judgement.Result.AppliedAt = appliedAt
	return judgement.Result, err
}

// settleInTransaction is the decision in one read-write transaction.
func (s *Store) settleInTransaction(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	var judgement settle.Judgement
	committed, err := s.readWrite(ctx, tagSettle, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		judgement = settle.Judgement{}
		stored, err := readStored(ctx, tx, st)
		if err != nil {
			return err
		}
		if judgement, err = settle.Judge(stored.Stored, st); err != nil {
			return err
		}
		rows, err := rowsFor(judgement, stored, st)
		if err != nil {
			return err
		}
		return tx.BufferWrite(rows)
	})
	if err != nil {
		return settle.Result{}, err
	}
	if judgement.Action == settle.ActionInsert {
		judgement.Result.AppliedAt = committed
	}
	return judgement.Result, nil
}

// look reads what is stored, without locks, and judges by it. That is enough for
// all that is never changed: a settled payout stays settled, and its hash stays
// what it is. next is how what is still to be written is written; nil: nothing is,
// and result is the whole answer.
//
// After a lost answer the read has a context of its own, because the caller's
// deadline is often what ended.
func (s *Store) readAndJudge(ctx context.Context, after commitStatus, st settle.Settlement) (result settle.Result, next attempt, err error) {
	if after == commitUnknown {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), RereadTimeout)
		defer cancel()
	}
	stored, err := readStored(ctx, s.client.Single(), st)
	if err != nil {
		return settle.Result{}, nil, fmt.Errorf("look at what is stored: %w", err)
	}
	judgement, err := settle.Judge(stored.Stored, st)
	switch {
	case err != nil:
		return settle.Result{}, nil, err
	case judgement.Action == settle.ActionNone:
		return judgement.Result, nil, nil
	case judgement.Action == settle.ActionRecordConflict && stored.conflictDeliveries == 0:
		return settle.Result{}, s.insertConflict(judgement), nil
	}
	return settle.Result{}, s.settleInTransaction, nil
}

// insertConflict records a conflict that is not recorded yet in one Commit.
func (s *Store) insertConflict(j settle.Judgement) attempt {
	return func(ctx context.Context, st settle.Settlement) (settle.Result, error) {
		rows, err := rowsFor(j, storedRow{}, st)
		if err != nil {
			return settle.Result{}, err
		}
		_, err = s.insert(ctx, tagSettle, rows)
		return j.Result, err
	}
}

// Quarantine implements settle.Store.
func (s *Store) Quarantine(ctx context.Context, q settle.Quarantined) error {
	step := s.insertQuarantined
	var lastErr error
	for range maxAttempts {
		err := step(ctx, q)
		switch commitStatusOf(err) {
		case commitDone:
			return nil
		case commitRefused:
			return redact(err)
		case commitExists:
		case commitUnknown: // the transaction recognises this delivery's own row
			if ctx.Err() != nil {
				return s.rereadQuarantined(ctx, q, err)
			}
		}
		step, lastErr = s.quarantineInTransaction, err
	}
	return unknownOutcome(lastErr)
}

// rereadQuarantined looks, when the time is up, whether the row of this delivery
// is there after all. lost is the error by which that is not known.
func (s *Store) rereadQuarantined(ctx context.Context, q settle.Quarantined, lost error) error {
	unknown := unknownOutcome(lost)
	if callerIsGone(ctx) {
		return unknown
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RereadTimeout)
	defer cancel()
	known, err := readQuarantined(ctx, s.client.Single(), q)
	switch {
	case err != nil:
		return errors.Join(unknown, redact(err))
	case known.lastDeliveryID == q.DeliveryID:
		return nil
	}
	return unknown
}

func (s *Store) insertQuarantined(ctx context.Context, q settle.Quarantined) error {
	row, err := quarantinedRow(q)
	if err != nil {
		return err
	}
	_, err = s.insert(ctx, tagQuarantine, []*spanner.Mutation{row})
	return err
}

func (s *Store) quarantineInTransaction(ctx context.Context, q settle.Quarantined) error {
	_, err := s.readWrite(ctx, tagQuarantine, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
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

// insert inserts rows in one Commit and returns its commit timestamp. Sent again
// after it went through, it fails because the rows exist.
func (s *Store) insert(ctx context.Context, tag string, rows []*spanner.Mutation) (time.Time, error) {
	return s.client.Apply(ctx, rows, spanner.ApplyAtLeastOnce(), spanner.TransactionTag(tag))
}

// readWrite runs fn in a read-write transaction and returns its commit
// timestamp. fn may be run several times.
func (s *Store) readWrite(ctx context.Context, tag string, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	if s.emulatorTxLock != nil {
		select {
		case s.emulatorTxLock <- struct{}{}:
			defer func() { <-s.emulatorTxLock }()
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	response, err := s.client.ReadWriteTransactionWithOptions(ctx, fn, spanner.TransactionOptions{TransactionTag: tag})
	return response.CommitTs, err
}

// commitStatus is what is known of a commit.
type commitStatus int

const (
	commitUnknown commitStatus = iota // it may have gone through, or may yet
	commitDone                        // it went through
	commitExists                      // a row is there already, nothing was written
	commitRefused                     // Spanner refused it, nothing was written
)

// commitStatusOf reads an error of a commit. Codes not listed here do not tell
// whether the commit went through, whatever their names suggest.
func commitStatusOf(err error) commitStatus {
	if err == nil {
		return commitDone
	}
	if _, rpc := status.FromError(err); !rpc && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return commitRefused // our own error: what was decided cannot be carried out
	}
	switch spanner.ErrCode(err) { //nolint:exhaustive // every other code is unknown, and new ones must be
	case codes.AlreadyExists:
		return commitExists
	case codes.OutOfRange, codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.Unauthenticated:
		return commitRefused
	default:
		return commitUnknown
	}
}

// redactedError keeps text that can quote column values out of logs and answers.
type redactedError struct{ err error }

func (e redactedError) Error() string {
	return fmt.Sprintf("spanner: %s (its text can quote column values and is withheld)", spanner.ErrCode(e.err))
}

func (e redactedError) Unwrap() error { return e.err }

// redact hides the text of Spanner's errors, but for the codes that speak of
// connections, rights and names and not of what was written.
func redact(err error) error {
	if _, rpc := status.FromError(err); err == nil || !rpc {
		return err
	}
	switch spanner.ErrCode(err) { //nolint:exhaustive // every other text is withheld
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.ResourceExhausted,
		codes.PermissionDenied, codes.Unauthenticated, codes.NotFound:
		return err
	default:
		return redactedError{err}
	}
}
