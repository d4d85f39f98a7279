package audit

import (
	"cmp"
	"maps"
	"math/big"
	"slices"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// maxAccounts bounds the accounts with totals of their own.
const maxAccounts = 10_000

// OtherAccounts is the account of the totals of all accounts beyond the first
// 10,000.
const OtherAccounts = "(other accounts)"

// Total sums up an account's movements and reversals in one currency, in minor units
// and exactly.
type Total struct {
	Account, Currency string
	Movements         int64
	Moved             *big.Int
	Reversals         int64
	Reversed          *big.Int
}

// Net is Moved less Reversed.
func (t Total) Net() *big.Int { return new(big.Int).Sub(t.Moved, t.Reversed) }

type totalKey struct{ account, currency string }

type totals map[totalKey]*Total

func (t totals) of(k totalKey) *Total {
	total := t[k]
	if total == nil && len(t) >= maxAccounts {
		k.account = OtherAccounts
		total = t[k]
	}
	if total == nil {
		total = &Total{Account: k.account, Currency: k.currency, Moved: new(big.Int), Reversed: new(big.Int)}
		t[k] = total
	}
	return total
}

func (t totals) moved(m settle.Movement) {
	total := t.of(totalKey{m.AccountID, m.Currency})
	total.Movements++
	total.Moved.Add(total.Moved, big.NewInt(m.AmountCents))
}

func (t totals) reversed(m settle.Movement, r spannerstore.ReversalRow) {
	total := t.of(totalKey{m.AccountID, m.Currency})
	total.Reversals++
	total.Reversed.Add(total.Reversed, big.NewInt(r.AmountCents))
}

// add adds a page's totals.
func (t totals) add(page totals) {
	for k, more := range page {
		total := t.of(k)
		total.Movements += more.Movements
		total.Reversals += more.Reversals
		total.Moved.Add(total.Moved, more.Moved)
		total.Reversed.Add(total.Reversed, more.Reversed)
	}
}

// sorted returns the totals by currency and account.
func (t totals) sorted() []Total {
	var all []Total
	for _, total := range slices.SortedFunc(maps.Values(t), func(a, b *Total) int {
		return cmp.Or(cmp.Compare(a.Currency, b.Currency), cmp.Compare(a.Account, b.Account))
	}) {
		all = append(all, *total)
	}
	return all
}
