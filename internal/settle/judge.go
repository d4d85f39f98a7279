package settle

import (
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

import "fmt"

// Action is what a store has to do to carry out a judgement.
type Action int

const (
	// ActionNone means that nothing is changed. The zero value.
	ActionNone Action = iota
	// ActionInsert means to insert receipt, movement and instruction together.
	ActionInsert
	// ActionRecordConflict means to insert the conflict, or to raise its count.
	ActionRecordConflict
)

// Judgement is what has to be done about a settlement, and the result once it
// is done. The result of [ActionInsert] lacks AppliedAt, the commit timestamp,
// which only the store can know.
type Judgement struct {
	Action Action
	Result Result
}

// Judge decides about s by what is stored under its settlement ID. It is the
// only place where duplicate and conflict are told apart.
//
// It fails with [payout.ErrUnknownHashVersion] where the stored hash cannot be
// compared.
func Judge(stored Stored, s Settlement) (Judgement, error) {
	result := Result{SettlementID: s.Payout.SettlementID, PayloadHash: s.Hash, Instruction: stored.Instruction}
	if stored.Movement == nil {
		result.Outcome = OutcomeApplied
		if s.Instruction != nil {
			result.Instruction = transfer.StateUncertain
		}
		return Judgement{Action: ActionInsert, Result: result}, nil
	}
	known, own := stored.Movement.PayloadHash, false
	result.AppliedAt = stored.Movement.RecordedAt
	if stored.Receipt != nil {
		known, own = stored.Receipt.PayloadHash, stored.Receipt.DeliveryID == s.DeliveryID
	} else {
		result.ReceiptExpired = true
	}
	same, err := known.Matches(s.Payout)
	if err != nil {
		return Judgement{}, fmt.Errorf("judge settlement %q: %w", s.Payout.SettlementID, err)
	}
	switch {
	case same && own:
		result.Outcome = OutcomeApplied
	case same:
		result.Outcome = OutcomeDuplicate
	default:
		result.Outcome = OutcomeConflict
		result.Fields = stored.Movement.DifferingMembers(s.Payout)
		if stored.ConflictDeliveryID == s.DeliveryID {
			break // this delivery has recorded it already, and the answer was lost
		}
		return Judgement{Action: ActionRecordConflict, Result: result}, nil
	}
	return Judgement{Result: result}, nil
}

// FieldPayloadHash stands among the differing members of a conflict when the
// stored movement does not hash to its own payload hash: somebody has changed
// the ledger by hand.
const FieldPayloadHash = "payload_hash"

// DifferingMembers names the business members in which p differs from the
// payout that was settled.
func (m Movement) DifferingMembers(p payout.Payout) []string {
	settled, intact := m.Payout()
	var names []string
	differs := func(name string, different bool) {
		if different {
			names = append(names, name)
		}
	}
	differs(payout.MemberSettlementID, settled.SettlementID != p.SettlementID)
	differs(payout.MemberAccountID, settled.AccountID != p.AccountID)
	differs(payout.MemberAmountCents, settled.AmountCents != p.AmountCents)
	differs(payout.MemberCurrency, differentCurrency(settled, p))
	differs(payout.MemberCreditorAccount, settled.CreditorAccount != p.CreditorAccount)
	differs(payout.MemberReference, settled.Reference != p.Reference)
	differs(FieldPayloadHash, !intact)
	return names
}

// differentCurrency compares the member and not its effect: a currency that is
// written out differs from an absent one even where the default is the same,
// and two absent ones are equal even after the default was changed.
func differentCurrency(a, b payout.Payout) bool {
	if a.CurrencyDefaulted && b.CurrencyDefaulted {
		return false
	}
	return a.CurrencyDefaulted != b.CurrencyDefaulted || a.Currency != b.Currency
}

// Payout returns the payout that was settled. The columns do not tell whether
// the message had its currency written out; the payload hash does, since only
// one of the two hashes to it. intact is false where neither does.
func (m Movement) Payout() (p payout.Payout, intact bool) {
	p = payout.Payout{
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
