package contender

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

// servers starts PostgreSQL once for all tests.
type servers struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

var shared servers

func TestMain(m *testing.M) {
	m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Close(); err != nil {
			panic(err)
		}
	}
}

// place returns an empty database with the contender's tables.
func (s *servers) place(t *testing.T, c Contender) (p Place, installed bool) {
	t.Helper()
	statements, err := c.Statements()
	if err != nil {
		t.Fatal(err)
	}
	p = Place{Now: time.Now}
	if !c.Postgres {
		p.Database, p.Emulator = emulatortest.Database(t, statements), emulatortest.Spanner(t).GRPC
		return p, true
	}
	s.once.Do(func() { s.cluster, s.err = StartPostgres(context.WithoutCancel(t.Context())) })
	if errors.Is(s.err, ErrNoPostgres) {
		return Place{}, false
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	if p.Database, err = s.cluster.CreateDatabase(t.Context(), statements); err != nil {
		t.Fatal(err)
	}
	return p, true
}

// open opens a contender's client with an empty database; nil if its server is not
// installed.
func (s *servers) open(t *testing.T, c Contender) Settler {
	t.Helper()
	p, installed := s.place(t, c)
	if !installed {
		t.Logf("left out: %v", ErrNoPostgres)
		return nil
	}
	client, err := c.Open(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// eachContender runs test for every contender that can be measured here, with an empty
// database.
func eachContender(t *testing.T, test func(t *testing.T, s Settler)) {
	t.Helper()
	for _, c := range All() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if s := shared.open(t, c); s != nil {
				test(t, s)
			}
		})
	}
}

// Without faults all contenders return the same outcomes and book the same movements.
func TestContendersAgree(t *testing.T) {
	t.Parallel()
	eachContender(t, func(t *testing.T, s Settler) {
		for i, delivery := range []struct {
			message settle.Delivery
			want    settle.Outcome
		}{
			{Message(1), settle.OutcomeApplied},
			{Message(1), settle.OutcomeDuplicate},
			{Conflicting(1, 1), settle.OutcomeConflict},
			{Message(2), settle.OutcomeApplied},
			{Conflicting(1, 1), settle.OutcomeConflict},
			{Message(1), settle.OutcomeDuplicate},
			{Conflicting(3, 1), settle.OutcomeApplied},
			{Message(3), settle.OutcomeConflict},
		} {
			if got, err := s.Settle(t.Context(), delivery.message); err != nil || got != delivery.want {
				t.Errorf("delivery %d: %v, %v, want %v", i, got, err, delivery.want)
			}
		}
		wantOnce(t, s, 1, 2, 3)
	})
}

func wantOnce(t *testing.T, s Settler, numbers ...int) {
	t.Helper()
	movements, err := s.Movements(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(movements) != len(numbers) {
		t.Errorf("movements of %d settlements, want %d", len(movements), len(numbers))
	}
	for _, n := range numbers {
		if got := movements[SettlementID(n)]; got != 1 {
			t.Errorf("%d movements of %s, want 1", got, SettlementID(n))
		}
	}
}

func TestLoadsSettledPayouts(t *testing.T) {
	t.Parallel()
	eachContender(t, func(t *testing.T, s Settler) {
		const n = loadBatch + 3
		if err := Load(t.Context(), s, n); err != nil {
			t.Fatal(err)
		}
		var numbers []int
		for i := range n {
			numbers = append(numbers, i)
		}
		wantOnce(t, s, numbers...)
		if got, err := s.Settle(t.Context(), Message(n-1)); err != nil || got != settle.OutcomeDuplicate {
			t.Errorf("a loaded settlement: %v, %v", got, err)
		}
	})
}

// A contender may only reject a concurrent delivery with ErrInProgress.
func TestAppliesConcurrentDeliveriesOnce(t *testing.T) {
	t.Parallel()
	const atOnce = 8
	eachContender(t, func(t *testing.T, s Settler) {
		for n := range 3 {
			var (
				wg      sync.WaitGroup
				mu      sync.Mutex
				applied int
			)
			for range atOnce {
				wg.Go(func() {
					outcome, err := s.Settle(t.Context(), Message(n))
					if err != nil && !errors.Is(err, ErrInProgress) {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if outcome == settle.OutcomeApplied {
						applied++
					}
				})
			}
			wg.Wait()
			if applied != 1 {
				t.Errorf("settlement %d applied %d times", n, applied)
			}
		}
		wantOnce(t, s, 0, 1, 2)
	})
}

// After a crash between the effect and the update the record stays in progress. When it
// expires, the pattern runs the effect again.
func TestStoreThenEffectRepeatsTheEffect(t *testing.T) {
	t.Parallel()
	c := storeThenEffect()
	p, _ := shared.place(t, c)
	now := time.Now()
	p.Now = func() time.Time { return now }
	db, err := p.open(t.Context(), tables{"movements", completedRows})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := &idempotent{db, p}
	settled, err := decode(Message(1).Message.Data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.putInProgress(t.Context(), settled); err != nil { // this delivery crashes after its effect
		t.Fatal(err)
	}
	if err := s.write(t.Context(), movementRow(settled, uuid.NewString())); err != nil {
		t.Fatal(err)
	}
	s.place.Now = func() time.Time { return now.Add(InProgressExpiry - time.Second) }
	if outcome, err := s.Settle(t.Context(), Message(1)); !errors.Is(err, ErrInProgress) || outcome != settle.OutcomeUnknown {
		t.Errorf("before expiry: %v, %v", outcome, err)
	}
	s.place.Now = func() time.Time { return now.Add(InProgressExpiry) }
	if outcome, err := s.Settle(t.Context(), Message(1)); err != nil || outcome != settle.OutcomeApplied {
		t.Errorf("after expiry: %v, %v", outcome, err)
	}
	movements, err := s.Movements(t.Context())
	if err != nil || movements[SettlementID(1)] != 2 {
		t.Errorf("movements %v, %v, want two", movements, err)
	}
}

func ExampleMessage() {
	fmt.Printf("%s\n", Message(7).Message.Data)
	// Output: {"settlement_id":"stl-000000007","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR","reference":"claim 19-4431"}
}

func TestAddsRetryDelayToAborts(t *testing.T) {
	t.Parallel()
	err := withRetryDelay(status.Error(codes.Aborted, "concurrent transaction"))
	if delay, ok := spanner.ExtractRetryDelay(err); !ok || delay != time.Millisecond || status.Code(err) != codes.Aborted {
		t.Errorf("%v: retry delay %v", err, delay)
	}
	if err := withRetryDelay(io.EOF); !errors.Is(err, io.EOF) {
		t.Errorf("the end of a stream became %v", err)
	}
}
