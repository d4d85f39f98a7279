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

// unknownOutcome wraps errs in [settle.ErrOutcomeUnknown].
func unknownOutcome(errs ...error) error {
	for i, err := range errs {
		errs[i] = redact(err)
	}
	return fmt.Errorf("%w: %w", settle.ErrOutcomeUnknown, errors.Join(errs...))
}

// callerIsGone reports whether the caller no longer waits. Pub/Sub redelivers its message
// in any case, and reads for many such callers would delay others.
func callerIsGone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// readWrite runs fn in a read-write transaction and returns its commit
// timestamp. fn may be run several times.
func (s *Store) readWrite(ctx context.Context, tag string, fn func(context.Context, *spanner.ReadWriteTransaction) error) (committed time.Time, err error) {
	if s.emulatorTxLock != nil {
		select {
		case s.emulatorTxLock <- struct{}{}:
			defer func() { <-s.emulatorTxLock }()
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	options := spanner.TransactionOptions{TransactionTag: tag}
	if tag == tagSettle {
		options.CommitOptions = s.settleOptions
	}
	err = s.exchange(ctx, s.attemptTimeout, func(ctx context.Context, client *spanner.Client) error {
		response, err := client.ReadWriteTransactionWithOptions(ctx, fn, options)
		committed = response.CommitTs
		return err
	})
	return committed, err
}

// commitStatus is the known state of a commit.
type commitStatus int

const (
	commitUnknown commitStatus = iota // it may have succeeded, or may still succeed
	commitDone                        // it succeeded
	commitExists                      // it failed because a row exists
	commitRefused                     // Spanner refused it
)

// commitStatusOf classifies an error of a commit. After every other code the commit may
// have succeeded.
func commitStatusOf(err error) commitStatus {
	if err == nil {
		return commitDone
	}
	if _, rpc := status.FromError(err); !rpc && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return commitRefused // an error of this package or of settle.Judge
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

// afterAnother is the state after several Commits of the same rows, of which the last has
// state s. Its refusal proves nothing about the others.
func (s commitStatus) afterAnother() commitStatus {
	if s == commitRefused {
		return commitUnknown
	}
	return s
}

// timedOut reports whether err is the end of a deadline, as this package or the client
// library tells it.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || spanner.ErrCode(err) == codes.DeadlineExceeded
}

// redactedError hides text that can quote column values from logs and answers.
type redactedError struct{ err error }

func (e redactedError) Error() string {
	return fmt.Sprintf("spanner: %s (its text can quote column values and is withheld)", spanner.ErrCode(e.err))
}

func (e redactedError) Unwrap() error { return e.err }

// redact hides the text of Spanner's errors, except for codes about connections, rights
// and names.
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
