package spannerstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// RereadTimeout bounds the read after a lost answer, in addition to the caller's
// deadline.
const RereadTimeout = 5 * time.Second

// maxCommits bounds the commits of one call. Usually there are at most two; each further
// one follows a lost race or a lost answer.
const maxCommits = 5

// Store keeps settlements in a Spanner database. It opens the database in its first call.
// After an error that the client itself can cause, it opens it again: an instance lives
// for days, and a client whose session Spanner has deleted fails for ever. It is safe for
// concurrent use. The zero value is not usable; see [New].
type Store struct {
	open func(context.Context) (*spanner.Client, error)
	// emulatorTxLock serialises read-write transactions, because the emulator mishandles
	// two of one client. Nil means no lock.
	emulatorTxLock chan struct{}
	// hint precedes queries of NULL_FILTERED indexes in the emulator; otherwise empty.
	hint string

	mu      sync.Mutex
	current *openedClient // nil: the next call opens one
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
	// Options are passed to the Spanner client. Usually empty.
	Options []option.ClientOption
}

// New returns a store that opens the database of cfg in its first call.
func New(cfg Config) *Store {
	s := &Store{open: func(ctx context.Context) (*spanner.Client, error) {
		client, err := spanner.NewClientWithConfig(ctx, cfg.Database, spanner.ClientConfig{
			DatabaseRole: cfg.DatabaseRole,
			// The built-in metrics need the right monitoring.timeSeries.create, and CPU for
			// their exporter between requests. Spanner measures the same on the server.
			DisableNativeMetrics: true,
		}, cfg.Options...)
		if err != nil {
			return nil, fmt.Errorf("open spanner database %s: %w", cfg.Database, err)
		}
		return client, nil
	}}
	if cfg.Emulator {
		s.emulatorTxLock, s.hint = make(chan struct{}, 1), emulatorHint
	}
	return s
}

// Open returns a store with an open client. It sends no request to Spanner, so an
// unreachable database fails in the first call.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := New(cfg)
	_, release, err := s.acquire(ctx)
	release(err)
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close closes the database after the calls in progress. Later calls fail.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.current != nil {
		s.giveUp(s.current)
	}
}

// acquire returns the open client. release must be called once, with the error of the
// call, also after an error of acquire.
func (s *Store) acquire(ctx context.Context) (client *spanner.Client, release func(error), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, func(error) {}, errClosed
	}
	if s.current == nil {
		s.current = &openedClient{ready: make(chan struct{})}
		// The client outlives the request that opens it.
		go s.current.open(context.WithoutCancel(ctx), s.open)
	}
	o, before := s.current, s.current.succeeded
	o.users++
	s.mu.Unlock()
	defer s.mu.Lock() // for the deferred Unlock
	select {
	case <-o.ready:
		client, err = o.client, o.err
	case <-ctx.Done():
		err = ctx.Err() // the goroutine that opens may be writing o.client
	}
	return client, func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		o.users--
		if err == nil {
			o.succeeded++
		}
		if err != nil || o.givenUp {
			s.ended(ctx, o, before, err)
		}
	}, err
}

// Settle implements [settle.Store]. The first commit inserts the settlement without a
// read. If rows exist or the answer was lost, a read without locks decides, because a
// settled payout never changes. A new conflict needs one more insert; every other case is
// left to a read-write transaction. The package comment has the diagram.
func (s *Store) Settle(ctx context.Context, st settle.Settlement) (result settle.Result, err error) {
	client, release, err := s.acquire(ctx)
	defer func() { release(err) }()
	if err != nil {
		return settle.Result{}, err
	}
	rows, err := settlementRows(st)
	if err != nil {
		return settle.Result{}, err
	}
	result = settle.Result{Outcome: settle.OutcomeApplied, SettlementID: st.Payout.SettlementID, PayloadHash: st.Hash}
	if st.Instruction != nil {
		result.Instruction = transfer.StateUncertain
	}
	// Sent again after it went through, the commit fails because the rows exist.
	result.AppliedAt, err = client.Apply(ctx, rows, spanner.ApplyAtLeastOnce(), spanner.TransactionTag(tagSettle))
	for commits := 1; err != nil; commits++ {
		status := commitStatusOf(err)
		switch {
		case status == commitRefused:
			return settle.Result{}, redact(err)
		case status == commitUnknown && callerIsGone(ctx):
			return settle.Result{}, unknownOutcome(err)
		}
		stored, judgement, readErr := readAndJudge(ctx, client, status, st)
		switch {
		case readErr == nil && judgement.Action == settle.ActionNone:
			return judgement.Result, nil
		case status == commitUnknown && (readErr != nil || ctx.Err() != nil):
			return settle.Result{}, unknownOutcome(err, readErr)
		case commits == maxCommits:
			return settle.Result{}, unknownOutcome(err)
		case readErr == nil && judgement.Action == settle.ActionRecordConflict && stored.conflictDeliveries == 0:
			result, err = insertConflict(ctx, client, judgement.Result, st)
		default:
			result, err = s.settleInTransaction(ctx, client, st)
		}
	}
	return result, nil
}

// settlementRows returns everything that a settlement inserts. It is made anew for
// every run of a transaction.
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
		CreditorAccount: p.CreditorAccount, Reference: p.Reference, PayloadHash: st.Hash, RecordedAt: spanner.CommitTimestamp,
	})}
	if st.Instruction == nil {
		receipt.ExpireFrom = &spanner.CommitTimestamp
	} else { // the receipt is kept until the outcome at the bank is final
		rows = append(rows, newInstructionRows(*st.Instruction)...)
	}
	return append(rows, Receipts.Insert(receipt)), nil
}

// settleInTransaction decides and writes in one read-write transaction.
func (s *Store) settleInTransaction(ctx context.Context, client *spanner.Client, st settle.Settlement) (settle.Result, error) {
	var judgement settle.Judgement
	committed, err := s.readWrite(ctx, client, tagSettle, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
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

// readAndJudge reads the stored rows without locks and judges them. After a lost answer
// it has its own deadline, because the caller's may be over.
func readAndJudge(ctx context.Context, client *spanner.Client, after commitStatus, st settle.Settlement) (storedRow, settle.Judgement, error) {
	if after == commitUnknown {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), RereadTimeout)
		defer cancel()
	}
	stored, err := readStored(ctx, client.Single(), st)
	if err != nil {
		return storedRow{}, settle.Judgement{}, fmt.Errorf("read the settlement: %w", err)
	}
	judgement, err := settle.Judge(stored.Stored, st)
	return stored, judgement, err
}

// insertConflict records a new conflict in one Commit.
func insertConflict(ctx context.Context, client *spanner.Client, result settle.Result, st settle.Settlement) (settle.Result, error) {
	_, err := insert(ctx, client, tagSettle, []*spanner.Mutation{conflictRow(result.Fields, 0, st)})
	return result, err
}
