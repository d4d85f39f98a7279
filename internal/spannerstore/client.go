package spannerstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
)

// errClosed is the error of calls after Close.
var errClosed = errors.New("the store is closed")

// openTimeout bounds the opening of a client. Opening sends no RPC to Spanner, but it
// can look for credentials.
const openTimeout = 30 * time.Second

// openedClient is a client that is open or opening, with the number of its calls in
// progress. After giveUp it is closed at the end of its last call.
type openedClient struct {
	ready  chan struct{} // closed when client or err is set
	client *spanner.Client
	err    error

	// Guarded by Store.mu.
	users     int
	succeeded int // calls without an error
	givenUp   bool
}

// open opens the client without holding a lock. Each caller waits under its own deadline.
func (o *openedClient) open(ctx context.Context, open func(context.Context) (*spanner.Client, error)) {
	defer close(o.ready)
	done := make(chan *openedClient, 1)
	go func() { done <- tryOpen(ctx, open) }()
	select {
	case result := <-done:
		o.client, o.err = result.client, result.err
	case <-time.After(openTimeout):
		o.err = fmt.Errorf("open spanner database: not open within %v", openTimeout)
		go func() {
			if late := <-done; late.client != nil {
				late.client.Close()
			}
		}()
	}
}

func tryOpen(ctx context.Context, open func(context.Context) (*spanner.Client, error)) (result *openedClient) {
	result = &openedClient{}
	defer func() {
		if p := recover(); p != nil {
			result.err = fmt.Errorf("open spanner database: panic of type %T", p)
		}
	}()
	result.client, result.err = open(ctx)
	return result
}

// isReady reports whether open has ended, also with an error.
func (o *openedClient) isReady() bool {
	select {
	case <-o.ready:
		return true
	default:
		return false
	}
}

// ended gives the client up after a call with an error that it can have caused, or after
// the last call of a client that was given up. before is o.succeeded at the beginning of
// the call. The caller holds mu.
func (s *Store) ended(ctx context.Context, o *openedClient, before int, err error) {
	switch {
	case o.givenUp:
		s.giveUp(o)
	case !o.isReady(): // the caller's deadline has passed; open continues
	case o.err != nil || mayBeBroken(ctx, err, o.succeeded > before):
		s.giveUp(o)
	}
}

// giveUp removes o from the store and closes it after its last call.
func (s *Store) giveUp(o *openedClient) {
	o.givenUp = true
	if s.current == o {
		s.current = nil
	}
	if o.users == 0 {
		go func() { // closing waits for the network
			<-o.ready
			if o.client != nil {
				o.client.Close()
			}
		}()
	}
}

// mayBeBroken reports whether the client's state can have caused err. othersSucceed means
// that other calls succeeded during this one.
//
// A cancelled caller is no sign of a broken client: cancelled requests must not close a
// connection in use. A deadline beside successful calls is none either: then Spanner is
// slow, and a new connection would add to its load.
func mayBeBroken(ctx context.Context, err error, othersSucceed bool) bool {
	if err == nil || callerIsGone(ctx) {
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return !othersSucceed
	}
	switch spanner.ErrCode(err) { //nolint:exhaustive // the other codes are answers of Spanner
	case codes.Unavailable, codes.DeadlineExceeded:
		return !othersSucceed
	case codes.NotFound:
		return strings.Contains(err.Error(), "Session not found")
	default:
		return false
	}
}
