package audit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// RuleBank is that the bank says of a transfer what the bank instruction says.
const RuleBank Rule = "bank"

// maxUnanswered is how many questions in a row can bring nothing before the run
// gives up: each of them waits for a time-out.
const maxUnanswered = 10

// Bank is a bank that is asked about every instruction.
type Bank struct {
	// Status asks what became of an instruction's transfer, under every key that it
	// had. Required.
	Status func(context.Context, transfer.Instruction) transfer.Statuses
	// Policy is the bank's. Required.
	Policy transfer.Policy
	// Limiter bounds the questions. Required.
	Limiter *rate.Limiter
	// Now tells the time. Required.
	Now func() time.Time
}

// verdict is what a difference between a bank instruction and the bank means.
type verdict int

const (
	agrees    verdict = iota // there is none
	pending                  // somebody will still mend it
	violation                // nobody will
)

// compare asks the bank about an instruction, and tells the difference.
func (v *verifier) compare(ctx context.Context, in transfer.Instruction) error {
	b := v.options.Bank
	for range 1 + len(in.Superseded) { // a question about each key
		if err := b.Limiter.Wait(ctx); err != nil {
			return fmt.Errorf("wait for the bank's turn: %w", err)
		}
	}
	began := b.Now()
	said := b.Status(ctx, in)
	r := said.Current
	if ctx.Err() != nil {
		return ctx.Err()
	}
	unknown := said.Unknown(in)
	if err := v.answered(unknown); err != nil || r.Reading == transfer.StatusUnknown {
		return err
	}
	says, why := b.judge(in, said, transfer.Interval{Began: began, Ended: b.Now()})
	if says == agrees || says == pending && unknown != "" { // the whole answer is still to come
		return nil
	}
	return v.tell(says == pending, Violation{
		Rule: RuleBank, SettlementID: in.SettlementID,
		Found: fmt.Sprintf("the bank instruction is %s, the bank says %s", in.State, strings.TrimSpace(r.Reading.String()+" "+r.Answer.Status)),
		Want:  why,
	})
}

// answered counts an instruction that the bank was asked about; unknown says of which
// of its keys the bank has not answered. It fails when that goes on for a while.
func (v *verifier) answered(unknown string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sum.Asked++
	if unknown == "" {
		v.inARow = 0
		return nil
	}
	v.sum.Unanswered++
	if v.inARow++; v.inARow >= maxUnanswered {
		return fmt.Errorf("the bank has not answered %d questions in a row: %s", v.inARow, unknown)
	}
	return nil
}

// judge tells what the bank's answer means for an instruction, and why. What the
// reconciler would make of it is the state machine's to say.
func (b *Bank) judge(in transfer.Instruction, said transfer.Statuses, took transfer.Interval) (verdict, string) {
	switch in.State {
	case transfer.StateManual:
		return pending, "a person decides about it"
	case transfer.StateReturned, transfer.StateNone:
		return judgeReturned(said.Current)
	case transfer.StateUncertain, transfer.StateAccepted, transfer.StateConfirmed, transfer.StateRejected:
	}
	change, err := b.Policy.AfterStatus(in, said, took)
	switch {
	case err != nil:
		return violation, "an answer that the state machine knows in this state"
	case change.Level >= transfer.LevelCritical:
		return violation, "a person has to decide: " + change.Event.Detail
	case change.Next.State == in.State && expected(in.State, said.Current.Reading):
		return agrees, ""
	case in.NextCheckAt.IsZero() && change.Next.State != in.State:
		return violation, fmt.Sprintf("the state %s; nobody asks the bank about it any more", change.Next.State)
	case change.Next.State == in.State:
		return pending, "the state stays as it is: " + change.Event.Detail
	}
	return pending, fmt.Sprintf("the reconciler takes it to %s", change.Next.State)
}

// expected reports whether the bank says just what the state says.
func expected(state transfer.State, says transfer.StatusReading) bool {
	switch state {
	case transfer.StateAccepted:
		return says == transfer.StatusPending
	case transfer.StateConfirmed:
		return says == transfer.StatusConfirmed
	case transfer.StateRejected:
		// Some banks keep no trace of what they refuse.
		return says == transfer.StatusRejected || says == transfer.StatusNotFound
	case transfer.StateUncertain, transfer.StateReturned, transfer.StateManual, transfer.StateNone:
	}
	return false
}

// judgeReturned is about a state that nothing leaves: the bank is no longer asked.
func judgeReturned(r transfer.StatusResult) (verdict, string) {
	switch r.Reading {
	case transfer.StatusReturned:
		return agrees, ""
	case transfer.StatusConfirmed, transfer.StatusManual:
		return violation, "returned: the movement is reversed, and the bank has the money out"
	case transfer.StatusNotFound, transfer.StatusPending, transfer.StatusRejected, transfer.StatusAttention, transfer.StatusUnknown:
	}
	return pending, "returned; the money did not go out"
}
