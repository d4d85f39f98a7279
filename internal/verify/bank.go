package verify

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/snapshot"
)

// RuleBank is that the bank says of a transfer what the bank instruction says.
const RuleBank snapshot.Rule = "bank"

// maxUnanswered is how many questions in a row can bring nothing before the run
// gives up: each of them waits for a time-out.
const maxUnanswered = 10

// Bank is a bank that is asked about every instruction.
type Bank struct {
	// Status asks what became of an instruction's transfer, under every key that it
	// had. Required.
	Status func(context.Context, settle.Instruction) settle.Statuses
	// Policy is the bank's. Required.
	Policy settle.Policy
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
func (v *verifier) compare(ctx context.Context, in settle.Instruction) error {
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
	if err := v.answered(unknown); err != nil || r.Reading == settle.StatusUnknown {
		return err
	}
	says, why := b.judge(in, said, settle.Span{Began: began, Ended: b.Now()})
	if says == agrees || says == pending && unknown != "" { // the whole answer is still to come
		return nil
	}
	return v.tell(says == pending, snapshot.Violation{
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
func (b *Bank) judge(in settle.Instruction, said settle.Statuses, took settle.Span) (verdict, string) {
	switch in.State {
	case settle.InstructionManual:
		return pending, "a person decides about it"
	case settle.InstructionReturned, settle.InstructionNone:
		return judgeReturned(said.Current)
	case settle.InstructionUncertain, settle.InstructionAccepted, settle.InstructionConfirmed, settle.InstructionRejected:
	}
	change, err := b.Policy.Asked(in, said, took)
	switch {
	case err != nil:
		return violation, "an answer that the state machine knows in this state"
	case change.Level >= settle.LevelCritical:
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
func expected(state settle.InstructionState, says settle.StatusReading) bool {
	switch state {
	case settle.InstructionAccepted:
		return says == settle.StatusPending
	case settle.InstructionConfirmed:
		return says == settle.StatusConfirmed
	case settle.InstructionRejected:
		// Some banks keep no trace of what they refuse.
		return says == settle.StatusRejected || says == settle.StatusNotFound
	case settle.InstructionUncertain, settle.InstructionReturned, settle.InstructionManual, settle.InstructionNone:
	}
	return false
}

// judgeReturned is about a state that nothing leaves: the bank is no longer asked.
func judgeReturned(r settle.StatusResult) (verdict, string) {
	switch r.Reading {
	case settle.StatusReturned:
		return agrees, ""
	case settle.StatusConfirmed, settle.StatusManual:
		return violation, "returned: the movement is reversed, and the bank has the money out"
	case settle.StatusNotFound, settle.StatusPending, settle.StatusRejected, settle.StatusAttention, settle.StatusUnknown:
	}
	return pending, "returned; the money did not go out"
}
