package spannerstore_test

import (
	"crypto/sha256"
	"slices"
	"testing"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/storetest"
	"github.com/settleonce/settleonce/schema"
)

// backend is a new database in the emulator.
type backend struct {
	database string
	client   *spanner.Client // for reads of the tests
}

func newBackend(t *testing.T) backend {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	name := emulatortest.Database(t, statements)
	client, err := spanner.NewClientWithConfig(t.Context(), name,
		spanner.ClientConfig{DisableNativeMetrics: true}, emulatortest.Spanner(t).ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return backend{name, client}
}

// open returns a store with its own client.
func (b backend) open(t *testing.T, options ...option.ClientOption) *spannerstore.Store {
	t.Helper()
	store, err := spannerstore.Open(t.Context(), spannerstore.Config{
		Database: b.database, Emulator: true, Options: slices.Concat(emulatortest.Spanner(t).ClientOptions(), access.Options(), options),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func (b backend) Open(t *testing.T) storetest.Store { return b.open(t) }

func (b backend) Snapshot(t *testing.T) audit.Snapshot {
	t.Helper()
	all, err := audit.Read(t.Context(), b.client)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (b backend) DeleteReceipt(t *testing.T, settlementID string) {
	t.Helper()
	key := sha256.Sum256([]byte(settlementID))
	row := spanner.Delete("settlement_receipts", spanner.Key{key[:]})
	if _, err := b.client.Apply(t.Context(), []*spanner.Mutation{row}); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Backend { return newBackend(t) })
}
