package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// TestUncertainRowsAreWhole prints rows whose IDs and amounts are of usual length,
// some of them overdue: where there is no room for all of it, it is not the IDs that
// are broken.
func TestUncertainRowsAreWhole(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 23, 33, 54, 0, time.UTC)
	for name, amountCents := range map[string]int64{"list-uncertain-late": 990000, "list-uncertain-late-large": 1299000000} {
		var out bytes.Buffer
		s := streams{out: &out, outColumns: pageColumns, now: func() time.Time { return now }, getenv: func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] }}
		l := uncertainList(s)
		printer := newRowPrinter(s, outputTable, l.columns)
		for _, away := range []time.Duration{-4 * time.Second, -26 * time.Hour, 74 * time.Second} {
			due, since := now.Add(away), now.Add(-time.Minute)
			err := printer.print(l.row(ledger.Entry{
				Movement: settle.Movement{AccountID: "reserve-claims", AmountCents: amountCents, Currency: "EUR"},
				Instruction: spannerstore.InstructionRow{
					Instruction: transfer.Instruction{SettlementID: "stl-8483", Sends: 1, NextCheckAt: due}, UncertainSince: &since,
				},
			})...)
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := printer.flush(l.nothing); err != nil {
			t.Fatal(err)
		}
		wantNarrow(t, out.String())
		if n := strings.Count(out.String(), "\n"); n != 4 || strings.Count(out.String(), " reserve-claims ") != 3 {
			t.Errorf("%d lines of a head and three rows:\n%s", n, out.String())
		}
		golden(t, name+".table", out.String())
	}
}
