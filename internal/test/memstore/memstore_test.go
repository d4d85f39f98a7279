package memstore_test

import (
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/test/memstore"
	"github.com/settleonce/settleonce/internal/test/storetest"
)

type backend struct{ store *memstore.Store }

func (b backend) Open(*testing.T) storetest.Store       { return b.store }
func (b backend) Snapshot(*testing.T) audit.Snapshot    { return b.store.Snapshot() }
func (b backend) DeleteReceipt(_ *testing.T, id string) { b.store.DeleteReceipt(id) }
func newBackend(*testing.T) storetest.Backend           { return backend{memstore.New(time.Now)} }
func TestConformance(t *testing.T)                      { storetest.Run(t, newBackend) }
