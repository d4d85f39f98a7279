package audit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// maxUnanswered is the number of consecutive unanswered requests that ends the run:
// each of them waits for a time-out.
const maxUnanswered = 10

// Bank asks a bank about every instruction.
type Bank struct {
	// Status asks about a transfer. Required.
	Status func(context.Context, transfer.StatusRequest) transfer.StatusResult
	// Policy is the bank's. Required.
	Policy transfer.Policy
	// Limiter bounds the requests. Required.
	Limiter *rate.Limiter
	// Now tells the time. Required.
	Now func() time.Time
}

// verdict rates a difference between an instruction and the bank.
type verdict int

const (
	same      verdict = iota // there is none
	pending                  // the reconciler or a person will still resolve it
	violation                // it stays
)

// askBank asks the bank about an instruction, and reports a difference.
func (v *verifier) askBank(ctx context.Context, in transfer.Instruction) error {
	b := v.options.Bank
	if err := b.Limiter.Wait(ctx); err != nil {
		return fmt.Errorf("wait for the bank's rate limit: %w", err)
	}
	began := b.Now()
	r := b.Status(ctx, transfer.StatusRequest{Transfer: in.Transfer})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := v.countAnswer(r.Unknown()); err != nil || r.Reading == transfer.StatusUnknown {
		return err
	}
	rating, why := b.judge(in, r, transfer.Interval{Began: began, Ended: b.Now()})
	if rating == same {
		return nil
	}
	return v.report(rating == pending, Violation{
		Rule: RuleBank, SettlementID: in.SettlementID,
		Found: fmt.Sprintf("the bank instruction is %s, the bank says %s", in.State, strings.TrimSpace(r.Reading.String()+" "+r.Answer.Status)),
		Want:  why,
	})
}

// countAnswer counts an instruction that the bank was asked about; unknown describes an
// answer that proves nothing. It fails after [maxUnanswered] of them in a row.
func (v *verifier) countAnswer(unknown string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sum.Asked++
	if unknown == "" {
		v.inARow = 0
		return nil
	}
	v.sum.Unanswered++
	if v.inARow++; v.inARow >= maxUnanswered {
		return fmt.Errorf("the bank has not answered %d requests in a row: %s", v.inARow, unknown)
	}
	return nil
}

// judge rates the bank's answer about an instruction, with the reason. The state
// machine says how the reconciler would act on it.
func (b *Bank) judge(in transfer.Instruction, r transfer.StatusResult, took transfer.Interval) (verdict, string) {
	switch in.State {
	case transfer.StateManual:
		return pending, "a person decides about it"
	case transfer.StateReturned, transfer.StateNone:
		return judgeReturned(r)
	case transfer.StateUncertain, transfer.StateAccepted, transfer.StateConfirmed, transfer.StateRejected:
	}
	change, err := b.Policy.AfterStatus(in, r, took)
	switch {
	case err != nil:
		return violation, "an answer that the state machine knows in this state"
	case change.Level >= transfer.LevelCritical:
		return violation, "a person has to decide: " + change.Event.Detail
	case change.Next.State == in.State && agrees(in.State, r.Reading):
		return same, ""
	case in.NextCheckAt.IsZero() && change.Next.State != in.State:
		return violation, fmt.Sprintf("the state %s; the reconciler no longer asks the bank about it", change.Next.State)
	case change.Next.State == in.State:
		return pending, "the state stays as it is: " + change.Event.Detail
	}
	return pending, fmt.Sprintf("the reconciler will change it to %s", change.Next.State)
}

// judgeReturned is about a final state, in which the bank is no longer asked.
func judgeReturned(r transfer.StatusResult) (verdict, string) {
	switch {
	case agrees(transfer.StateReturned, r.Reading):
		return same, ""
	case r.Reading == transfer.StatusConfirmed || r.Reading == transfer.StatusManual:
		return violation, "returned: the movement is reversed, and the bank has paid"
	}
	return pending, "returned; the bank has not paid"
}

// agrees reports whether a transfer's status at the bank is exactly the state's.
func agrees(state transfer.State, status transfer.StatusReading) bool {
	switch state {
	case transfer.StateAccepted:
		return status == transfer.StatusPending
	case transfer.StateConfirmed:
		return status == transfer.StatusConfirmed
	case transfer.StateRejected: // some banks keep no record of a refused transfer
		return status == transfer.StatusRejected || status == transfer.StatusNotFound
	case transfer.StateReturned:
		return status == transfer.StatusReturned
	case transfer.StateUncertain, transfer.StateManual, transfer.StateNone:
	}
	return false
}

// BankTransfer is a transfer in the bank's own ledger.
type BankTransfer struct {
	// ID is the bank's, Key the idempotency key.
	ID, Key string
	// SettlementID and the next fields are the content, as the movement has it.
	SettlementID, AccountID    string
	AmountCents                int64
	Currency                   string
	CreditorAccount, Reference string
	// Status is confirmed, rejected or returned.
	Status transfer.StatusReading
}

// CompareBank compares all bank instructions with the bank's own ledger, in both
// directions, and returns each disagreement as a line. An instruction may be behind the
// bank, since the reconciler has not asked yet. It may not be ahead of the bank, have two
// transfers, or have one with other content.
func CompareBank(s Snapshot, ledger []BankTransfer) (disagreements []string) {
	byKey := map[string][]BankTransfer{}
	for _, t := range ledger {
		byKey[t.Key] = append(byKey[t.Key], t)
	}
	for _, in := range s.Instructions {
		key := in.Transfer.Key.String()
		transfers := byKey[key]
		delete(byKey, key)
		if why := disagreement(s, in, transfers); why != "" {
			disagreements = append(disagreements, fmt.Sprintf("settlement %q: %s, and the bank's ledger has %+v", in.SettlementID, why, transfers))
		}
	}
	for _, t := range ledger {
		if _, stray := byKey[t.Key]; stray {
			disagreements = append(disagreements, fmt.Sprintf("the bank's ledger has %+v, and no bank instruction has its key", t))
		}
	}
	return disagreements
}

// disagreement describes how an instruction and the transfers under its key
// disagree; empty: they agree.
func disagreement(s Snapshot, in transfer.Instruction, transfers []BankTransfer) string {
	status := transfer.StatusNotFound
	m := s.Movement(in.SettlementID)
	for _, t := range transfers {
		if m == nil {
			return "the movement is missing"
		}
		if t != (BankTransfer{
			ID: t.ID, Key: t.Key, SettlementID: m.SettlementID, AccountID: m.AccountID, AmountCents: m.AmountCents, Currency: m.Currency,
			CreditorAccount: m.CreditorAccount, Reference: m.Reference, Status: t.Status,
		}) {
			return fmt.Sprintf("the movement is %+v", *m)
		}
		if in.TransferID != "" && t.ID != in.TransferID {
			return "the bank instruction has transfer ID " + in.TransferID
		}
		status = t.Status
	}
	if len(transfers) > 1 || !agrees(in.State, status) && !tolerates(in.State, status) {
		return fmt.Sprintf("the bank instruction is %s", in.State)
	}
	return ""
}

// tolerates reports whether an instruction can rightly have the state although the
// bank's status is another: the reconciler has not asked yet, or a person has rejected a
// transfer that was sent back.
func tolerates(state transfer.State, status transfer.StatusReading) bool {
	switch state {
	case transfer.StateUncertain, transfer.StateManual:
		return true
	case transfer.StateAccepted:
		return status != transfer.StatusNotFound
	case transfer.StateConfirmed, transfer.StateRejected:
		return status == transfer.StatusReturned
	case transfer.StateReturned, transfer.StateNone:
	}
	return false
}
