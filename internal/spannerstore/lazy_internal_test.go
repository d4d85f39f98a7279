package spannerstore

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestLazyOpensAgainAfterOpeningFailed(t *testing.T) {
	t.Parallel()
	failed, attempts := errors.New("no credentials"), 0
	lazy := &Lazy{open: func(context.Context) (*Store, error) {
		attempts++
		if attempts == 1 {
			return nil, failed
		}
		return &Store{}, nil
	}}
	nothing := func(*Store) error { return nil }
	if err := lazy.use(t.Context(), nothing); !errors.Is(err, failed) {
		t.Errorf("error %v, want the reason", err)
	}
	if err := lazy.use(t.Context(), nothing); err != nil || attempts != 2 {
		t.Errorf("%v after %d attempts", err, attempts)
	}
}

func TestLazyOpensWithoutHoldingUpItsCallers(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	defer close(hang)
	lazy := &Lazy{open: func(context.Context) (*Store, error) { <-hang; return nil, errors.New("late") }}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lazy.use(ctx, func(*Store) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the caller's own", err)
	}
}

// TestLazyOpensOnceForCallersWithoutTime: opening takes longer than its callers
// have, and is not begun anew for each of them.
func TestLazyOpensOnceForCallersWithoutTime(t *testing.T) {
	t.Parallel()
	goOn, attempts := make(chan struct{}), 0
	lazy := &Lazy{open: func(context.Context) (*Store, error) { attempts++; <-goOn; return &Store{}, nil }}
	nothing := func(*Store) error { return nil }
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		if err := lazy.use(ctx, nothing); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the caller's own", err)
		}
		cancel()
	}
	close(goOn)
	if err := lazy.use(t.Context(), nothing); err != nil || attempts != 1 {
		t.Errorf("%v after %d attempts", err, attempts)
	}
}

func TestLazyOutlivesAPanicOfOpening(t *testing.T) {
	t.Parallel()
	lazy := &Lazy{open: func(context.Context) (*Store, error) { panic("S3CRET") }}
	if err := lazy.use(t.Context(), func(*Store) error { return nil }); err == nil || strings.Contains(err.Error(), "S3CRET") {
		t.Errorf("error %v", err)
	}
}

func TestLazyForgetsACallThatPanics(t *testing.T) {
	t.Parallel()
	lazy := &Lazy{open: func(context.Context) (*Store, error) { return &Store{}, nil }}
	func() {
		defer func() { _ = recover() }()
		_ = lazy.use(t.Context(), func(*Store) error { panic("broken") })
	}()
	if lazy.current.users != 0 {
		t.Errorf("%d users are left", lazy.current.users)
	}
}
