package investigate

import (
	"slices"
	"strconv"

	"github.com/settleonce/settleonce/internal/settle"
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

// payoutOf returns the payout that a movement settled. The columns do not tell
// whether the message had its currency written out; the payload hash does, since
// only one of the two hashes to it. intact is false where neither does.
func payoutOf(m settle.Movement) (p settle.Payout, intact bool) {
	p = settle.Payout{
		SettlementID: m.SettlementID, AccountID: m.AccountID, AmountCents: m.AmountCents,
		Currency: m.Currency, CreditorAccount: m.CreditorAccount, Reference: m.Reference,
	}
	for _, defaulted := range [...]bool{true, false} {
		p.CurrencyDefaulted = defaulted
		if same, err := m.PayloadHash.Matches(p); err == nil && same {
			return p, true
		}
	}
	return p, false
}

// compare puts the kept message beside the payout that was settled.
func (c *Conflict) compare(m settle.Movement) {
	settled, _ := payoutOf(m)
	// A currency is needed to decode a message without one; which is not looked at.
	message, err := settle.Decode(c.Payload, "XXX")
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
func members(p settle.Payout) []namedValue {
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
