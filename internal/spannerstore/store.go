package spannerstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/googleapis/gax-go/v2"
	"golang.org/x/sync/singleflight"
	"google.golang.org/api/option"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// RereadTimeout bounds the reads after a lost answer. It replaces the caller's
// deadline, which may have ended the commit.
const RereadTimeout = 5 * time.Second

// maxCommits bounds the commits of one call. Usually there are at most two; each further
// one follows a lost race or a lost answer.
const maxCommits = 5

// maxReads bounds the exchanges of one read.
const maxReads = 3

// Store keeps settlements in a Spanner database. It opens the database in its first call,
// and again after Spanner has deleted the client's session: an instance lives for days,
// and such a client fails for ever. It is safe for concurrent use. The zero value is not
// usable; see [New].
type Store struct {
	open func(context.Context) (*spanner.Client, error)
	// emulatorTxLock serialises read-write transactions, because the emulator mishandles
	// two of one client. Nil means no lock.
	emulatorTxLock chan struct{}
	// hint precedes queries of NULL_FILTERED indexes in the emulator; otherwise empty.
	hint string

	// attemptTimeout bounds each exchange with Spanner, so that one dead connection does
	// not take the whole budget of a delivery.
	attemptTimeout time.Duration
	settleOptions  spanner.CommitOptions // of settling; other commits are not delayed

	opening singleflight.Group
	backoff gax.Backoff // before the next client; used by openNext only

	mu      sync.Mutex
	current *spanner.Client // nil: the next call opens one
	recent  int             // attempts to open one, in the last minute
	closed  bool
}

var (
	_ settle.Store   = (*Store)(nil)
	_ transfer.Store = (*Store)(nil)
)

// Config describes the database of a [Store].
type Config struct {
	// Database is projects/P/instances/I/databases/D. Required.
	Database string
	// DatabaseRole is the database role of every session. Empty means the account's own
	// rights.
	DatabaseRole string
	// Emulator adapts the store to the Spanner emulator: read-write transactions run one
	// after another, and queries of NULL_FILTERED indexes have a hint. The client finds
	// the emulator by SPANNER_EMULATOR_HOST or by Options.
	Emulator bool
	// AttemptTimeout bounds each exchange with Spanner. Zero or more than
	// [MaxAttemptTimeout] means MaxAttemptTimeout.
	AttemptTimeout time.Duration
	// MaxCommitDelay is the longest time for which Spanner may hold a commit of settling, to
	// write several together. At most 500 ms; zero means no delay.
	MaxCommitDelay time.Duration
	// Options are passed to the Spanner client. Usually empty.
	Options []option.ClientOption
}

// MaxAttemptTimeout bounds one exchange with Spanner. A commit takes some milliseconds.
const MaxAttemptTimeout = 8 * time.Second

// New returns a store that opens the database of cfg in its first call.
func New(cfg Config) *Store {
	s := &Store{attemptTimeout: MaxAttemptTimeout}
	if cfg.MaxCommitDelay > 0 {
		s.settleOptions.MaxCommitDelay = &cfg.MaxCommitDelay
	}
	if cfg.AttemptTimeout > 0 {
		s.attemptTimeout = min(cfg.AttemptTimeout, MaxAttemptTimeout)
	}
	s.open = func(ctx context.Context) (*spanner.Client, error) {
		client, err := spanner.NewClientWithConfig(ctx, cfg.Database, spanner.ClientConfig{
			DatabaseRole: cfg.DatabaseRole,
			// The built-in metrics need the right monitoring.timeSeries.create, and CPU for
			// their exporter between requests. Spanner measures the same on the server.
			DisableNativeMetrics: true,
		}, append(newPool().options(s.attemptTimeout/2), cfg.Options...)...)
		if err != nil {
			return nil, fmt.Errorf("open spanner database %s: %w", cfg.Database, err)
		}
		return client, nil
	}
	if cfg.Emulator {
		s.emulatorTxLock, s.hint = make(chan struct{}, 1), emulatorHint
	}
	return s
}

