package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

var verifyCount = flag.Int("verify.count", 3000, "settlements of TestVerifyLarge")

// mostMemory bounds the peak memory of verify for a database of any size.
const mostMemory = 128 << 20

// TestVerifyLarge verifies many settlements, and measures the memory in a process of its
// own.
func TestVerifyLarge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	began := time.Now()
	f.settleMany(*verifyCount)
	t.Logf("filled with %d settlements in %v", *verifyCount, time.Since(began).Round(time.Millisecond))

	var out, errOut bytes.Buffer
	child := program(t.Context(), t, f.env(), "verify", "--output=json", "--key-lifetime=24h")
	child.Stdout, child.Stderr = &out, &errOut
	if err := child.Run(); err != nil {
		t.Fatalf("%v; standard output %s, standard error %s", err, out.String(), errOut.String())
	}
	got := parseVerified(t, outcome{out: out.String(), errOut: errOut.String()})
	sum := got.summary
	t.Logf("%d settlements, %d rows in %.1f s; peak memory %.1f MiB", sum.Settlements, sum.Rows, sum.Seconds, float64(sum.PeakMemoryBytes)/(1<<20))
	if len(got.findings) > 0 || sum.Settlements != int64(*verifyCount) || sum.Rows <= 2*sum.Settlements {
		t.Errorf("findings %+v, %d settlements, %d rows", got.findings, sum.Settlements, sum.Rows)
	}
	if sum.PeakMemoryBytes <= 0 || sum.PeakMemoryBytes > memoryFactor*mostMemory {
		t.Errorf("peak memory %d bytes, want at most %d", sum.PeakMemoryBytes, memoryFactor*mostMemory)
	}
}

// TestVerifyReadsPagesAtOneTimestamp writes a violation while verify reads small pages.
func TestVerifyReadsPagesAtOneTimestamp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const count, pageRows = 200, 7
	f.settleMany(count)
	var before int64
	sum, err := audit.Run(t.Context(), f.client, audit.Options{
		Workers: 3, PageRows: pageRows,
		Found: func(found audit.Finding) error { return fmt.Errorf("found %v", found) },
		Progress: func(p audit.Progress) {
			if before == 0 {
				f.plant("a movement without receipt, too late to be seen", `INSERT INTO ledger_movements (settlement_id, account_id, amount_cents, currency, payload_hash, recorded_at)
					VALUES (@id, 'a', 1, 'EUR', 'v1:00', PENDING_COMMIT_TIMESTAMP())`, "stl-late")
			}
			if p.Settlements > before+pageRows {
				t.Errorf("a page of %d settlements, want at most %d", p.Settlements-before, pageRows)
			}
			before = p.Settlements
		},
	})
	if err != nil || sum.Settlements != count {
		t.Errorf("%d settlements, %v; want %d", sum.Settlements, err, count)
	}
	var movements int64
	for _, total := range sum.Totals {
		movements += total.Movements
	}
	if movements != count || len(sum.Totals) == 0 {
		t.Errorf("totals %+v, want of %d movements", sum.Totals, count)
	}
	if got := parseVerified(t, f.verify(term.ExitError)); len(got.findings) == 0 {
		t.Error("the next run does not find the violation")
	}
}

// batch is the number of settlements in memory at a time.
const batch = 1000

// settleMany settles payouts by the real service over a store in memory, a fifth
// of them with a transfer, and writes its rows: the emulator settles some hundred
// a second.
func (f *fixture) settleMany(count int) {
	f.t.Helper()
	for first := 0; first < count; first += batch {
		f.write(settledInMemory(f.t, first, min(first+batch, count)))
	}
}

