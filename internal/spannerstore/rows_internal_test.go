package spannerstore

import (
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// usualSettlement is a payout without metadata and without a bank.
func usualSettlement(tb testing.TB) settle.Settlement {
	tb.Helper()
	message := []byte(`{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731,"currency":"EUR","reference":"claim 19-4431"}`)
	p, err := payout.Decode(message, "")
	if err != nil {
		tb.Fatal(err)
	}
	return settle.Settlement{
		Payout: p, Hash: p.Hash(), DeliveryID: "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
		Message: settle.Message{ID: "1002", PublishTime: time.Unix(1, 0), Data: message},
	}
}

func TestSettlementRowsAllocations(t *testing.T) {
	const most = 24
	st := usualSettlement(t)
	allocations := testing.AllocsPerRun(100, func() {
		if _, err := settlementRows(st); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > most {
		t.Errorf("%v allocations, want at most %d", allocations, most)
	}
}

func BenchmarkSettlementRows(b *testing.B) {
	st := usualSettlement(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := settlementRows(st); err != nil {
			b.Fatal(err)
		}
	}
}
