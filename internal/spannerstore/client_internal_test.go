package spannerstore

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/googleapis/gax-go/v2/apierror"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// newStore returns a store that opens clients by open.
func newStore(open func() (*spanner.Client, error)) *Store {
	return &Store{attemptTimeout: MaxAttemptTimeout, open: func(context.Context) (*spanner.Client, error) { return open() }}
}

// use exchanges nothing.
func (s *Store) use(ctx context.Context) error {
	return s.exchange(ctx, s.attemptTimeout, func(context.Context, *spanner.Client) error { return nil })
}

func TestNextCallRetriesOpen(t *testing.T) {
	t.Parallel()
	failed, attempts := errors.New("no credentials"), 0
	store := newStore(func() (*spanner.Client, error) {
		attempts++
		if attempts == 1 {
			return nil, failed
		}
		return new(spanner.Client), nil
	})
	if err := store.use(t.Context()); !errors.Is(err, failed) {
		t.Errorf("error %v, want that of open", err)
	}
	if err := store.use(t.Context()); err != nil || attempts != 2 {
		t.Errorf("%v after %d attempts", err, attempts)
	}
}

func TestTimedOutCallersShareOneOpen(t *testing.T) {
	t.Parallel()
	goOn, attempts := make(chan struct{}), 0
	store := newStore(func() (*spanner.Client, error) { attempts++; <-goOn; return new(spanner.Client), nil })
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

// The search for credentials hangs. Later calls open another client.
func TestHangingOpenEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int32
		hang := make(chan struct{})
		store := newStore(func() (*spanner.Client, error) {
			if attempts.Add(1) == 1 {
				<-hang
				return nil, errors.New("late")
			}
			return new(spanner.Client), nil
		})
		began := time.Now()
		if err := store.use(t.Context()); err == nil || time.Since(began) != openTimeout {
			t.Errorf("error %v after %v, want one after %v", err, time.Since(began), openTimeout)
		}
		if err := store.use(t.Context()); err != nil || attempts.Load() != 2 {
			t.Errorf("%v after %d attempts", err, attempts.Load())
		}
		close(hang)
	})
}

func TestOpenRecoversAPanic(t *testing.T) {
	t.Parallel()
	store := newStore(func() (*spanner.Client, error) { panic("S3CRET") })
	if err := store.use(t.Context()); err == nil || strings.Contains(err.Error(), "S3CRET") {
		t.Errorf("error %v", err)
	}
}

func errSessionDeleted(t *testing.T) error {
	t.Helper()
	answer, err := status.New(codes.NotFound, "any text").WithDetails(&errdetails.ResourceInfo{ResourceType: sessionResource})
	if err != nil {
		t.Fatal(err)
	}
	wrapped, ok := apierror.FromError(answer.Err())
	if !ok {
		t.Fatal("no API error")
	}
	return wrapped
}

// A database that loses every session must not be asked for new ones all the time.
func TestReopeningBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		store := newStore(func() (*spanner.Client, error) { opened++; return new(spanner.Client), nil })
		for began := time.Now(); time.Since(began) < 2*time.Minute; {
			if err := store.use(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // of the bubble's time
			store.current = nil          // as giveUp does
		}
		if opened < 20 || opened > 200 {
			t.Errorf("%d clients in two minutes", opened)
		}
	})
}

// An exchange that Spanner refused for the session did nothing, so it runs again.
func TestExchangeRunsAgainWithAnotherSession(t *testing.T) {
	t.Parallel()
	deleted := errSessionDeleted(t)
	store := newStore(func() (*spanner.Client, error) {
		return spanner.NewClientWithConfig(t.Context(), "projects/p/instances/i/databases/d", spanner.ClientConfig{DisableNativeMetrics: true},
			option.WithoutAuthentication(), option.WithEndpoint("127.0.0.1:1"), // connects to nothing
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	})
	t.Cleanup(store.Close)
	var used []*spanner.Client
	err := store.exchange(t.Context(), store.attemptTimeout, func(_ context.Context, client *spanner.Client) error {
		used = append(used, client)
		if len(used) == 1 {
			return deleted
		}
		return nil
	})
	if err != nil || len(used) != 2 || used[0] == used[1] {
		t.Errorf("%v after %d exchanges", err, len(used))
	}
}

// Only the attempt's own limit says something about a connection. A caller that leaves
// says nothing.
func TestOnlyATimedOutAttemptSuspectsItsConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fail    func(attempt context.Context, leave func())
		suspect bool
	}{
		"attempt timed out": {func(attempt context.Context, _ func()) { <-attempt.Done() }, true},
		"caller left":       {func(_ context.Context, leave func()) { leave() }, false},
		"any error":         {func(context.Context, func()) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newStore(func() (*spanner.Client, error) { return new(spanner.Client), nil })
				p, r := newPool(), &route{}
				conn, failed := new(grpc.ClientConn), errors.New("no answer")
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				err := store.exchange(ctx, store.attemptTimeout, func(attempt context.Context, _ *spanner.Client) error {
					defer p.end(attempt, r, p.begin(r, conn, false))
					test.fail(attempt, leave)
					return failed
				})
				suspect := func() bool {
					p.mu.Lock()
					defer p.mu.Unlock()
					return p.suspects[conn]
				}
				if !errors.Is(err, failed) || (len(r.avoided) == 1) != test.suspect || suspect() != test.suspect {
					t.Errorf("error %v, avoided %v, suspect %t", err, r.avoided, suspect())
				}
				time.Sleep(suspicion + time.Second) // of the bubble's time
				if suspect() {
					t.Error("the connection is suspect for ever")
				}
			})
		})
	}
}

// The requests that avoid a suspect take the others in turn.
func TestRequestsTakeHealthyConnectionsInTurn(t *testing.T) {
	t.Parallel()
	p := newPool()
	conns := []*grpc.ClientConn{new(grpc.ClientConn), new(grpc.ClientConn), new(grpc.ClientConn)}
	for _, conn := range conns {
		p.begin(&route{}, conn, false)
	}
	p.suspects[conns[0]] = true
	taken := map[*grpc.ClientConn]int{}
	for range 10 {
		taken[p.begin(&route{}, conns[0], false)]++
	}
	if taken[conns[1]] != 5 || taken[conns[2]] != 5 {
		t.Errorf("requests by connection: %v", taken)
	}
	p.suspects[conns[1]], p.suspects[conns[2]] = true, true
	if got := p.begin(&route{}, conns[0], false); got != conns[0] {
		t.Error("the choice is not taken although all are suspect")
	}
	if got := p.begin(&route{avoided: conns[:1]}, conns[0], false); got == conns[0] {
		t.Error("the call takes a connection on which it timed out")
	}
}
