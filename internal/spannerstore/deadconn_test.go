package spannerstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/storetest"
)

// blackHole dials connections that can go dead: they stay open and carry nothing, as
// after a NAT gateway has forgotten them.
type blackHole struct {
	mu    sync.Mutex
	conns []*deadConn
}

func (b *blackHole) option() option.ClientOption {
	return option.WithGRPCDialOption(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.conns = append(b.conns, &deadConn{Conn: conn, closed: make(chan struct{})})
		return b.conns[len(b.conns)-1], nil
	}))
}

// kill makes connection n dead, and returns the number of connections.
func (b *blackHole) kill(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns[n].dead.Store(true)
	return len(b.conns)
}

type deadConn struct {
	net.Conn

	dead   atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (c *deadConn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if c.dead.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *deadConn) Write(data []byte) (int, error) {
	if c.dead.Load() {
		return len(data), nil
	}
	return c.Conn.Write(data)
}

func (c *deadConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// deliverKind makes the call with a number. Six in a row are a fresh payout, a duplicate, a
// conflict, a quarantined message, a read of a movement and a change of an instruction
// that is refused; every second six are redelivered.
func deliverKind(ctx context.Context, t *testing.T, store *spannerstore.Store, n int) error {
	t.Helper()
	var st settle.Settlement
	want := settle.OutcomeApplied
	switch n % 6 {
	case 0:
		st = storetest.NewSettlement(t, fmt.Sprintf(`{"settlement_id":"fresh-%d","account_id":"a","amount_cents":1}`, n))
	case 1:
		st, want = storetest.NewSettlement(t, other), settle.OutcomeDuplicate
	case 2:
		st, want = storetest.NewSettlement(t, strings.Replace(other, ":1}", fmt.Sprintf(":%d}", n), 1)), settle.OutcomeConflict
	case 3:
		_, err := store.Quarantine(ctx, settle.Quarantined{
			Message: settle.Message{Data: fmt.Append(nil, n)}, Refusal: payout.Refusal{Reason: payout.ReasonNotJSON},
		})
		return err
	case 4:
		_, err := store.Movement(ctx, "stl-1")
		return err
	default:
		_, err := store.Change(ctx, "stl-8472", func(transfer.Instruction) (transfer.Change, error) { return transfer.Change{}, transfer.ErrNotDue })
		if errors.Is(err, transfer.ErrNotDue) {
			return nil
		}
		return err
	}
	st.Redelivered = n/6%2 == 1
	result, err := store.Settle(ctx, st)
	if err == nil && result.Outcome != want {
		return fmt.Errorf("outcome %v, want %v", result.Outcome, want)
	}
	return err
}

// One of the client's four connections carries nothing any more. No delivery fails, and
// none takes longer than a calm one and one attempt.
func TestDeadConnectionFailsNoDelivery(t *testing.T) {
	t.Parallel()
	const (
		attempt    = 2 * time.Second
		budget     = 3 * attempt // a third for each attempt
		workers    = 4
		deliveries = 96
	)
	b, hole := newBackend(t), &blackHole{}
	store, err := spannerstore.Open(t.Context(), spannerstore.Config{
		Database: b.database, Emulator: true, AttemptTimeout: attempt, Options: append(emulatortest.Spanner(t).ClientOptions(), hole.option()),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	for _, message := range []string{other, wantsBank} {
		if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, message)); err != nil {
			t.Fatal(err)
		}
	}
	// run makes deliveries and returns the duration of the longest.
	run := func(first int) (longest time.Duration, late int) {
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			next atomic.Int64
		)
		for range workers {
			wg.Go(func() {
				for n := int(next.Add(1)); n <= deliveries && !t.Failed(); n = int(next.Add(1)) {
					ctx, cancel := context.WithTimeout(t.Context(), budget)
					began := time.Now()
					if err := deliverKind(ctx, t, store, first+n); err != nil {
						t.Errorf("delivery %d after %v: %v", n, time.Since(began), err)
					}
					cancel()
					mu.Lock()
					longest = max(longest, time.Since(began))
					if time.Since(began) >= attempt {
						late++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		return longest, late
	}
	calm, _ := run(1000)
	if n := hole.kill(0); n != 4 {
		t.Fatalf("%d connections, want 4", n)
	}
	longest, late := run(2000)
	t.Logf("calm %v, with a dead connection %v; %d of %d deliveries waited for it", calm, longest, late, deliveries)
	if late == 0 {
		t.Error("no delivery used the dead connection")
	}
	if longest > calm+attempt+time.Second {
		t.Errorf("a delivery took %v; a calm one takes %v, an attempt %v", longest, calm, attempt)
	}
}

// The request that creates the client's session gets no answer. The next one takes another
// connection, within the time of the first attempt.
func TestSilentSessionCreationDelaysTheFirstDelivery(t *testing.T) {
	t.Parallel()
	const attempt = 4 * time.Second
	var (
		mu    sync.Mutex
		conns []*grpc.ClientConn
	)
	silent := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if path.Base(method) == "CreateSession" {
			mu.Lock()
			conns = append(conns, cc)
			first := len(conns) == 1
			mu.Unlock()
			if first {
				<-ctx.Done()
				return status.FromContextError(ctx.Err()).Err()
			}
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	b := newBackend(t)
	store, err := spannerstore.Open(t.Context(), spannerstore.Config{
		Database: b.database, Emulator: true, AttemptTimeout: attempt,
		Options: append(emulatortest.Spanner(t).ClientOptions(), option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(silent))),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 3*attempt)
	defer cancel()
	began := time.Now()
	result, err := store.Settle(ctx, storetest.NewSettlement(t, other))
	if took := time.Since(began); err != nil || result.Outcome != settle.OutcomeApplied || took > attempt+time.Second {
		t.Errorf("%v, %v after %v", result.Outcome, err, took)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(conns) < 2 || conns[0] == conns[1] {
		t.Errorf("session created over connections %v, want two different ones", conns)
	}
}
