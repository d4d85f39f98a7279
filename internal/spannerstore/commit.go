package spannerstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/settle"
)

// unknownOutcome is the error where the message has to be delivered again.
func unknownOutcome(errs ...error) error {
	for i, err := range errs {
		errs[i] = redact(err)
	}
	return fmt.Errorf("%w: %w", settle.ErrOutcomeUnknown, errors.Join(errs...))
}

// callerIsGone reports whether the caller no longer waits. The message is delivered
// again in any case, and reads for many such callers would delay others.
func callerIsGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// insert inserts rows in one Commit and returns its commit timestamp. Sent again
// after it went through, it fails because the rows exist.
func insert(ctx context.Context, client *spanner.Client, tag string, rows []*spanner.Mutation) (time.Time, error) {
	return client.Apply(ctx, rows, spanner.ApplyAtLeastOnce(), spanner.TransactionTag(tag))
}

// readWrite runs fn in a read-write transaction and returns its commit
// timestamp. fn may be run several times.
func (s *Store) readWrite(ctx context.Context, client *spanner.Client, tag string, fn func(context.Context, *spanner.ReadWriteTransaction) error) (time.Time, error) {
	if s.emulatorTxLock != nil {
		select {
		case s.emulatorTxLock <- struct{}{}:
			defer func() { <-s.emulatorTxLock }()
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	response, err := client.ReadWriteTransactionWithOptions(ctx, fn, spanner.TransactionOptions{TransactionTag: tag})
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
