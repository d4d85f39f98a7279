package main

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// verify compares four accounts of what happened: what the sample expects, what
// the functions answered, what the ledger holds, and what the bank did. Each fault
// is a line.
func verify(rows []row, happened saw) []string {
	v := &verification{rows: rows, saw: happened}
	v.answersAgainstSample()
	v.answersAgainstLedger()
	v.ledgerAgainstSample()
	v.countsAgainstAnswers()
	v.instructionsAgainstSample()
	v.instructionsAgainstBank()
	v.reconciliationsWentWell()
	for _, violation := range v.stored.Violations(false) {
		v.fault("ledger: %s", violation)
	}
	return v.faults
}

type verification struct {
	saw

	rows   []row
	faults []string
}

func (v *verification) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}

// answersAgainstSample compares every answer with its row of the sample, and the
// number of deliveries with what was published and lost. A topic may deliver more
// often than it has to.
func (v *verification) answersAgainstSample() {
	count := make([]int, len(v.rows))
	for _, d := range v.deliveries {
		r := v.rows[d.row]
		want := r.Expect
		if count[d.row] > 0 && want == settle.OutcomeApplied.String() {
			want = settle.OutcomeDuplicate.String()
		}
		count[d.row]++
		a := d.answer
		if d.status != http.StatusOK || a.Outcome != want {
			v.fault("%q, delivery %d: answered %d %s; the sample expects 200 %s", r.Name, count[d.row], d.status, a.Outcome, want)
		}
		if !slices.Equal(a.Fields, r.Fields) || a.Reason != r.Reason || a.Member != r.Member {
			v.fault("%q, delivery %d: answered with %s; the sample expects %s", r.Name, count[d.row],
				why(a.Fields, a.Reason, a.Member), why(r.Fields, r.Reason, r.Member))
		}
	}
	for i, r := range v.rows {
		if least := r.Publish * (1 + r.LoseAnswers); count[i] < least {
			v.fault("%q: %d deliveries; published %d times with %d answers lost each, so at least %d",
				r.Name, count[i], r.Publish, r.LoseAnswers, least)
		}
	}
}

// answersAgainstLedger looks for every answer's row in the ledger.
func (v *verification) answersAgainstLedger() {
	for _, d := range v.deliveries {
		name, a := v.rows[d.row].Name, d.answer
		switch outcomeNamed(a.Outcome) {
		case settle.OutcomeApplied, settle.OutcomeDuplicate:
			m := v.stored.Movement(a.SettlementID)
			if m == nil || m.PayloadHash != a.PayloadHash || !m.RecordedAt.Equal(a.AppliedAt) {
				v.fault("%q: answered %s, but the ledger has no such movement of %q", name, a.Outcome, a.SettlementID)
			}
		case settle.OutcomeConflict:
			m, c := v.stored.Movement(a.SettlementID), v.conflict(a.SettlementID, a.PayloadHash)
			if m == nil || !m.RecordedAt.Equal(a.AppliedAt) {
				v.fault("%q: answered conflict, but the ledger has no such movement of %q", name, a.SettlementID)
			}
			if c == nil || !slices.Equal(c.Fields, a.Fields) {
				v.fault("%q: answered conflict, but no such conflict of %q is recorded", name, a.SettlementID)
			}
		case settle.OutcomeQuarantined:
			if q := v.quarantined(d.messageID); q == nil || q.Reason != a.Reason || q.Member != a.Member {
				v.fault("%q: answered quarantined, but message %s is not in quarantine for that", name, d.messageID)
			}
		case settle.OutcomeUnknown: // answersAgainstSample reports it
		}
	}
}

// ledgerAgainstSample compares the movements with the payouts of the sample that
// are to be applied, read without the function's decoder.
func (v *verification) ledgerAgainstSample() {
	expected := 0
	for _, r := range v.rows {
		if r.Expect != settle.OutcomeApplied.String() {
			continue
		}
		expected++
		want := struct {
			SettlementID string `json:"settlement_id"`
			AccountID    string `json:"account_id"`
			AmountCents  int64  `json:"amount_cents"`
			Currency     string `json:"currency"`
			Creditor     string `json:"creditor_account"`
			Reference    string `json:"reference"`
		}{Currency: "USD"}
		if err := json.Unmarshal(r.Data, &want); err != nil {
			v.fault("%q: expected to be applied, but its data cannot be read: %v", r.Name, err)
			continue
		}
		got := v.stored.Movement(want.SettlementID)
		switch {
		case got == nil:
			v.fault("%q: the ledger has no movement of %q", r.Name, want.SettlementID)
		case got.AccountID != want.AccountID || got.AmountCents != want.AmountCents || got.Currency != want.Currency ||
			got.Reference != want.Reference || got.CreditorAccount != want.Creditor:
			v.fault("%q: the ledger's movement of %q is not what the message says", r.Name, want.SettlementID)
		}
	}
	if got := len(v.stored.Movements); got != expected {
		v.fault("ledger: %d movements; the sample expects %d", got, expected)
	}
}

// countsAgainstAnswers compares how often things happened.
func (v *verification) countsAgainstAnswers() {
	applied := map[string]int{}
	for _, d := range v.deliveries {
		if d.answer.Outcome == settle.OutcomeApplied.String() {
			applied[d.answer.SettlementID]++
		}
	}
	for _, m := range v.stored.Movements {
		if n := applied[m.SettlementID]; n != 1 {
			v.fault("settlement %q: %d deliveries were answered applied; exactly one must be", m.SettlementID, n)
		}
	}
	for _, c := range v.stored.Conflicts {
		n := v.count(func(d delivery) bool {
			return d.answer.Outcome == settle.OutcomeConflict.String() &&
				d.answer.SettlementID == c.SettlementID && d.answer.PayloadHash == c.PayloadHash
		})
		if int64(n) != c.Deliveries {
			v.fault("settlement %q: %d deliveries of a conflict are recorded, and %d were answered so", c.SettlementID, c.Deliveries, n)
		}
	}
	for _, q := range v.stored.Quarantined {
		n := v.count(func(d delivery) bool {
			return d.answer.Outcome == settle.OutcomeQuarantined.String() && d.messageID == q.MessageID
		})
		if int64(n) != q.Deliveries {
			v.fault("message %s: %d deliveries to quarantine are recorded, and %d were answered so", q.MessageID, q.Deliveries, n)
		}
	}
}

func (v *verification) count(is func(delivery) bool) (n int) {
	for _, d := range v.deliveries {
		if is(d) {
			n++
		}
	}
	return n
}

func (v *verification) conflict(settlementID string, hash payout.Hash) *spannerstore.ConflictRow {
	i := slices.IndexFunc(v.stored.Conflicts, func(c spannerstore.ConflictRow) bool {
		return c.SettlementID == settlementID && c.PayloadHash == hash
	})
	if i < 0 {
		return nil
	}
	return &v.stored.Conflicts[i]
}

func (v *verification) quarantined(messageID string) *spannerstore.QuarantineRow {
	i := slices.IndexFunc(v.stored.Quarantined, func(q spannerstore.QuarantineRow) bool { return q.MessageID == messageID })
	if i < 0 {
		return nil
	}
	return &v.stored.Quarantined[i]
}
