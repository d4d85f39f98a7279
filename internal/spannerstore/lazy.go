package spannerstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Lazy is a settle.Store that opens its database in the first call, and opens
// it anew for the calls after one that failed in a way that can be the client's
// own fault.
//
// A function's instance lives for days, and a client does not heal from
// everything: one whose session Spanner has forgotten fails for ever, and one
// that met an outage waits out its connection back-off long after Spanner is
// back. It is safe for concurrent use.
type Lazy struct {
	open func(context.Context) (*Store, error)

	mu      sync.Mutex
	current *opened // nil: open in the next call
	closed  bool
}

var _ settle.Store = (*Lazy)(nil)

// NewLazy returns a store that will open the database of cfg.
func NewLazy(cfg Config) *Lazy {
	return &Lazy{open: func(ctx context.Context) (*Store, error) { return Open(ctx, cfg) }}
}

// errClosed is what a call gets after Close.
var errClosed = errors.New("the store is closed")

// opened is a store that is open, or being opened, with the calls that use it.
// It is closed when it has been given up and the last of them has ended.
type opened struct {
	ready chan struct{} // closed when store or err is set
	store *Store
	err   error

	// Guarded by Lazy.mu.
	users     int
	succeeded int // calls that ended well
	givenUp   bool
}

// Settle implements settle.Store.
func (l *Lazy) Settle(ctx context.Context, st settle.Settlement) (result settle.Result, err error) {
	err = l.use(ctx, func(s *Store) error {
		result, err = s.Settle(ctx, st)
		return err
	})
	return result, err
}

// Quarantine implements settle.Store.
func (l *Lazy) Quarantine(ctx context.Context, q settle.Quarantined) error {
	return l.use(ctx, func(s *Store) error { return s.Quarantine(ctx, q) })
}

// Due implements settle.Store.
func (l *Lazy) Due(ctx context.Context, now time.Time, limit int) (ids []string, err error) {
	err = l.use(ctx, func(s *Store) error {
		ids, err = s.Due(ctx, now, limit)
		return err
	})
	return ids, err
}

// Change implements settle.Store.
func (l *Lazy) Change(ctx context.Context, id string, decide func(transfer.Instruction) (transfer.Change, error)) (change transfer.Change, err error) {
	err = l.use(ctx, func(s *Store) error {
		change, err = s.Change(ctx, id, decide)
		return err
	})
	return change, err
}

// Backlog implements settle.Store.
func (l *Lazy) Backlog(ctx context.Context) (backlog transfer.Backlog, err error) {
	err = l.use(ctx, func(s *Store) error {
		backlog, err = s.Backlog(ctx)
		return err
	})
	return backlog, err
}

// Close closes the database once the calls that use it have ended, and fails
// all later ones.
func (l *Lazy) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.current != nil {
		l.giveUp(l.current)
	}
}

func (l *Lazy) use(ctx context.Context, call func(*Store) error) (err error) {
	o, before, err := l.acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { l.release(ctx, o, before, err) }()
	select {
	case <-o.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if o.err != nil {
		return o.err
	}
	return call(o.store)
}

// acquire returns what is open, or begins to open it. before is how many calls
// have succeeded with it.
func (l *Lazy) acquire(ctx context.Context) (o *opened, before int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, 0, errClosed
	}
	if l.current == nil {
		l.current = &opened{ready: make(chan struct{})}
		// The client outlives the request that happens to open it.
		go l.current.finish(context.WithoutCancel(ctx), l.open)
	}
	l.current.users++
	return l.current, l.current.succeeded, nil
}

// openTimeout is how long opening may take. It asks nothing of Spanner, but may
// look for credentials.
const openTimeout = 30 * time.Second

// finish opens the store. Nobody holds a lock meanwhile, and every caller waits
// under its own deadline.
func (o *opened) finish(ctx context.Context, open func(context.Context) (*Store, error)) {
	defer close(o.ready)
	done := make(chan opening, 1)
	go func() { done <- tryOpen(ctx, open) }()
	select {
	case result := <-done:
		o.store, o.err = result.store, result.err
	case <-time.After(openTimeout):
		o.err = fmt.Errorf("open spanner database: not open within %v", openTimeout)
		go func() {
			if late := <-done; late.store != nil {
				late.store.Close()
			}
		}()
	}
}

// opening is what came of opening.
type opening struct {
	store *Store
	err   error
}

func tryOpen(ctx context.Context, open func(context.Context) (*Store, error)) (result opening) {
	defer func() {
		if p := recover(); p != nil {
			result.err = fmt.Errorf("open spanner database: panic of type %T", p)
		}
	}()
	store, err := open(ctx)
	return opening{store, err}
}

// isReady reports whether opening has ended, well or not.
func (o *opened) isReady() bool {
	select {
	case <-o.ready:
		return true
	default:
		return false
	}
}

func (l *Lazy) release(ctx context.Context, o *opened, before int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o.users--
	if err == nil {
		o.succeeded++
	}
	switch {
	case o.givenUp:
		l.giveUp(o)
	case !o.isReady(): // a caller that had no more time says nothing about the opening
	case o.err != nil || mayBeBroken(ctx, err, o.succeeded > before):
		l.giveUp(o)
	}
}

// giveUp lets o serve no further call, and closes it after its last.
func (l *Lazy) giveUp(o *opened) {
	o.givenUp = true
	if l.current == o {
		l.current = nil
	}
	if o.users == 0 {
		go o.close() // closing waits for the network, and nobody has to wait for it
	}
}

func (o *opened) close() {
	<-o.ready
	if o.store != nil {
		o.store.Close()
	}
}

// mayBeBroken reports whether err can come from the state of the client.
// othersSucceed says that other calls with it ended well in the meantime.
//
// A caller that went away says nothing about the client: thousands of cancelled
// requests must not close connections that others use. Nor does a deadline while
// other calls succeed: then Spanner is slow, and connecting anew would add to it.
func mayBeBroken(ctx context.Context, err error, othersSucceed bool) bool {
	if err == nil || callerIsGone(ctx) {
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return !othersSucceed
	}
	switch spanner.ErrCode(err) { //nolint:exhaustive // the others are answers of a client that works
	case codes.Unavailable, codes.DeadlineExceeded:
		return !othersSucceed
	case codes.NotFound:
		return strings.Contains(err.Error(), "Session not found")
	default:
		return false
	}
}
