package emulator

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

// start returns a private Spanner emulator, which ends with the test.
func start(t *testing.T, opts ...Option) *Spanner {
	t.Helper()
	s, err := StartSpanner(t.Context(), append([]Option{WithPrivate()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// open returns a client for the database.
func open(t *testing.T, s *Spanner, database string) *spanner.Client {
	t.Helper()
	cfg := spanner.ClientConfig{DisableNativeMetrics: true}
	client, err := spanner.NewClientWithConfig(t.Context(), database, cfg, s.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

var accounts = []string{
	`CREATE TABLE accounts (id STRING(36) NOT NULL, cents INT64 NOT NULL) PRIMARY KEY (id)`,
	`CREATE INDEX accounts_by_cents ON accounts (cents)`,
}

func TestSpanner(t *testing.T) {
	t.Parallel()
	s := start(t)

	t.Run("serves REST", func(t *testing.T) {
		t.Parallel()
		if err := restAnswers(t.Context(), s.REST); err != nil {
			t.Error(err)
		}
		if err := restAnswers(t.Context(), s.REST+"/nowhere"); err == nil || !strings.Contains(err.Error(), http.StatusText(http.StatusNotFound)) {
			t.Errorf("restAnswers = %v, want Not Found", err)
		}
	})
	t.Run("creates a named database once", func(t *testing.T) {
		t.Parallel()
		const name = "projects/p1/instances/one/databases/only-one"
		got, err := s.CreateDatabase(t.Context(), name, accounts)
		if err != nil || got != name {
			t.Fatalf("CreateDatabase = %q, %v", got, err)
		}
		if _, err := s.CreateDatabase(t.Context(), name, nil); err == nil || !strings.Contains(err.Error(), "drop it or take another name") {
			t.Errorf("second CreateDatabase = %v, want that it exists", err)
		}
		for range 2 { // the second drops an absent one
			if err := s.DropDatabase(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.CreateDatabase(t.Context(), name, nil); err != nil {
			t.Errorf("CreateDatabase after DropDatabase = %v", err)
		}
	})
	t.Run("creates databases concurrently in a new instance", func(t *testing.T) {
		t.Parallel()
		var wg sync.WaitGroup
		for _, id := range []string{"aa", "bb", "cc", "dd", "ee", "ff", "gg", "hh"} {
			wg.Go(func() {
				if _, err := s.CreateDatabase(t.Context(), "projects/p2/instances/fresh/databases/"+id, accounts); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
	t.Run("rejects a wrong name and wrong DDL", func(t *testing.T) {
		t.Parallel()
		if _, err := s.CreateDatabase(t.Context(), "db", nil); err == nil || !strings.Contains(err.Error(), "projects/P/instances/I/databases/D") {
			t.Errorf("CreateDatabase = %v, want the form of a name", err)
		}
		for _, id := range []string{"D", strings.Repeat("d", 31)} {
			if _, err := s.CreateDatabase(t.Context(), "projects/p/instances/ii/databases/"+id, nil); err == nil {
				t.Errorf("CreateDatabase with ID %s = nil error", id)
			}
		}
		if _, err := s.CreateDatabase(t.Context(), "", []string{"CREATE TABLE"}); spanner.ErrCode(err) != codes.InvalidArgument {
			t.Errorf("CreateDatabase with wrong DDL = %v, want INVALID_ARGUMENT", err)
		}
	})
}

func TestSpannerConcurrentStarts(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	got := make([]*Spanner, 2)
	for i := range got {
		wg.Go(func() {
			s, err := StartSpanner(t.Context(), WithPrivate())
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = s
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	const name = "projects/p3/instances/same/databases/same"
	for _, s := range got {
		// The same name in both: they share no state.
		if _, err := s.CreateDatabase(t.Context(), name, nil); err != nil {
			t.Error(err)
		}
	}
	if err := got[0].Close(); err != nil {
		t.Error(err)
	}
	if err := spannerAnswers(t.Context(), got[1].hosts); err != nil {
		t.Errorf("second emulator after Close of the first: %v", err)
	}
	if err := got[1].Close(); err != nil {
		t.Error(err)
	}
}

func TestSpannerFromEnvironment(t *testing.T) {
	running := start(t)
	t.Setenv(spannerKind.hostEnv, running.GRPC)
	s, err := StartSpanner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := []string{s.GRPC, s.REST, s.Source}
	if diff := cmp.Diff([]string{running.GRPC, "", "SPANNER_EMULATOR_HOST"}, got); diff != "" {
		t.Errorf("GRPC, REST, Source (-want +got):\n%s", diff)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s.Done() != nil || s.Err() != nil {
		t.Errorf("Done, Err = %v, %v, want nil, nil", s.Done(), s.Err())
	}
	if err := spannerAnswers(t.Context(), running.hosts); err != nil {
		t.Errorf("after Close of the running one: %v", err)
	}
	t.Run("private", func(t *testing.T) {
		if s := start(t); s.GRPC == running.GRPC {
			t.Error("StartSpanner took the running one")
		}
	})
	t.Run("client options take precedence", func(t *testing.T) {
		t.Setenv(spannerKind.hostEnv, "127.0.0.1:1")
		database, err := running.CreateDatabase(t.Context(), "", accounts)
		if err != nil {
			t.Fatal(err)
		}
		rows := open(t, running, database).Single().Query(t.Context(), spanner.NewStatement("SELECT COUNT(*) FROM accounts"))
		if err := rows.Do(func(*spanner.Row) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

func TestInvalidAddressesFromEnvironmentAreRejected(t *testing.T) {
	t.Setenv(spannerKind.hostEnv, "http://127.0.0.1:9010")
	t.Setenv(pubsubKind.hostEnv, "127.0.0.1:8085\n")
	if _, err := StartSpanner(t.Context()); err == nil || !strings.Contains(err.Error(), "SPANNER_EMULATOR_HOST") || !strings.Contains(err.Error(), "remove the scheme http://") {
		t.Errorf("StartSpanner = %v, want the variable and its scheme", err)
	}
	if _, err := StartPubSub(t.Context()); err == nil || !strings.Contains(err.Error(), "PUBSUB_EMULATOR_HOST has the character U+000A") {
		t.Errorf("StartPubSub = %v, want the variable and its line break", err)
	}
}

func TestSpannerFromEnvironmentDoesNotAnswer(t *testing.T) {
	t.Setenv(spannerKind.hostEnv, "127.0.0.1:1")
	ctx, cancel := context.WithTimeout(t.Context(), 5*pollEvery)
	defer cancel()
	_, err := StartSpanner(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "start it, or unset SPANNER_EMULATOR_HOST") {
		t.Errorf("StartSpanner = %v, want the remedy", err)
	}
}

func TestSpannerEndsByItself(t *testing.T) {
	t.Parallel()
	s := start(t)
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	// The inner process of the two, as the kernel does when memory runs out.
	if err := syscall.Kill(memberOf(t, s.pgid, "emulator_main"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "run spanner emulator: emulator ended") {
		t.Errorf("Err = %v, want the end", err)
	}
	await(t, func(ctx context.Context) error { return groupGone(ctx, s.pgid) })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestSpannerRestartKeepsAddress(t *testing.T) {
	t.Parallel()
	s := start(t)
	port := s.ports[0]
	if _, err := StartSpanner(t.Context(), WithPort(port)); err == nil {
		t.Fatal("a second emulator started on a port in use")
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := spannerAnswers(t.Context(), s.hosts); err == nil {
			t.Fatal("the emulator answers after Close")
		}
		again := start(t, WithPort(port))
		if again.GRPC != s.GRPC {
			t.Errorf("back at %s, want %s", again.GRPC, s.GRPC)
		}
		s = again
	}
}

func TestSpannerFaultInjection(t *testing.T) {
	t.Parallel()
	s := start(t, WithFaultInjection())
	database, err := s.CreateDatabase(t.Context(), "", accounts)
	if err != nil {
		t.Fatal(err)
	}
	client := open(t, s, database)
	// The emulator aborts at random: commit until it does.
	var commits, runs int
	for runs == commits {
		commits++
		_, err := client.ReadWriteTransaction(t.Context(), func(_ context.Context, txn *spanner.ReadWriteTransaction) error {
			runs++
			return txn.BufferWrite([]*spanner.Mutation{
				spanner.InsertOrUpdate("accounts", []string{"id", "cents"}, []any{"reserve-claims", commits}),
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("aborted commit %d", commits)
}
