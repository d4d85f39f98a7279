package ledger

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"cloud.google.com/go/spanner"
)

// Report sums up an account's movements and reversals that were recorded from From on
// and before To. A movement and its reversal can be in different periods.
type Report struct {
	AccountID string    `json:"account_id"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	// ReadAt is the timestamp of all reads.
	ReadAt time.Time `json:"read_at"`
	// Lines holds a line for each currency and state, in that order.
	Lines []ReportLine `json:"lines"`
	// Totals holds a line for each currency.
	Totals []ReportLine `json:"totals"`
}

// ReportLine is a sum of a report.
type ReportLine struct {
	Currency string `json:"currency"`
	// State is the bank instructions' at ReadAt; [StateNone] for payouts without one,
	// and empty in a total.
	State string `json:"state,omitzero"`
	// Movements and Reversals count the rows.
	Movements int64  `json:"movement_count"`
	Moved     Amount `json:"movements"`
	Reversals int64  `json:"reversal_count"`
	Reversed  Amount `json:"reversals"`
	// Net is Moved less Reversed; it can be below zero.
	Net Amount `json:"net"`

	moved, reversed *big.Int // minor units
}

// A sum of INT64 could overflow. NUMERIC holds 29 digits before the point.
const reportSQL = `SELECT currency, IFNULL(state, 'none') AS bank, SUM(movements), SUM(CAST(moved AS NUMERIC)), SUM(reversals), SUM(CAST(reversed AS NUMERIC))
FROM (
  SELECT m.currency, i.state, 1 AS movements, m.amount_cents AS moved, 0 AS reversals, 0 AS reversed
  FROM ledger_movements AS m
  LEFT JOIN bank_instructions AS i ON i.settlement_key = m.settlement_key
  WHERE m.recorded_at >= @from AND m.recorded_at < @to AND m.account_id = @account
  UNION ALL
  SELECT m.currency, i.state, 0, 0, 1, v.amount_cents
  FROM ledger_reversals AS v
  JOIN ledger_movements AS m ON m.settlement_key = v.settlement_key
  LEFT JOIN bank_instructions AS i ON i.settlement_key = m.settlement_key
  WHERE v.recorded_at >= @from AND v.recorded_at < @to AND m.account_id = @account
)
GROUP BY currency, bank
ORDER BY currency, bank`

// Report sums up an account's movements and reversals of a period. The database
// computes the sums, so the answer's size does not grow with their number.
func (r Reader) Report(ctx context.Context, accountID string, from, to time.Time) (Report, error) {
	report := Report{AccountID: accountID, From: from, To: to, Lines: []ReportLine{}, Totals: []ReportLine{}}
	tx := r.Client.Single().WithTimestampBound(r.Bound)
	statement := spanner.Statement{SQL: reportSQL, Params: map[string]any{"account": accountID, "from": from, "to": to}}
	err := tx.QueryWithOptions(ctx, statement, spanner.QueryOptions{RequestTag: tagRead}).Do(report.add)
	if err == nil {
		report.ReadAt, err = tx.Timestamp()
	}
	if err != nil {
		return Report{}, fmt.Errorf("report on account %q: %w", accountID, err)
	}
	return report, nil
}

// add adds a row of the query to the lines and to the total of its currency.
func (r *Report) add(row *spanner.Row) error {
	var (
		l               ReportLine
		moved, reversed big.Rat
	)
	if err := row.Columns(&l.Currency, &l.State, &l.Movements, &moved, &l.Reversals, &reversed); err != nil {
		return err
	}
	l.moved, l.reversed = moved.Num(), reversed.Num() // whole numbers, as sums of INT64
	r.Lines = append(r.Lines, l.withAmounts())
	if n := len(r.Totals); n == 0 || r.Totals[n-1].Currency != l.Currency {
		l.State = ""
		r.Totals = append(r.Totals, l.withAmounts())
		return nil
	}
	total := &r.Totals[len(r.Totals)-1]
	total.Movements += l.Movements
	total.Reversals += l.Reversals
	total.moved = new(big.Int).Add(total.moved, l.moved)
	total.reversed = new(big.Int).Add(total.reversed, l.reversed)
	*total = total.withAmounts()
	return nil
}

func (l ReportLine) withAmounts() ReportLine {
	l.Moved, l.Reversed = NewAmount(l.moved, l.Currency), NewAmount(l.reversed, l.Currency)
	l.Net = NewAmount(new(big.Int).Sub(l.moved, l.reversed), l.Currency)
	return l
}
