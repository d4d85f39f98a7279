package spannerstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/googleapis/gax-go/v2"
	"github.com/googleapis/gax-go/v2/apierror"
)

// errClosed is the error of calls after Close.
var errClosed = errors.New("the store is closed")

const (
	// sessionResource is the type of the missing resource in the error of a request whose
	// session Spanner has deleted. Such a request did nothing.
	sessionResource = "type.googleapis.com/google.spanner.v1.Session"
	// openTimeout bounds the opening of a client.
	openTimeout = 30 * time.Second
	// maxSessions bounds the clients of one exchange.
	maxSessions = 3
	// closeDelay is the time between replacing a client and closing it, in which its calls
	// in progress end.
	closeDelay = 30 * time.Second
	// calm is the time without a new client after which the back-off begins anew.
	calm = time.Minute
)

// opened returns the client. The first call opens it, and the first one after
// [Store.giveUp]; concurrent calls wait for it. Opening sends no RPC to Spanner, but it can look for credentials.
func (s *Store) opened(ctx context.Context) (*spanner.Client, error) {
	select {
	case opened := <-s.opening.DoChan("", s.openNext):
		client, _ := opened.Val.(*spanner.Client)
		return client, opened.Err
	case <-ctx.Done(): // the opening continues for later calls
		return nil, fmt.Errorf("open spanner database: %w", context.Cause(ctx))
	}
}

// openNext opens a client for all waiting calls. Within a minute after another client it
// waits first, because Spanner may be the cause.
func (s *Store) openNext() (any, error) {
	s.mu.Lock()
	current, closed, recent := s.current, s.closed, s.recent
	if current == nil && !closed {
		s.recent++
		time.AfterFunc(calm, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.recent--
		})
	}
	s.mu.Unlock()
	switch {
	case closed:
		return nil, errClosed
	case current != nil: // opened since the caller looked
		return current, nil
	case recent > 0:
		time.Sleep(s.backoff.Pause())
	default:
		s.backoff = gax.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}
	}
	client, err := s.openInTime()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		client.Close()
		return nil, errClosed
	}
	s.current = client
	return client, nil
}

// openInTime opens a client. The search for credentials has no deadline of its own: a
// client that comes late is closed. The client outlives the requests, so it gets no
// request's context.
func (s *Store) openInTime() (*spanner.Client, error) {
	type opened struct {
		client *spanner.Client
		err    error
	}
	done := make(chan opened, 1)
	go func() {
		var result opened
		defer func() {
			if p := recover(); p != nil { // it would end the process
				result.err = fmt.Errorf("open spanner database: panic of type %T", p)
			}
			done <- result
		}()
		result.client, result.err = s.open(context.Background())
	}()
	select {
	case result := <-done:
		return result.client, result.err
	case <-time.After(openTimeout):
		go func() {
			if late := <-done; late.client != nil {
				late.client.Close()
			}
		}()
		return nil, fmt.Errorf("open spanner database: not open within %v", openTimeout)
	}
}

// giveUp makes the next call open another client.
func (s *Store) giveUp(client *spanner.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == client {
		s.current = nil
		time.AfterFunc(closeDelay, client.Close)
	}
}

// Close closes the database. Later calls fail.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.current != nil {
		s.current.Close()
		s.current = nil
	}
}

// sessionDeleted reports whether Spanner has deleted the client's session.
func sessionDeleted(err error) bool {
	api, ok := errors.AsType[*apierror.APIError](err)
	return ok && api.Details().ResourceInfo.GetResourceType() == sessionResource
}
