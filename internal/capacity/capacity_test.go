package capacity

import (
	"math"
	"testing"

	"cloud.google.com/go/spanner/spansql"

	"github.com/settleonce/settleonce/schema"
)

func value(t *testing.T, figures []Figure, name string) float64 {
	t.Helper()
	for _, f := range figures {
		if f.Name == name {
			return f.Values[0]
		}
	}
	t.Fatalf("no figure %q", name)
	return 0
}

// TestEstimateByHand compares with figures calculated on paper.
func TestEstimateByHand(t *testing.T) {
	t.Parallel()
	noBank := Default()
	noBank.BankShare = 0
	tests := []struct {
		name string
		load Load
		rate float64
		want float64
	}{
		{"Spanner: commits a second", noBank, 10000, 10000},
		// 10000 / 2275 = 4.396 nodes.
		{"Spanner: processing units, at least", noBank, 10000, 5000},
		// 20000 / 2275 = 8.79 nodes.
		{"Spanner: processing units, at most", noBank, 10000, 9000},
		// 1 + 0.2 × 23 = 5.6.
		{"Spanner: commits a second", Default(), 10000, 56000},
		// 56000 / 2275 = 24.6 nodes.
		{"Spanner: processing units, at least", Default(), 10000, 25000},
		// 2 + 0.2 × 65 = 15.
		{"Spanner: rows written a second", Default(), 10000, 150000},
		{"Spanner: processing units, at least", noBank, 100, 100},
		{"Spanner: processing units, at least", noBank, 300, 200},
		// 2.592e6 s × 313 B × 10000 = 8.11 TB.
		{"Spanner: TB a month, for ever", noBank, 10000, 8.11296},
		// 86400 s × 103 days × 411 B × 10000 = 36.57 TB.
		{"Spanner: TB of receipts, once full", noBank, 10000, 36.575712},
		// 2.592e6 s × 2 kB × 10000 = 51.84 TB.
		{"Pub/Sub: TB a month, published and pushed", noBank, 10000, 51.84},
		// 15 ms × 10000 = 150; and 2 ms × 10000 / 0.6 = 33.3 instances.
		{"SettlePayout: deliveries at a time", noBank, 10000, 150},
		{"SettlePayout: instances of 1 vCPU", noBank, 10000, 34},
		{"ReconcileBank: questions a second", Default(), 10000, 22000},
		// 22000 × 0.36 / 2 = 3960.
		{"ReconcileBank: BANK_CONCURRENCY", Default(), 10000, 3960},
		{"ReconcileBank: BANK_CONCURRENCY", noBank, 10000, 0},
	}
	for _, tt := range tests {
		got := value(t, Estimate(tt.load, []float64{tt.rate}), tt.name)
		if math.Abs(got-tt.want) > 1e-6*tt.want {
			t.Errorf("%s at %g with bank share %g: %g, want %g", tt.name, tt.rate, tt.load.BankShare, got, tt.want)
		}
	}
}

func TestSizesNameEveryColumn(t *testing.T) {
	t.Parallel()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for _, text := range statements {
		ddl, err := spansql.ParseDDL("schema", text)
		if err != nil {
			t.Fatal(err)
		}
		table, isTable := ddl.List[0].(*spansql.CreateTable)
		if !isTable || sizes[string(table.Name)] == nil {
			continue
		}
		tables++
		known := sizes[string(table.Name)]
		if len(known) != len(table.Columns) {
			t.Errorf("%s has %d columns, sizes %d", table.Name, len(table.Columns), len(known))
		}
		for _, column := range table.Columns {
			if _, ok := known[string(column.Name)]; !ok {
				t.Errorf("no size of %s.%s", table.Name, column.Name)
			}
		}
		if policy := table.RowDeletionPolicy; policy != nil && policy.NumDays+3 != ReceiptDays {
			t.Errorf("%s: row deletion policy of %d days, want 3 less than %d", table.Name, policy.NumDays, ReceiptDays)
		}
	}
	if tables != len(sizes) {
		t.Errorf("%d tables, want %d", tables, len(sizes))
	}
}
