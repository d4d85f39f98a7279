package ledger

import (
	"slices"
	"strconv"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// Member is one member of two payouts, side by side. Nil means that the message
// has no such member.
type Member struct {
	Name    string  `json:"name"`
	Settled *string `json:"settled"`
	Message *string `json:"message"`
	// Differs says that the conflict is, among others, about this member.
	Differs bool `json:"differs"`
}

// noCurrency is ISO 4217's code for no currency. A message without a currency cannot
// be decoded without a default; what it then has is not shown.
const noCurrency = "XXX"

// compare puts the kept message beside the payout that was settled.
func (c *Conflict) compare(m settle.Movement) {
	settled, _ := m.Payout()
	message, err := payout.Decode(c.Payload, noCurrency)
	if err != nil {
		c.Fault = err.Error()
	}
	ours, theirs := members(settled), members(message)
	for i, member := range ours {
		one := Member{Name: member.name, Settled: member.value, Differs: slices.Contains(c.Fields, member.name)}
		if err == nil {
			one.Message = theirs[i].value
		}
		c.Members = append(c.Members, one)
	}
}

type namedValue struct {
	name  string
	value *string // nil: absent
}

// members are the business members of a payout, in the order of the payout
// message's table.
func members(p payout.Payout) []namedValue {
	present := func(value string) *string {
		if value == "" {
			return nil
		}
		return &value
	}
	amount, currency := strconv.FormatInt(p.AmountCents, 10), present(p.Currency)
	if p.CurrencyDefaulted {
		currency = nil
	}
	return []namedValue{
		{"settlement_id", present(p.SettlementID)},
		{"account_id", present(p.AccountID)},
		{"amount_cents", &amount},
		{"currency", currency},
		{"creditor_account", present(p.CreditorAccount)},
		{"reference", present(p.Reference)},
	}
}