// write inserts the rows of a snapshot. A commit of many mutations takes the
// emulator longer than many commits of a few.
func (f *fixture) write(all audit.Snapshot) {
	f.t.Helper()
	var rows []*spanner.Mutation
	add := func(row *spanner.Mutation) { rows = append(rows, row) }
	for _, m := range all.Movements {
		add(spannerstore.Movements.Insert(m))
	}
	for _, r := range all.Receipts {
		add(spannerstore.Receipts.Insert(r))
	}
	for _, r := range all.Reversals {
		add(spannerstore.Reversals.Insert(r))
	}
	for _, in := range all.Instructions {
		row := spannerstore.InstructionRow{Instruction: in, IdempotencyKey: in.Transfer.Key.String()}
		if in.State == transfer.StateUncertain {
			row.UncertainSince = &in.CreatedAt
		}
		add(spannerstore.Instructions.Insert(row))
	}
	for _, e := range all.Events {
		add(spannerstore.Events.Insert(e))
	}
	for _, c := range all.Conflicts {
		add(spannerstore.Conflicts.Insert(c))
	}
	const perCommit = 40
	for len(rows) > 0 {
		n := min(perCommit, len(rows))
		if _, err := f.client.Apply(f.t.Context(), rows[:n], spanner.ApplyAtLeastOnce()); err != nil {
			f.t.Fatal(err)
		}
		rows = rows[n:]
	}
}

// settledInMemory settles payouts an hour ago. Of five one has a transfer, and of
// a hundred one a conflict.
func settledInMemory(t *testing.T, from, to int) audit.Snapshot {
	t.Helper()
	now := time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
	clock := func() time.Time { now = now.Add(time.Microsecond); return now }
	store := memstore.New(clock)
	banking := &transfer.Stepper{
		Store: store, Bank: instantBank{}, NewID: uuid.NewString, Now: clock, Log: slog.New(slog.DiscardHandler),
		Policy: transfer.Policy{KeyLifetime: 24 * time.Hour, SendTimeout: time.Second, StatusTimeout: time.Second},
	}
	service := &settle.Service{Store: store, Banking: banking, NewID: uuid.NewString, Now: clock}
	deliver := func(amount int, data string) {
		d := settle.Delivery{Message: settle.Message{ID: fmt.Sprintf("%d", amount), Data: []byte(data)}}
		if result, err := service.Deliver(t.Context(), d); err != nil || !result.Outcome.Final() || result.Outcome == settle.OutcomeQuarantined {
			t.Fatalf("deliver %s: %v, %v", data, result.Outcome, err)
		}
	}
	for i := from; i < to; i++ {
		id, more := fmt.Sprintf("stl-%d", i), `,"reference":"claim"`
		if i%5 == 0 {
			more = fmt.Sprintf(`,"creditor_account":"cp-%d"`, i)
		}
		message := func(amount int) string {
			return fmt.Sprintf(`{"settlement_id":%q,"account_id":"reserve-%d","amount_cents":%d,"currency":"EUR"%s}`, id, i%3, amount, more)
		}
		deliver(i, message(1+i))
		if i%100 == 1 {
			deliver(i, message(2+i))
		}
	}
	for range 2 {
		now = now.Add(5 * time.Minute)
		due, err := store.Due(t.Context(), now, batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range due {
			if _, err := banking.Step(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	return store.Snapshot()
}

// instantBank accepts every transfer. Of 25 it executes most, rejects one and
// sends one back.
type instantBank struct{}

func (instantBank) Compose(p payout.Payout, key uuid.UUID) ([]byte, error) {
	return bank.Compose(p, key)
}

func (instantBank) Send(context.Context, transfer.SendRequest) transfer.SendResult {
	return transfer.SendResult{Class: transfer.SendAccepted}
}

func (instantBank) Status(_ context.Context, r transfer.StatusRequest) transfer.StatusResult {
	switch r.AmountCents % 25 {
	case 1:
		return transfer.StatusResult{Reading: transfer.StatusRejected}
	case 6:
		return transfer.StatusResult{Reading: transfer.StatusReturned}
	}
	return transfer.StatusResult{Reading: transfer.StatusConfirmed}
}
