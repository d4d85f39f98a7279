package capacity

import (
	"math"
	"strings"
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

// TestEstimate compares with figures calculated on paper from the counted rows.
func TestEstimate(t *testing.T) {
	t.Parallel()
	noBank, multiRegion := Default(), Default()
	noBank.BankShare = 0
	multiRegion.Instance = MultiRegion
	tests := []struct {
		name string
		load Load
		rate float64
		want float64
	}{
		{"Spanner: commits a second", noBank, 10000, 10000},
		// 10000 / 2275 = 4.396 nodes, and 30000 / 2275 = 13.19.
		{"Spanner: processing units, at least", noBank, 10000, 5000},
		{"Spanner: processing units, at most", noBank, 10000, 14000},
		// 10000 / 14625 = 0.68 nodes, and 30000 / 14625 = 2.05.
		{"Spanner: processing units, commit delay 100 ms, at least", noBank, 10000, 700},
		{"Spanner: processing units, commit delay 100 ms, at most", noBank, 10000, 3000},
		// 1 + 0.2 × 24 = 5.8, and 58000 / 2275 = 25.5 nodes.
		{"Spanner: commits a second", Default(), 10000, 58000},
		{"Spanner: processing units, at least", Default(), 10000, 26000},
		// 58000 / (2700 × 0.45) = 47.7 nodes, and / (15000 × 0.45) = 8.6.
		{"Spanner: processing units, at least", multiRegion, 10000, 48000},
		{"Spanner: processing units, commit delay 100 ms, at least", multiRegion, 10000, 9000},
		// 3 + 0.2 × 88.5 = 20.7.
		{"Spanner: rows written a second", Default(), 10000, 207000},
		// 10000 × 0.2 × 48 / 64.
		{dueWrites, Default(), 10000, 1500},
		{dueWrites, noBank, 10000, 0},
		{"Spanner: processing units, at least", noBank, 100, 100},
		{"Spanner: processing units, at least", noBank, 300, 200},
		// 2.592e6 s × 361 B × 10000 = 9.36 TB.
		{"Spanner: TB a month, for ever", noBank, 10000, 9.35712},
		// 86400 s × 103 days × 391 B × 10000 = 34.8 TB.
		{"Spanner: TB of receipts, once full", noBank, 10000, 34.795872},
		// 2.592e6 s × 2 kB × 10000 = 51.84 TB.
		{"Pub/Sub: TB a month, published and pushed", noBank, 10000, 51.84},
		// 15 ms × 10000 = 150; and 2 ms × 10000 / 0.6 = 33.3 instances.
		{"SettlePayout: deliveries at a time", noBank, 10000, 150},
		{"SettlePayout: instances of 1 vCPU", noBank, 10000, 34},
		{"ReconcileBank: status checks a second", Default(), 10000, 23000},
		// 23000 × 0.36 / 2 = 4140.
		{"ReconcileBank: BANK_CONCURRENCY", Default(), 10000, 4140},
		{"ReconcileBank: BANK_CONCURRENCY", noBank, 10000, 0},
	}
	for _, tt := range tests {
		got := value(t, Estimate(tt.load, []float64{tt.rate}), tt.name)
		if math.Abs(got-tt.want) > 1e-6*tt.want {
			t.Errorf("%s at %g with bank share %g: %g, want %g", tt.name, tt.rate, tt.load.BankShare, got, tt.want)
		}
	}
}

const dueWrites = "Spanner: writes a second to each shard of bank_instructions_due"

// TestHotShardIsNamed reads the rate at which a shard is hot: 2275 × 64 / (0.2 × 48).
func TestHotShardIsNamed(t *testing.T) {
	t.Parallel()
	for share, want := range map[float64]string{0.2: "from 15167 payouts a second", 1: "from 3033 payouts a second", 0: "at no rate"} {
		load := Default()
		load.BankShare = share
		for _, f := range Estimate(load, []float64{1}) {
			if f.Name == dueWrites && !strings.HasSuffix(f.Formula, "hot above 3500 × 0.65, "+want) {
				t.Errorf("bank share %g: %q, want %q at its end", share, f.Formula, want)
			}
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
