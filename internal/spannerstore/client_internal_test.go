package spannerstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"cloud.google.com/go/spanner"
)

// use acquires the client and releases it.
func (s *Store) use(ctx context.Context) error {
	_, release, err := s.acquire(ctx)
	release(err)
	return err
}

func TestNextCallRetriesOpen(t *testing.T) {
	t.Parallel()
	failed, attempts := errors.New("no credentials"), 0
	store := &Store{open: func(context.Context) (*spanner.Client, error) {
		attempts++
		if attempts == 1 {
			return nil, failed
		}
		return new(spanner.Client), nil
	}}
	if err := store.use(t.Context()); !errors.Is(err, failed) {
		t.Errorf("error %v, want that of open", err)
	}
	if err := store.use(t.Context()); err != nil || attempts != 2 {
		t.Errorf("%v after %d attempts", err, attempts)
	}
}

func TestOpenReturnsWhenTheCallersContextEnds(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	defer close(hang)
	store := &Store{open: func(context.Context) (*spanner.Client, error) { <-hang; return nil, errors.New("late") }}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.use(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}

func TestTimedOutCallersShareOneOpen(t *testing.T) {
	t.Parallel()
	goOn, attempts := make(chan struct{}), 0
	store := &Store{open: func(context.Context) (*spanner.Client, error) { attempts++; <-goOn; return new(spanner.Client), nil }}
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		if err := store.use(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the context's", err)
		}
		cancel()
	}
	close(goOn)
	if err := store.use(t.Context()); err != nil || attempts != 1 {
		t.Errorf("%v after %d attempts", err, attempts)
	}
}

// The race detector reports an acquire that reads the client while it is being opened.
func TestCancelledAcquireDoesNotReadTheClient(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		store := &Store{open: func(context.Context) (*spanner.Client, error) { return new(spanner.Client), nil }}
		client, release, err := store.acquire(cancelled)
		release(err)
		if (client == nil) != (err != nil) {
			t.Errorf("client %p, error %v", client, err)
		}
		if err := store.use(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRecoversAPanic(t *testing.T) {
	t.Parallel()
	store := &Store{open: func(context.Context) (*spanner.Client, error) { panic("S3CRET") }}
	if err := store.use(t.Context()); err == nil || strings.Contains(err.Error(), "S3CRET") {
		t.Errorf("error %v", err)
	}
}

func TestReleaseAfterAPanic(t *testing.T) {
	t.Parallel()
	store := &Store{open: func(context.Context) (*spanner.Client, error) { return new(spanner.Client), nil }}
	func() {
		defer func() { _ = recover() }()
		client, release, err := store.acquire(t.Context())
		defer func() { release(err) }()
		panic(client)
	}()
	if store.current.users != 0 {
		t.Errorf("%d users, want 0", store.current.users)
	}
}
