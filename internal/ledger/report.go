package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
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

func newReportLine(currency, state string) *ReportLine {
	return &ReportLine{Currency: currency, State: state, moved: new(big.Int), reversed: new(big.Int)}
}

// A sum of INT64 could overflow. NUMERIC holds 29 digits before the point.
const (
	movedSQL = `SELECT m.currency, IFNULL(i.state, 'none') AS state, COUNT(*) AS n, SUM(CAST(m.amount_cents AS NUMERIC)) AS total
FROM ledger_movements AS m
LEFT JOIN bank_instructions AS i ON i.settlement_key = m.settlement_key
WHERE m.recorded_at >= @from AND m.recorded_at < @to AND m.account_id = @account
GROUP BY m.currency, state`
	reversedSQL = `SELECT m.currency, IFNULL(i.state, 'none') AS state, COUNT(*) AS n, SUM(CAST(v.amount_cents AS NUMERIC)) AS total
FROM ledger_reversals AS v
JOIN ledger_movements AS m ON m.settlement_key = v.settlement_key
LEFT JOIN bank_instructions AS i ON i.settlement_key = v.settlement_key
WHERE v.recorded_at >= @from AND v.recorded_at < @to AND m.account_id = @account
GROUP BY m.currency, state`
)

// Report sums up an account's movements and reversals of a period. The database
// computes the sums, so the answer's size does not grow with their number.
func (r Reader) Report(ctx context.Context, accountID string, from, to time.Time) (Report, error) {
	tx := r.Client.ReadOnlyTransaction().WithTimestampBound(r.Bound)
	defer tx.Close()
	lines := map[[2]string]*ReportLine{}
	line := func(currency, state string) *ReportLine {
		key := [2]string{currency, state}
		if lines[key] == nil {
			lines[key] = newReportLine(currency, state)
		}
		return lines[key]
	}
	params := map[string]any{"account": accountID, "from": from, "to": to}
	err := errors.Join(
		sums(ctx, tx, movedSQL, params, func(currency, state string, n int64, total *big.Int) {
			l := line(currency, state)
			l.Movements = n
			l.moved.Set(total)
		}),
		sums(ctx, tx, reversedSQL, params, func(currency, state string, n int64, total *big.Int) {
			l := line(currency, state)
			l.Reversals = n
			l.reversed.Set(total)
		}),
	)
	if err != nil {
		return Report{}, fmt.Errorf("report on account %q: %w", accountID, err)
	}
	report := Report{AccountID: accountID, From: from, To: to}
	if report.ReadAt, err = tx.Timestamp(); err != nil {
		return Report{}, fmt.Errorf("report on account %q: %w", accountID, err)
	}
	report.fill(lines)
	return report, nil
}

func sums(ctx context.Context, tx *spanner.ReadOnlyTransaction, sql string, params map[string]any, each func(currency, state string, n int64, total *big.Int)) error {
	return tx.QueryWithOptions(ctx, spanner.Statement{SQL: sql, Params: params}, spanner.QueryOptions{RequestTag: tagRead}).Do(func(row *spanner.Row) error {
		var (
			currency, state string
			n               int64
			total           big.Rat
		)
		if err := row.Columns(&currency, &state, &n, &total); err != nil {
			return err
		}
		if !total.IsInt() {
			return fmt.Errorf("the sum of minor units %s is no whole number", total.RatString())
		}
		each(currency, state, n, total.Num())
		return nil
	})
}

// fill makes the lines and totals.
func (r *Report) fill(lines map[[2]string]*ReportLine) {
	totals := map[string]*ReportLine{}
	for _, l := range lines {
		total := totals[l.Currency]
		if total == nil {
			total = newReportLine(l.Currency, "")
			totals[l.Currency] = total
		}
		total.Movements += l.Movements
		total.Reversals += l.Reversals
		total.moved.Add(total.moved, l.moved)
		total.reversed.Add(total.reversed, l.reversed)
	}
	r.Lines, r.Totals = inOrder(maps.Values(lines)), inOrder(maps.Values(totals))
}

// inOrder returns the lines by currency and state, with their amounts.
func inOrder(lines func(func(*ReportLine) bool)) []ReportLine {
	sorted := slices.SortedFunc(lines, func(a, b *ReportLine) int {
		return cmp.Or(cmp.Compare(a.Currency, b.Currency), cmp.Compare(a.State, b.State))
	})
	out := make([]ReportLine, 0, len(sorted))
	for _, l := range sorted {
		l.Moved, l.Reversed = NewAmount(l.moved, l.Currency), NewAmount(l.reversed, l.Currency)
		l.Net = NewAmount(new(big.Int).Sub(l.moved, l.reversed), l.Currency)
		out = append(out, *l)
	}
	return out
}
