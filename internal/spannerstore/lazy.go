package spannerstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/settleonce/settleonce/internal/settle"
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
	cfg Config

	mu      sync.Mutex
	current *opened // nil: open in the next call
	closed  bool
}

var _ settle.Store = (*Lazy)(nil)

// NewLazy returns a store that will open the database of cfg.
func NewLazy(cfg Config) *Lazy { return &Lazy{cfg: cfg} }

// errClosed is what a call gets after Close.
var errClosed = errors.New("the store is closed")

// opened is an open store with the calls that use it. It is closed when it has
// been given up and the last of them has ended.
type opened struct {
	store   *Store
	users   int
	givenUp bool
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

// Close closes the database once the calls that use it have ended, and fails
// all later ones.
func (l *Lazy) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.giveUp(l.current)
}

func (l *Lazy) use(ctx context.Context, call func(*Store) error) error {
	o, err := l.acquire(ctx)
	if err != nil {
		return err
	}
	err = call(o.store)
	l.release(o, clientMayBeBroken(ctx, err))
	return err
}

func (l *Lazy) acquire(ctx context.Context) (*opened, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if l.current == nil {
		// The client outlives the request that happens to open it.
		store, err := Open(context.WithoutCancel(ctx), l.cfg)
		if err != nil {
			return nil, err
		}
		l.current = &opened{store: store}
	}
	l.current.users++
	return l.current, nil
}

func (l *Lazy) release(o *opened, broken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o.users--
	if broken || o.givenUp {
		l.giveUp(o)
	}
}

// giveUp lets o serve no further call, and closes it after its last.
func (l *Lazy) giveUp(o *opened) {
	if o == nil {
		return
	}
	o.givenUp = true
	if l.current == o {
		l.current = nil
	}
	if o.users == 0 {
		// Closing waits for the network, and nobody has to wait for it.
		go o.store.Close()
	}
}

// clientMayBeBroken reports whether err can come from the state of the client. A
// caller that went away says nothing about the client: thousands of cancelled
// requests must not close connections that others use.
func clientMayBeBroken(ctx context.Context, err error) bool {
	if err == nil || callerIsGone(ctx) {
		return false
	}
	return errors.Is(err, settle.ErrOutcomeUnknown) || spanner.ErrCode(err) == codes.NotFound || spanner.ErrCode(err) == codes.Unavailable
}
