package ledger

import (
	"slices"
	"strconv"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// Member is one member of two payouts, side by side. Nil: the message lacks it.
type Member struct {
	Name    string  `json:"name"`
	Settled *string `json:"settled"`
	Message *string `json:"message"`
	// Differs says that the conflict names this member.
	Differs bool `json:"differs"`
}

// noCurrency is ISO 4217's code for no currency. Decoding a message without one needs
// a default, which is not shown.
const noCurrency = "XXX"

// compare fills in Members and Fault.
func (c *Conflict) compare(m settle.Movement) {
	settled, _ := m.Payout()
	message, err := payout.Decode(c.Payload, noCurrency)
	if err != nil {
		c.Fault = err.Error()
	}
	theirs := payoutMembers(message)
	for i, ours := range payoutMembers(settled) {
		one := Member{Name: ours.name, Settled: ours.value, Differs: slices.Contains(c.Fields, ours.name)}
		if err == nil {
			one.Message = theirs[i].value
		}
		c.Members = append(c.Members, one)
	}
}

type payoutMember struct {
	name  string
	value *string // nil: absent
}

// payoutMembers returns a payout's business members, in the order of the message's
// documentation.
func payoutMembers(p payout.Payout) []payoutMember {
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
	return []payoutMember{
		{"settlement_id", present(p.SettlementID)},
		{"account_id", present(p.AccountID)},
		{"amount_cents", &amount},
		{"currency", currency},
		{"creditor_account", present(p.CreditorAccount)},
		{"reference", present(p.Reference)},
	}
}
