package settle

import (
	"slices"

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
	// ActionRecordConflict inserts the conflict.
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
// If the receipt does not decide, and receipt and movement contradict each other, the
// movement decides. The result's Disagreement names the contradiction. The delivery does
// not fail, because Pub/Sub would redeliver it for ever.
//
// It fails with [transfer.ErrNoBank] for a new payout that is [Settlement.Unroutable].
func Judge(stored Stored, s Settlement) (Judgement, error) {
	result := Result{SettlementID: s.Payout.SettlementID, PayloadHash: s.Hash}
	receipt, movement := stored.Receipt, stored.Movement
	switch {
	case receipt.Decides(s.Payout):
		result.Outcome, result.AppliedAt = OutcomeDuplicate, receipt.AppliedAt
		if receipt.DeliveryID == s.DeliveryID {
			result.Outcome = OutcomeApplied
			result.Instruction = s.createdState()
		}
		return Judgement{Result: result}, nil
	case movement == nil && s.Unroutable():
		return Judgement{}, transfer.ErrNoBank
	case movement == nil:
		result.Outcome, result.Instruction = OutcomeApplied, s.createdState()
		return Judgement{Action: ActionInsert, Result: result}, nil
	}
	result.AppliedAt, result.ReceiptExpired = movement.RecordedAt, receipt == nil
	if receipt != nil && receipt.PayloadHash != movement.PayloadHash {
		result.Disagreement = DisagreementReceipt
	}
	fields := movement.DifferingMembers(s.Payout)
	if slices.Contains(fields, FieldPayloadHash) {
		result.Disagreement = DisagreementHash
	}
	same, err := movement.PayloadHash.Matches(s.Payout)
	if err != nil { // no known algorithm made the stored hash: the columns decide
		same = slices.Equal(fields, []string{FieldPayloadHash})
	}
	if same {
		result.Outcome = OutcomeDuplicate
		return Judgement{Result: result}, nil
	}
	result.Outcome, result.Fields = OutcomeConflict, fields
	if stored.ConflictKnown {
		result.Known = true
		return Judgement{Result: result}, nil
	}
	return Judgement{Action: ActionRecordConflict, Result: result}, nil
}

// createdState is the state of the instruction that the settlement's commit creates.
func (s Settlement) createdState() transfer.State {
	if s.Instruction == nil {
		return transfer.StateNone
	}
	return transfer.StateUncertain
}

// The contradictions between stored rows, as [Result] tells them.
const (
	// DisagreementReceipt means that receipt and movement have different payload hashes.
	DisagreementReceipt = "receipt_and_movement_differ"
	// DisagreementHash means that the movement's payload hash is not the hash of its
	// columns, or was made by an algorithm that this program does not know.
	DisagreementHash = "movement_and_hash_differ"
)

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
	differs(payout.MemberCurrency, intact && differentCurrency(settled, p) || !intact && !p.CurrencyDefaulted && settled.Currency != p.Currency)
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