// Open returns a store with an open client. It sends no request to Spanner, so an
// unreachable database fails in the first call.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := New(cfg)
	if _, err := s.opened(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Settle implements [settle.Store]. The first commit inserts the settlement without a
// read. If rows exist or the answer was lost, reads by key without locks decide, because
// a settled payout never changes. A conflict needs one more insert; every other case is
// left to a read-write transaction. A redelivery begins with the receipt. The package
// comment has the diagram.
func (s *Store) Settle(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	r, at := &route{}, lookAtAll
	ctx = context.WithValue(ctx, routeKey{}, r)
	rows, err := settlementRows(st)
	unroutable := errors.Is(err, transfer.ErrNoBank)
	if err != nil && !unroutable {
		return settle.Result{}, err
	}
	if st.Redelivered || unroutable {
		if !unroutable {
			at = lookAtReceipt
		}
		judgement, err := s.look(ctx, s.attemptTimeout, st, at)
		at = lookAtAll
		switch {
		case err == nil && judgement.Action != settle.ActionInsert:
			return s.recorded(ctx, st, judgement)
		case unroutable:
			return settle.Result{}, redact(err)
		case err == nil:
			at = lookAtMovement // there was no receipt
		}
	}
	result := settle.Result{Outcome: settle.OutcomeApplied, SettlementID: st.Payout.SettlementID, PayloadHash: st.Hash}
	if st.Instruction != nil {
		result.Instruction = transfer.StateUncertain
	}
	// If the client library repeats a Commit that succeeded, Spanner answers ALREADY_EXISTS.
	result.AppliedAt, err = s.commit(ctx, tagSettle, rows)
	for commits := 1; err != nil; commits++ {
		status := commitStatusOf(err)
		if r.repeated() || commits > 1 {
			status, at = status.afterAnother(), lookAtAll
		}
		switch {
		case status == commitRefused:
			return settle.Result{}, redact(err)
		case status == commitUnknown && callerIsGone(ctx):
			return settle.Result{}, unknownOutcome(err)
		}
		judgement, readErr := s.lookAfter(ctx, status, st, at)
		switch {
		case readErr == nil && judgement.Action == settle.ActionNone:
			return judgement.Result, nil
		case ctx.Err() != nil || commits == maxCommits:
			return settle.Result{}, unknownOutcome(err, readErr)
		case readErr == nil && judgement.Action == settle.ActionRecordConflict:
			return s.recorded(ctx, st, judgement)
		}
		result, err = s.settleInTransaction(ctx, st)
	}
	return result, nil
}

// commit inserts rows in one Commit and returns its commit timestamp. A repeated insert
// fails because the rows exist.
func (s *Store) commit(ctx context.Context, tag string, rows []*spanner.Mutation) (committed time.Time, err error) {
	err = s.exchange(ctx, s.attemptTimeout, func(ctx context.Context, client *spanner.Client) error {
		options := []spanner.ApplyOption{spanner.ApplyAtLeastOnce(), spanner.TransactionTag(tag)}
		if tag == tagSettle {
			options = append(options, spanner.ApplyCommitOptions(s.settleOptions))
		}
		committed, err = client.Apply(ctx, rows, options...)
		return err
	})
	return committed, err
}

// exchange runs f with the open client, within the limit of one attempt. Where Spanner
// has deleted the client's session, it runs f again with another client.
func (s *Store) exchange(ctx context.Context, limit time.Duration, f func(context.Context, *spanner.Client) error) error {
	for sessions := 1; ; sessions++ {
		s.mu.Lock()
		client := s.current
		s.mu.Unlock()
		if client == nil {
			var err error
			if client, err = s.opened(ctx); err != nil {
				return err
			}
		}
		limited, cancel := context.WithTimeoutCause(ctx, limit, errAttemptOver)
		err := f(limited, client)
		cancel()
		if err == nil || !sessionDeleted(err) {
			return err
		}
		s.giveUp(client)
		if sessions == maxSessions {
			return err
		}
	}
}

// settlementRows returns everything that a settlement inserts. It is made anew for
// every run of a transaction. It fails with [transfer.ErrNoBank] where
// [settle.Settlement.Unroutable].
func settlementRows(st settle.Settlement) ([]*spanner.Mutation, error) {
	p := st.Payout
	receipt := ReceiptRow{
		SettlementID: p.SettlementID, PayloadHash: st.Hash, ResultStatus: string(settle.OutcomeApplied), DeliveryID: st.DeliveryID,
		MessageID: st.Message.ID, AppliedAt: spanner.CommitTimestamp,
	}
	if published := st.Message.PublishTime; !published.IsZero() {
		receipt.PublishTime = &published
	}
	if len(p.Metadata) > 0 {
		var err error
		if receipt.Metadata, err = settle.JSONObject(p.Metadata); err != nil {
			return nil, fmt.Errorf("encode metadata: %w", err)
		}
	}
	rows := []*spanner.Mutation{Movements.Insert(settle.Movement{
		SettlementID: p.SettlementID, AccountID: p.AccountID, AmountCents: p.AmountCents, Currency: p.Currency,
		CreditorAccount: p.CreditorAccount, Reference: p.Reference, PayloadHash: st.Hash, Source: st.Message.Source, RecordedAt: spanner.CommitTimestamp,
	})}
	switch {
	case st.Instruction != nil:
		rows = append(rows, newInstructionRows(*st.Instruction)...)
	case p.CreditorAccount != "":
		return nil, transfer.ErrNoBank
	}
	return append(rows, Receipts.Insert(receipt)), nil
}

// settleInTransaction decides and writes in one read-write transaction.
func (s *Store) settleInTransaction(ctx context.Context, st settle.Settlement) (settle.Result, error) {
	var judgement settle.Judgement
	committed, err := s.readWrite(ctx, tagSettle, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		judgement = settle.Judgement{}
		stored := settle.Stored{}
		err := readReceipt(ctx, tx, st, &stored)
		if err == nil && !stored.Receipt.Decides(st.Payout) {
			err = readMovement(ctx, func() Reader { return tx }, st, &stored)
		}
		if err != nil {
			return err
		}
		if judgement, err = settle.Judge(stored, st); err != nil {
			return err
		}
		rows, err := rowsFor(judgement, st)
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

// recorded returns the result of a judgement after its conflict is inserted.
func (s *Store) recorded(ctx context.Context, st settle.Settlement, judgement settle.Judgement) (settle.Result, error) {
	if judgement.Action != settle.ActionRecordConflict {
		return judgement.Result, nil
	}
	known, err := s.insertOnce(ctx, tagSettle, conflictRow(judgement.Result.Fields, st),
		rowKey{"settlement_conflicts", spanner.Key{SettlementKey(st.Payout.SettlementID), string(st.Hash)}})
	if err != nil {
		return settle.Result{}, err
	}
	judgement.Result.Known = known
	return judgement.Result, nil
}

// Movement implements [settle.Store].
func (s *Store) Movement(ctx context.Context, settlementID string) (movement *settle.Movement, err error) {
	var stored settle.Stored
	err = s.read(ctx, s.attemptTimeout, func(ctx context.Context, client *spanner.Client) error {
		rows, err := Movements.Rows(ctx, client.Single(), spanner.Key{SettlementKey(settlementID)}, settleReads)
		for i := range rows {
			stored.Movement = &rows[i]
		}
		return err
	})
	return stored.Movement, redact(err)
}

// Quarantine implements [settle.Store].
func (s *Store) Quarantine(ctx context.Context, q settle.Quarantined) (known bool, err error) {
	row, err := quarantinedRow(q)
	if err != nil {
		return false, err
	}
	key := sha256.Sum256([]byte(q.Identity()))
	return s.insertOnce(ctx, tagQuarantine, row, rowKey{"quarantined_messages", spanner.Key{key[:]}})
}
