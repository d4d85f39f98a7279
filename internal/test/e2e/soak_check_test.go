//go:build soak

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	admin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/crash"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/schema"
)

// soakTally counts a run. Answers are counted as they come, and what is stored when a
// round has been found to be as planned.
type soakTally struct {
	mu      sync.Mutex
	answers map[string]int

	movements, conflicts, transfers int
	conflictDeliveries, cents       int64
}

func (c *soakTally) count(outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil {
		c.answers = map[string]int{}
	}
	c.answers[outcome]++
}

func (c *soakTally) delivered() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, count := range c.answers {
		n += count
	}
	return n
}

func (c *soakTally) outcomes() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d applied, %d duplicate, %d conflict", c.answers["applied"], c.answers["duplicate"], c.answers["conflict"])
}

func (c *soakTally) String() string {
	return fmt.Sprintf("%d delivered: %s; stored: %d movements and receipts, %d cents, %d conflicts of %d deliveries; bank: %d transfers, all confirmed",
		c.delivered(), c.outcomes(), c.movements, c.cents, c.conflicts, c.conflictDeliveries, c.transfers)
}

// take returns what was written since it was taken last, and keeps none of it.
func (b *logBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// check compares a round with what is stored, with its answers and with the bank's
// ledger, and ends the test if anything is not as planned.
func (s *soak) check(t *testing.T, round []*soakMessage) {
	t.Helper()
	all := s.snapshot(t)
	checkAnswers(t, round, all)
	checkStored(t, round, all)
	s.checkBank(t, all)
	for _, f := range []*watched{s.settler, s.reconciler} {
		log := f.log.take()
		s.errorsLogged += strings.Count(log, `"severity":"ERROR"`)
		if strings.Contains(log, `"severity":"CRITICAL"`) {
			t.Error("something critical was logged")
		}
		if t.Failed() {
			t.Logf("logged last: %s", log[max(0, len(log)-2000):])
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	s.total.movements += len(all.Movements)
	s.total.conflicts += len(all.Conflicts)
	s.total.transfers += len(all.Instructions)
	for _, m := range all.Movements {
		s.total.cents += m.AmountCents
	}
	for _, c := range all.Conflicts {
		s.total.conflictDeliveries += c.Deliveries
	}
}

// checkAnswers: all are acknowledged, conflicts are conflicts, and of the others
// exactly one for each payout has settled it.
func checkAnswers(t *testing.T, round []*soakMessage, all audit.Snapshot) {
	t.Helper()
	var faults []string
	applied := map[string]int{}
	for _, m := range round {
		a, movement := m.answer, all.Movement(m.payout.settlementID)
		if a.Outcome == "applied" {
			applied[m.payout.settlementID]++
		}
		planned := a.Outcome == "applied" || a.Outcome == "duplicate"
		if m.want == settle.OutcomeConflict {
			planned = a.Outcome == "conflict"
		}
		if a.Status != http.StatusOK || !planned || movement == nil || movement.SettlementID != a.SettlementID || !movement.RecordedAt.Equal(a.AppliedAt) {
			faults = append(faults, fmt.Sprintf("message %s, planned %s of %s: %d %s %s; stored %+v",
				m.id, m.want, m.payout.settlementID, a.Status, a.Body, a.Error, movement))
		}
	}
	for _, m := range all.Movements {
		if n := applied[m.SettlementID]; n != 1 {
			faults = append(faults, fmt.Sprintf("payout %s: %d deliveries settled it", m.SettlementID, n))
		}
	}
	if len(faults) > 0 {
		t.Errorf("%d answers are not as planned, the first of them:\n%s", len(faults), strings.Join(faults[:min(10, len(faults))], "\n"))
	}
}

// checkStored: a movement for each payout that says what its message says, and
// each conflict with the number of its deliveries.
func checkStored(t *testing.T, round []*soakMessage, all audit.Snapshot) {
	t.Helper()
	wantMoved, wantConflicts := map[string]soakPayout{}, map[string]int64{}
	for _, m := range round {
		if m.want == settle.OutcomeConflict {
			wantConflicts[m.data]++
		} else {
			p := m.payout
			wantMoved[p.settlementID] = soakPayout{settlementID: p.settlementID, account: p.account, creditor: p.creditor, cents: p.cents}
		}
	}
	moved, conflicts := map[string]soakPayout{}, map[string]int64{}
	for _, m := range all.Movements {
		moved[m.SettlementID] = soakPayout{settlementID: m.SettlementID, account: m.AccountID, creditor: m.CreditorAccount, cents: m.AmountCents}
	}
	for _, c := range all.Conflicts {
		conflicts[string(c.Payload)] += c.Deliveries
	}
	if diff := cmp.Diff(wantMoved, moved, cmp.AllowUnexported(soakPayout{})); diff != "" {
		t.Errorf("movements (-planned +stored):\n%s", diff)
	}
	if diff := cmp.Diff(wantConflicts, conflicts); diff != "" || len(conflicts) != len(all.Conflicts) {
		t.Errorf("deliveries of conflicts (-planned +stored in %d rows):\n%s", len(all.Conflicts), diff)
	}
	if len(all.Movements) != len(wantMoved) || len(all.Receipts) != len(wantMoved) || len(all.Reversals)+len(all.Quarantined) > 0 {
		t.Errorf("%d movements, %d receipts, %d reversals, %d in quarantine; planned %d, %d, 0, 0",
			len(all.Movements), len(all.Receipts), len(all.Reversals), len(all.Quarantined), len(wantMoved), len(wantMoved))
	}
}

// checkBank: one transfer at the bank for each instruction, and no other.
func (s *soak) checkBank(t *testing.T, all audit.Snapshot) {
	t.Helper()
	transfers := map[string]int{}
	ledger := s.bank.Ledger()
	for _, tr := range ledger {
		m := all.Movement(tr.Settlement)
		if m != nil && tr.Moved() && tr.AmountMinor == m.AmountCents && tr.CreditorAccount == m.CreditorAccount {
			transfers[tr.Settlement]++
		}
	}
	for _, in := range all.Instructions {
		if in.State != transfer.StateConfirmed || transfers[in.SettlementID] != 1 {
			t.Errorf("payout %s: instruction %s, %d transfers at the bank", in.SettlementID, in.State, transfers[in.SettlementID])
		}
	}
	if want := s.total.transfers + len(all.Instructions); len(ledger) != want {
		t.Errorf("%d transfers at the bank, planned %d", len(ledger), want)
	}
}

// open counts the instructions that are not confirmed.
func (d database) open(t *testing.T) (n int64) {
	t.Helper()
	query := spanner.NewStatement(`SELECT COUNT(*) FROM bank_instructions WHERE state != 'confirmed'`)
	err := d.client.Single().Query(t.Context(), query).Do(func(row *spanner.Row) error { return row.Column(0, &n) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// creates names what a statement of the schema makes.
var creates = regexp.MustCompile(`^CREATE (?:(?:UNIQUE|NULL_FILTERED) )*(TABLE|INDEX) IF NOT EXISTS (\w+)`)

// empty makes all tables anew. The database and the functions' sessions stay as
// they are. Deleting the rows would not do: the emulator takes long for it, and
// looks through deleted rows too.
func (d database) empty(t *testing.T) {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	var anew []string
	for _, statement := range slices.Backward(statements) {
		what := creates.FindStringSubmatch(statement)
		switch {
		case what != nil:
			anew = append(anew, "DROP "+what[1]+" "+what[2])
		case !strings.HasPrefix(statement, "ALTER TABLE "): // goes with its table
			t.Fatalf("cannot undo: %s", statement)
		}
	}
	anew = append(anew, statements...)
	client, err := admin.NewDatabaseAdminClient(t.Context(), emulatortest.Spanner(t).ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	update, err := client.UpdateDatabaseDdl(t.Context(), &databasepb.UpdateDatabaseDdlRequest{Database: d.name, Statements: anew})
	if err == nil {
		err = update.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// age makes everything that bank instructions remember older.
func (d database) age(t *testing.T, by time.Duration) {
	t.Helper()
	older := make([]string, len(crash.InstructionTimes))
	for i, column := range crash.InstructionTimes {
		older[i] = fmt.Sprintf("%[1]s = TIMESTAMP_SUB(%[1]s, INTERVAL @ns NANOSECOND)", column)
	}
	sql := "UPDATE bank_instructions SET " + strings.Join(older, ", ") + " WHERE TRUE"
	_, err := d.client.ReadWriteTransaction(t.Context(), func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		_, err := tx.Update(ctx, spanner.Statement{SQL: sql, Params: map[string]any{"ns": by.Nanoseconds()}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
