package ledger_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/spanner"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/fakebank"
	"github.com/settleonce/settleonce/internal/test/roletest"
	"github.com/settleonce/settleonce/schema"
)

// access records the table accesses of the tests' operators.
var access roletest.Access

func TestMain(m *testing.M) {
	// As in package spannerstore: here an abort is not rare.
	spanner.DefaultRetryBackoff.Initial = time.Millisecond
	spanner.DefaultRetryBackoff.Max = 8 * time.Millisecond
	code := m.Run()
	if lacking, err := access.Lacking("../../deploy/database_roles.sql", "settleonce_operator"); err != nil || len(lacking) > 0 {
		fmt.Fprintln(os.Stderr, "deploy/database_roles.sql lacks grants that the operator needs:", lacking, err)
		code = 1
	}
	os.Exit(code)
}

// fixture is a database with the service, a bank on loopback, and an operator with
// clients of its own.
type fixture struct {
	t        *testing.T
	database string
	client   *spanner.Client // for checks
	bank     *fakebank.Bank
	clock    *fakebank.Clock
	stepper  *transfer.Stepper
	service  *settle.Service
	ids      atomic.Int64
	operator *ledger.Operator
	topic    *memoryTopic
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{t: t, database: emulatortest.Database(t, statements), clock: fakebank.NewClock(time.Now().UTC().Truncate(time.Microsecond)), topic: &memoryTopic{}}
	w.client = w.open()
	w.bank = fakebank.New(t, w.clock.Now, fakebank.Options{})
	url, err := w.bank.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	profile := bank.GenericProfile()
	client, err := bank.New(bank.Config{BaseURL: url, Profile: profile, Now: w.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	w.stepper = &transfer.Stepper{
		Store: w.store(), Bank: client, NewID: w.newID, Now: w.clock.Now, Log: slog.New(slog.DiscardHandler),
		Policy: transfer.Policy{
			KeyLifetime: profile.KeyLifetime, VisibilityLag: profile.VisibilityLag,
			SendTimeout: bank.DefaultSendTimeout, StatusTimeout: bank.DefaultStatusTimeout,
		},
	}
	w.service = &settle.Service{Store: w.store(), Banking: w.stepper, DefaultCurrency: "USD", NewID: w.newID, Now: w.clock.Now}
	w.operator = w.newOperator()
	return w
}

func (w *fixture) newID() string {
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", w.ids.Add(1))
}

func (w *fixture) open() *spanner.Client {
	w.t.Helper()
	client, err := spanner.NewClientWithConfig(w.t.Context(), w.database, spanner.ClientConfig{DisableNativeMetrics: true},
		slices.Concat(emulatortest.Spanner(w.t).ClientOptions(), access.Options())...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(client.Close)
	return client
}

func (w *fixture) store() *spannerstore.Store {
	w.t.Helper()
	store, err := spannerstore.Open(w.t.Context(), spannerstore.Config{Database: w.database, Emulator: true, Options: emulatortest.Spanner(w.t).ClientOptions()})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(store.Close)
	return store
}

// newOperator returns an operator with clients of its own.
func (w *fixture) newOperator() *ledger.Operator {
	w.t.Helper()
	store, err := spannerstore.Open(w.t.Context(), spannerstore.Config{
		Database: w.database, Emulator: true, Options: slices.Concat(emulatortest.Spanner(w.t).ClientOptions(), access.Options()),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(store.Close)
	return &ledger.Operator{
		Client: w.open(), Store: store, Bank: w.stepper.Bank, Policy: w.stepper.Policy, Topic: w.topic, NewID: w.newID, Now: w.clock.Now,
	}
}

func (w *fixture) deliver(m settle.Message, want settle.Outcome) settle.Result {
	w.t.Helper()
	result, err := w.service.Deliver(w.t.Context(), settle.Delivery{Message: m})
	if err != nil || result.Outcome != want {
		w.t.Fatalf("deliver %s: %v, %v; want %v", m.Data, result.Outcome, err, want)
	}
	return result
}

func (w *fixture) message(data string) settle.Message {
	return settle.Message{ID: fmt.Sprintf("m-%d", w.ids.Add(1)), Subscription: "projects/p/subscriptions/s", Data: []byte(data)}
}

// step makes a step, which must lead to a state.
func (w *fixture) step(id string, want transfer.State) {
	w.t.Helper()
	if state, err := w.stepper.Step(w.t.Context(), id); err != nil || state != want {
		w.t.Fatalf("step of %s: %q, %v; want %q", id, state, err, want)
	}
}

// snapshot reads and audits the database.
func (w *fixture) snapshot() audit.Snapshot {
	w.t.Helper()
	all, err := audit.Read(w.t.Context(), w.client)
	if err != nil {
		w.t.Fatal(err)
	}
	if found := all.Violations(false); len(found) > 0 {
		w.t.Errorf("violations: %q", found)
	}
	return all
}

// memoryTopic keeps published messages.
type memoryTopic struct {
	mu   sync.Mutex
	kept []*pubsub.Message
	// after is called after each message, before Publish returns; may be nil.
	after func()
	err   error
	// refuses returns Pub/Sub's permanent error for a message; may be nil.
	refuses func(*pubsub.Message) error
}

func (t *memoryTopic) Publish(_ context.Context, m *pubsub.Message) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return "", t.err
	}
	if t.refuses != nil {
		if err := t.refuses(m); err != nil {
			return "", err
		}
	}
	t.kept = append(t.kept, m)
	if t.after != nil {
		t.after()
	}
	return fmt.Sprintf("published-%d", len(t.kept)), nil
}

func wantRefused(t *testing.T, err error, words ...string) {
	t.Helper()
	if refused, is := errors.AsType[*transfer.Refused](err); !is || refused.Why == "" || refused.Do == "" {
		t.Fatalf("error %v, want a refusal", err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("refusal %q without %q", err, word)
		}
	}
}

// keyOf is the primary key of a kept message.
func keyOf(t *testing.T, k ledger.Message) spanner.Key {
	t.Helper()
	raw, err := hex.DecodeString(k.Key)
	if err != nil {
		t.Fatal(err)
	}
	return spanner.Key{raw}
}
