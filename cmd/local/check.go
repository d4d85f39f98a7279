package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"
	"github.com/go-json-experiment/json"
	"golang.org/x/time/rate"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// verify checks every row of the database, and asks the bank about every
// instruction, as settlectl verify --bank does.
func (sys *system) verify(ctx context.Context, client *spanner.Client) (sum audit.Summary, findings []audit.Finding, err error) {
	cfg := *sys.cfg.Bank
	cfg.Now = sys.clock.now
	asked, err := bank.New(cfg)
	if err != nil {
		return sum, nil, err
	}
	sum, err = audit.Run(ctx, client, audit.Options{
		Found: func(f audit.Finding) error {
			findings = append(findings, f)
			return nil
		},
		Bank: &audit.Bank{
			Status: func(ctx context.Context, in transfer.Instruction) transfer.Statuses {
				return transfer.AskStatuses(ctx, asked.Status, in)
			},
			Policy:  cfg.Policy(),
			Limiter: rate.NewLimiter(rate.Inf, 1),
			Now:     sys.clock.now,
		},
	})
	return sum, findings, err
}

// check compares the sample, the functions' answers, the ledger and the bank's
// transfers. It returns a line for each difference.
func check(messages []sampleMessage, seen result) []string {
	c := &checker{result: seen, messages: messages}
	c.answers()
	c.answersInLedger()
	c.movements()
	c.instructions()
	for i, run := range c.runs {
		if run.Failed+run.Left > 0 {
			c.add("reconciler, run %d: of %d due, %d failed and %d were left", i+1, run.Due, run.Failed, run.Left)
		}
	}
	for _, f := range c.findings {
		if !f.Pending {
			c.add("verify: %s", f.Violation)
		}
	}
	if n := c.verified.Unanswered; n > 0 {
		c.add("verify: %d of %d status checks were not answered", n, c.verified.Asked)
	}
	for _, text := range c.books.CompareBank() {
		c.add("bank: %s", text)
	}
	for _, text := range c.violations {
		c.add("bank: %s", text)
	}
	return c.faults
}

type checker struct {
	result

	messages []sampleMessage
	faults   []string
}

