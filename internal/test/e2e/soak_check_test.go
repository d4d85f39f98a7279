//go:build soak

package e2e_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

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

// soakTally counts a run: answers as they arrive, and rows after the check of a round.
type soakTally struct {
	mu      sync.Mutex
	answers map[string]int

	movements, conflicts, transfers int
	cents                           int64
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
	return fmt.Sprintf("%d delivered: %s; stored: %d movements and receipts, %d cents, %d conflicts; bank: %d transfers, all confirmed",
		c.delivered(), c.outcomes(), c.movements, c.cents, c.conflicts, c.transfers)
}

// take returns and removes the collected output.
func (b *logBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// check compares the plan of a round with its answers, the rows and the bank's ledger. A
// difference ends the test.
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
			t.Error("the log has a line of severity CRITICAL")
		}
		if t.Failed() {
			t.Logf("end of the log: %s", log[max(0, len(log)-2000):])
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
}

// checkAnswers requires that all messages are acknowledged, that planned conflicts are
// conflicts, and that exactly one message of each payout was applied.
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
			faults = append(faults, fmt.Sprintf("payout %s: applied %d times", m.SettlementID, n))
		}
	}
	if len(faults) > 0 {
		t.Errorf("%d answers differ from the plan, first:\n%s", len(faults), strings.Join(faults[:min(10, len(faults))], "\n"))
	}
}

// checkStored requires a movement for each payout with the content of its message, and
// one row for each conflict, of which one answer does not call it known.
func checkStored(t *testing.T, round []*soakMessage, all audit.Snapshot) {
	t.Helper()
	wantMoved, wantConflicts, recorded := map[string]soakPayout{}, map[string]int{}, map[string]int{}
	for _, m := range round {
		if m.want == settle.OutcomeConflict {
			wantConflicts[m.data] = 1
			recorded[m.data] += one(!m.answer.Known)
		} else {
			p := m.payout
			wantMoved[p.settlementID] = soakPayout{settlementID: p.settlementID, account: p.account, creditor: p.creditor, cents: p.cents}
		}
	}
	moved, conflicts := map[string]soakPayout{}, map[string]int{}
	for _, m := range all.Movements {
		moved[m.SettlementID] = soakPayout{settlementID: m.SettlementID, account: m.AccountID, creditor: m.CreditorAccount, cents: m.AmountCents}
	}
	for _, c := range all.Conflicts {
		conflicts[string(c.Payload)]++
	}
	if diff := cmp.Diff(wantMoved, moved, cmp.AllowUnexported(soakPayout{})); diff != "" {
		t.Errorf("movements (-planned +stored):\n%s", diff)
	}
	if diff := cmp.Diff(wantConflicts, conflicts); diff != "" {
		t.Errorf("rows of conflicts (-planned +stored):\n%s", diff)
	}
	if diff := cmp.Diff(wantConflicts, recorded); diff != "" {
		t.Errorf("answers about conflicts that were not known (-planned +answered):\n%s", diff)
	}
	if len(all.Movements) != len(wantMoved) || len(all.Receipts) != len(wantMoved) || len(all.Reversals)+len(all.Quarantined) > 0 {
		t.Errorf("%d movements, %d receipts, %d reversals, %d in quarantine; planned %d, %d, 0, 0",
			len(all.Movements), len(all.Receipts), len(all.Reversals), len(all.Quarantined), len(wantMoved), len(wantMoved))
	}
}

// checkBank compares the rows with the transfers of the round. Each instruction must be
// confirmed.
func (s *soak) checkBank(t *testing.T, all audit.Snapshot) {
	t.Helper()
	ledger := s.bank.Ledger()
	round := crash.State{Snapshot: all, Ledger: ledger[min(s.total.transfers, len(ledger)):], Requests: s.bank.Requests()}
	for _, difference := range round.CompareBank() {
		t.Error(difference)
	}
	for _, in := range all.Instructions {
		if in.State != transfer.StateConfirmed {
			t.Errorf("payout %s: instruction %s", in.SettlementID, in.State)
		}
	}
	if len(round.Ledger) != len(all.Instructions) {
		t.Errorf("%d transfers at the bank, planned %d", len(round.Ledger), len(all.Instructions))
	}
}

// unconfirmed counts the instructions that are not confirmed.
func (d database) unconfirmed(t *testing.T) (n int64) {
	t.Helper()
	query := spanner.NewStatement(`SELECT COUNT(*) FROM bank_instructions WHERE state != 'confirmed'`)
	err := d.client.Single().Query(t.Context(), query).Do(func(row *spanner.Row) error { return row.Column(0, &n) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// creates matches a CREATE statement's kind of object and its name.
var creates = regexp.MustCompile(`^CREATE (?:(?:UNIQUE|NULL_FILTERED) )*(TABLE|INDEX) IF NOT EXISTS (\w+)`)

// empty drops and creates all tables, and keeps the database and the functions' sessions.
// The emulator deletes rows slowly, and its queries read deleted rows too.
func (d database) empty(t *testing.T) {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	var recreate []string
	for _, statement := range slices.Backward(statements) {
		object := creates.FindStringSubmatch(statement)
		switch {
		case object != nil:
			recreate = append(recreate, "DROP "+object[1]+" "+object[2])
		case !strings.HasPrefix(statement, "ALTER TABLE "): // dropped with its table
			t.Fatalf("cannot undo: %s", statement)
		}
	}
	recreate = append(recreate, statements...)
	client, err := admin.NewDatabaseAdminClient(t.Context(), emulatortest.Spanner(t).ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	update, err := client.UpdateDatabaseDdl(t.Context(), &databasepb.UpdateDatabaseDdlRequest{Database: d.name, Statements: recreate})
	if err == nil {
		err = update.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}
