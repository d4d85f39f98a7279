package settle

import (
	"fmt"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Action is the write with which a store carries out a judgement.
type Action int

const (
	// ActionNone writes nothing. The zero value.
	ActionNone Action = iota
	// ActionInsert inserts receipt, movement and instruction together.
	ActionInsert
	// ActionRecordConflict inserts the conflict, or raises its count.
	ActionRecordConflict
)

// Judgement is the action that a settlement needs, and the result after the action.
// The result of [ActionInsert] lacks AppliedAt: only the store knows the commit
// timestamp.
type Judgement struct {
	Action Action
	Result Result
}

// Judge compares s with the stored rows of its settlement ID. No other code tells
// duplicate and conflict apart.
//
// It fails with [payout.ErrUnknownHashVersion] where it cannot compare the stored
// hash.
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
			break // this delivery recorded it, and the answer was lost
		}
		return Judgement{Action: ActionRecordConflict, Result: result}, nil
	}
	return Judgement{Result: result}, nil
}

// FieldPayloadHash is among the differing members of a conflict when the stored
// movement does not match its own payload hash: the ledger was changed by hand.
const FieldPayloadHash = "payload_hash"

// DifferingMembers names the business members in which p differs from the
// settled payout.
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

// differentCurrency compares the messages' members, not the resulting currencies: a
// currency in the message differs from an absent one even if it equals the default,
// and two absent ones are equal even after the default has changed.
func differentCurrency(a, b payout.Payout) bool {
	if a.CurrencyDefaulted && b.CurrencyDefaulted {
		return false
	}
	return a.CurrencyDefaulted != b.CurrencyDefaulted || a.Currency != b.Currency
}

// Payout returns the settled payout. No column stores whether the message contained
// the currency, so Payout tries both and compares the payload hash. intact is false
// if neither matches.
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
