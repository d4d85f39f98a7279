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

// openedClient is a client that is open, or being opened, with the number of calls
// that use it. It is closed when it was given up and its last call has ended.
type openedClient struct {
	ready  chan struct{} // closed when client or err is set
	client *spanner.Client
	err    error

	// Guarded by Store.mu.
	users     int
	succeeded int // calls that ended well
	givenUp   bool
}

// open opens the client, without a lock. Every caller waits under its own deadline.
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

// isReady reports whether opening has ended, successfully or not.
func (o *openedClient) isReady() bool {
	select {
	case <-o.ready:
		return true
	default:
		return false
	}
}

// ended gives the client up where the end of a call asks for it: one that failed with
// err, or the last one of a client that was given up. before is the number of calls that
// had succeeded when it began. The caller holds mu.
func (s *Store) ended(ctx context.Context, o *openedClient, before int, err error) {
	switch {
	case o.givenUp:
		s.giveUp(o)
	case !o.isReady(): // a caller that ran out of time proves nothing about the opening
	case o.err != nil || mayBeBroken(ctx, err, o.succeeded > before):
		s.giveUp(o)
	}
}

// giveUp lets o serve no further call, and closes it after its last.
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

// mayBeBroken reports whether err can come from the state of the client. othersSucceed
// says that other calls with it ended well in the meantime.
//
// A cancelled caller proves nothing: thousands of cancelled requests must not close
// connections that others use. Nor does a deadline while other calls succeed: then
// Spanner is slow, and a new connection would add to its load.
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