func (c *checker) add(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// answers compares every answer with the sample, and the number of deliveries with
// the publications and dropped answers. Pub/Sub may deliver more often.
func (c *checker) answers() {
	count := make([]int, len(c.messages))
	for _, d := range c.deliveries {
		m := c.messages[d.Message]
		want := m.Expect
		if count[d.Message] > 0 && want == settle.OutcomeApplied {
			want = settle.OutcomeDuplicate
		}
		count[d.Message]++
		a := d.answer
		if d.status != http.StatusOK || a.Outcome != want {
			c.add("%q, delivery %d: answered %d %s; the sample expects 200 %s", m.Name, count[d.Message], d.status, a.Outcome, want)
		}
		if got, want := a.detail(), detail(m.Fields, m.Reason, m.Member); got != want {
			c.add("%q, delivery %d: answered with %q; the sample expects %q", m.Name, count[d.Message], got, want)
		}
	}
	for i, m := range c.messages {
		if least := m.Publish * (1 + m.DropAnswers); count[i] < least {
			c.add("%q: %d deliveries; the sample expects at least %d", m.Name, count[i], least)
		}
	}
}

// answersInLedger compares the answers with the rows of the ledger. One answer recorded
// each row; the answers that know it came later.
func (c *checker) answersInLedger() {
	const movement, conflict, quarantined = "movement of %q, %s, recorded at %v", "conflict of %q, %s, in %v", "message %s in quarantine for %s"
	stored, recorded := map[string]int{}, map[string]int{}
	for _, m := range c.books.Movements {
		stored[fmt.Sprintf(movement, m.SettlementID, m.PayloadHash, m.RecordedAt.UTC())]++
	}
	for _, row := range c.books.Conflicts {
		stored[fmt.Sprintf(conflict, row.SettlementID, row.PayloadHash, row.Fields)]++
	}
	for _, q := range c.books.Quarantined {
		stored[fmt.Sprintf(quarantined, q.MessageID, detail(nil, q.Reason, q.Member))]++
	}
	for _, d := range c.deliveries {
		a, row := d.answer, ""
		switch a.Outcome {
		case settle.OutcomeApplied:
			row = fmt.Sprintf(movement, a.SettlementID, a.PayloadHash, a.AppliedAt.UTC())
		case settle.OutcomeConflict:
			row = fmt.Sprintf(conflict, a.SettlementID, a.PayloadHash, a.Fields)
		case settle.OutcomeQuarantined:
			row = fmt.Sprintf(quarantined, d.messageID, a.detail())
		case settle.OutcomeDuplicate, settle.OutcomeUnknown:
		}
		switch {
		case row != "" && !a.Known:
			recorded[row]++
			stored[row] += 0 // compare it even if it is absent
		case row != "" && stored[row] == 0:
			c.add("ledger: no %s, but an answer knows it", row)
		}
		if a.Outcome == settle.OutcomeDuplicate || a.Outcome == settle.OutcomeConflict {
			m := c.books.Movement(a.SettlementID)
			if m == nil || !m.RecordedAt.Equal(a.AppliedAt) || (a.Outcome == settle.OutcomeDuplicate) != (m.PayloadHash == a.PayloadHash) {
				c.add("ledger: no movement of %q recorded at %v, but the answer %s names it", a.SettlementID, a.AppliedAt.UTC(), a.Outcome)
			}
		}
	}
	for _, row := range slices.Sorted(maps.Keys(stored)) {
		if stored[row] != recorded[row] {
			c.add("ledger: %s has %d rows, and %d answers recorded it", row, stored[row], recorded[row])
		}
	}
}

// movements compares the movements with the applied payouts of the sample, read
// without the function's decoder.
func (c *checker) movements() {
	type fields struct {
		SettlementID string `json:"settlement_id"`
		AccountID    string `json:"account_id"`
		AmountCents  int64  `json:"amount_cents"`
		Currency     string `json:"currency"`
		Creditor     string `json:"creditor_account"`
		Reference    string `json:"reference"`
	}
	expected := 0
	for _, m := range c.messages {
		if m.Expect != settle.OutcomeApplied {
			continue
		}
		expected++
		want := fields{Currency: "USD"}
		if err := json.Unmarshal(m.Data, &want); err != nil {
			c.add("%q: expected to be applied, but its data cannot be read: %v", m.Name, err)
			continue
		}
		got := c.books.Movement(want.SettlementID)
		if got == nil {
			c.add("ledger: no movement of %q", want.SettlementID)
			continue
		}
		stored := fields{got.SettlementID, got.AccountID, got.AmountCents, got.Currency, got.CreditorAccount, got.Reference}
		if stored != want {
			c.add("ledger: the movement is %+v; the message is %+v", stored, want)
		}
	}
	if got := len(c.books.Movements); got != expected {
		c.add("ledger: %d movements; the sample expects %d", got, expected)
	}
}

// instructions compares the states and sends of every bank instruction with the
// sample, and every answered state with the history.
func (c *checker) instructions() {
	expected := map[string]sampleMessage{}
	for _, m := range c.messages {
		if len(m.States) > 0 {
			expected[m.settlementID()] = m
		}
	}
	for _, in := range c.books.Instructions {
		want, got := expected[in.SettlementID], states(c.books.Snapshot, in.SettlementID)
		if !slices.Equal(got, want.States) || in.Sends != want.Sends {
			c.add("ledger: the bank instruction of %q went %s with %d sends; the sample expects %s with %d",
				in.SettlementID, arrows(got), in.Sends, arrows(want.States), want.Sends)
		}
	}
	if got := len(c.books.Instructions); got != len(expected) {
		c.add("ledger: %d bank instructions; the sample expects %d", got, len(expected))
	}
	for _, d := range c.deliveries {
		state, id := d.answer.Instruction, d.answer.SettlementID
		if state != transfer.StateNone && !slices.Contains(states(c.books.Snapshot, id), state) {
			c.add("%q: answered %s, a state that its bank instruction never had", id, state)
		}
	}
}

// states returns the states of a bank instruction in order, by its events.
func states(stored audit.Snapshot, settlementID string) (all []transfer.State) {
	for _, e := range stored.Events {
		if e.SettlementID == settlementID && e.Event.From != e.Event.To {
			all = append(all, e.Event.To)
		}
	}
	return all
}

// arrows joins states by arrows.
func arrows(states []transfer.State) string {
	var words []string
	for _, state := range states {
		words = append(words, string(state))
	}
	return strings.Join(words, " → ")
}

// detail returns the members of a conflict, or the reason and member of a refusal.
func detail(fields []string, reason payout.Reason, member string) string {
	if len(fields) > 0 {
		return strings.Join(fields, ", ")
	}
	return strings.TrimSpace(string(reason) + " " + member)
}
