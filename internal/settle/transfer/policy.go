package transfer

import (
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"
)

// Figures of the state machine that no bank changes.
const (
	// lease is how long one exchange and its recording may take; a step that goes
	// on to a send holds a new one.
	lease = 60 * time.Second
	// maxResends bounds the sends after the first.
	maxResends = 3
	// giveUpAfter is how long after the creation a person decides.
	giveUpAfter = 7 * 24 * time.Hour
	// watchFor is how long after a final state the bank is still asked, daily.
	watchFor = 10 * 24 * time.Hour
	// firstCheckAtLeast is the least time between a send and the first question.
	firstCheckAtLeast = 15 * time.Second
	// heldFor is the least time before a bank that did not let us in is tried
	// again.
	heldFor = 10 * time.Minute
)

// pace is the time to the next question while uncertain, by the number of
// questions that brought nothing; the last one repeats.
var pace = [...]time.Duration{
	30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// Policy holds the figures that differ between banks.
type Policy struct {
	// KeyLifetime is how long the bank remembers an idempotency key.
	KeyLifetime time.Duration
	// VisibilityLag is how late the status API may show a transfer.
	VisibilityLag time.Duration
	// SendTimeout is the time limit of one send, StatusTimeout that of one
	// question.
	SendTimeout, StatusTimeout time.Duration
}

func (p Policy) lag() time.Duration        { return max(p.VisibilityLag, time.Second) }
func (p Policy) firstCheck() time.Duration { return max(p.VisibilityLag, firstCheckAtLeast) }

// Plan is what a step does with an instruction that it holds.
type Plan int

const (
	// PlanNothing means that the step is over. The zero value.
	PlanNothing Plan = iota
	// PlanSend means to send; the send is already counted.
	PlanSend
	// PlanAsk means to ask the status API.
	PlanAsk
)

// Event is a row in the history of an instruction.
type Event struct {
	From, To State
	// Cause is what made the change: created, send, send answered, status or decided.
	Cause string
	// HTTPStatus is the bank's; zero where there was no answer.
	HTTPStatus int
	// Detail says in words what was seen. It holds no payload.
	Detail string
}

// Causes of events.
const (
	CauseCreated = "created"
	CauseSend    = "send"
	CauseAnswer  = "send answered"
	CauseStatus  = "status"
)

// Change is one change of an instruction, with everything that belongs into the
// same transaction. The zero value changes nothing.
type Change struct {
	// Write says that something is to be stored.
	Write bool
	// Next is the instruction after the change.
	Next Instruction
	// Event is the history's row, under Next's version; nil for a mere lease.
	Event *Event
	// Class names what was seen of the bank, as [SendClass] and [StatusReading] do;
	// empty where the change is not about an exchange.
	Class string
	// Supersedes is the instruction as it was under the key that Next no longer
	// has; nil where the key and the body stay what they are.
	Supersedes *Instruction
	// Reverse says to insert the movement's reversal, for the reason of Next's
	// state.
	Reverse bool
	// Settled says that the outcome has become final: the receipt's expiry
	// begins.
	Settled bool
	// Level is how loud the line about the change is; [LevelCritical] is for what
	// must never happen.
	Level slog.Level
	// Follow is what the step does after the change, under the lease of Next.
	Follow Plan
}

// Errors by which a change is not made.
var (
	// ErrNotDue reports an instruction that needs nothing now, or that another
	// step works on.
	ErrNotDue = errors.New("the bank instruction is not due")
	// ErrLeaseLost reports an instruction that somebody else has changed in the
	// meantime. What the step has seen is not recorded; the next step asks again.
	ErrLeaseLost = errors.New("the bank instruction was changed by somebody else")
	// ErrOutOfTime reports an exchange that was not begun, because its lease or the
	// key's life could have ended before it. The next step asks first.
	ErrOutOfTime = errors.New("too late to begin the exchange with the bank")
	// ErrNoInstruction reports a settlement without a bank instruction.
	ErrNoInstruction = errors.New("the settlement has no bank instruction")
)

// Claim leases the instruction to owner. Where the plan is to send, the send is
// counted in the same change: from then on it may have reached the bank. A store
// can run Claim again after its own commit: it recognises owner and changes
// nothing more. It fails with [ErrNotDue].
func (p Policy) Claim(in Instruction, owner string, now time.Time) (Change, error) {
	if in.Owner == owner {
		plan := PlanAsk
		if in.LastSentAt.Equal(now) {
			plan = PlanSend
		}
		return Change{Next: in, Follow: plan}, nil
	}
	plan := planFor(in, now)
	if plan == PlanNothing || now.Before(in.LeaseUntil) {
		return Change{}, ErrNotDue
	}
	next := in
	if !in.LeaseUntil.IsZero() && in.Sends > 0 {
		// The holder died. If it was sending, it may have begun as late as this.
		next.LastSentAt = later(in.LastSentAt, in.LeaseUntil.Add(-p.SendTimeout))
	}
	hold(&next, owner, now)
	if plan == PlanAsk {
		return Change{Write: true, Next: next, Follow: PlanAsk}, nil
	}
	next.Version++
	p.countSend(&next, now)
	event := &Event{From: in.State, To: next.State, Cause: CauseSend}
	return Change{Write: true, Next: next, Event: event, Follow: PlanSend}, nil
}

// planFor tells what an instruction needs now.
func planFor(in Instruction, now time.Time) Plan {
	if in.NextCheckAt.IsZero() || now.Before(in.NextCheckAt) {
		return PlanNothing
	}
	switch in.State {
	case StateUncertain:
		if len(in.Superseded) > 0 {
			return PlanAsk // no send without a look at the keys that it had
		}
		if in.Sends == 0 {
			return PlanSend // nothing can have reached the bank
		}
		if in.SendDeferred && in.Sends <= maxResends && now.Before(in.ResendNotAfter) {
			return PlanSend // the bank asked for it
		}
		return PlanAsk
	case StateAccepted, StateConfirmed, StateRejected:
		return PlanAsk
	case StateReturned, StateManual, StateNone:
		return PlanNothing
	}
	return PlanNothing
}

// hold leases next. A step that dies leaves it due when the lease ends.
func hold(next *Instruction, owner string, now time.Time) {
	next.Owner, next.LeaseUntil = owner, now.Add(lease)
	next.NextCheckAt = next.LeaseUntil
}

// holdForSend makes a new instruction one that owner holds and is about to send.
func (p Policy) holdForSend(in *Instruction, owner string) {
	now := in.NextCheckAt
	hold(in, owner, now)
	p.countSend(in, now)
}

func (p Policy) countSend(next *Instruction, now time.Time) {
	next.Sends++
	next.LastSentAt = now
	next.NotFoundSince = time.Time{}
	next.SendDeferred = false
	if next.FirstSentAt.IsZero() {
		next.FirstSentAt = now
		next.ResendNotAfter = now.Add(ResendWindow(p.KeyLifetime))
	}
}

// Interval is the time that an exchange with the bank took. What the bank said was
// true at some moment of it, so each rule counts from the end that makes it wait
// longer.
type Interval struct{ Began, Ended time.Time }

// Sent works out the change that a send's result makes.
func (p Policy) AfterSend(in Instruction, r SendResult, took Interval) (Change, error) {
	in.LastSentAt = later(in.LastSentAt, took.Began) // the claim may have waited for its commit
	return p.apply(in, r.observation(), CauseAnswer, r.Class.String(), r.Answer, took)
}

// Asked works out the change that what the status API said makes.
func (p Policy) AfterStatus(in Instruction, said Statuses, took Interval) (Change, error) {
	r := said.Current
	if alive := said.supersededAlive(); alive != "" {
		answer := BankAnswer{HTTPStatus: r.Answer.HTTPStatus, Detail: alive + "; the present key is " + r.Reading.String()}
		return p.apply(in, sawSupersededAlive, CauseStatus, StatusManual.String(), answer, took)
	}
	if !said.known(in) && p.wantsProof(in, r.observation(), took) {
		detail := joinDetail(said.Unknown(in), "the present key is "+r.Reading.String())
		r = StatusResult{Answer: BankAnswer{HTTPStatus: r.Answer.HTTPStatus, RetryAfter: r.Answer.RetryAfter, Detail: detail}}
	}
	return p.apply(in, r.observation(), CauseStatus, r.Reading.String(), r.Answer, took)
}

// wantsProof reports whether an observation can lead to a send or to a reversal.
// Neither may be while a key that the instruction had is in doubt.
func (p Policy) wantsProof(in Instruction, saw observation, took Interval) bool {
	if saw == sawNotFound && in.State == StateUncertain {
		return true // the first one lets the second send
	}
	t, _ := p.transition(in, saw, took)
	return t.to != in.State && t.to.reverses()
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// observe looks the transition up and works out everything that goes with it.
func (p Policy) apply(in Instruction, saw observation, cause, word string, answer BankAnswer, took Interval) (Change, error) {
	now := took.Ended
	t, ok := p.transition(in, saw, took)
	if !ok {
		return Change{}, fmt.Errorf("instruction of settlement %q: %s %s cannot be seen in state %s", in.SettlementID, cause, word, in.State)
	}
	next := in
	next.State = t.to
	next.Version++
	next.LeaseUntil = time.Time{}
	if answer.TransferID != "" {
		next.TransferID = answer.TransferID
	}
	if answer.Status != "" {
		next.BankStatus = answer.Status
	}
	if t.then != nil {
		t.then(p, &next, took)
	}
	if t.resend && answer.RetryAfter > 0 {
		t.resend, t.note = false, "not found twice: sending the same key and bytes again when the bank wants to be asked"
		next.SendDeferred = true
	}
	change := Change{
		Write: true, Level: t.level(in, saw, answer), Class: word,
		Reverse: t.to != in.State && t.to.reverses(),
		Settled: t.to.Final() && in.FinalAt.IsZero(),
		Event:   &Event{From: in.State, To: t.to, Cause: cause, HTTPStatus: answer.HTTPStatus, Detail: joinDetail(word, t.note, answer.Detail)},
	}
	countCheck(&next, in.State, saw, now)
	next.NextCheckAt = p.nextCheck(next, saw, answer, now)
	if t.resend {
		hold(&next, in.Owner, now)
		p.countSend(&next, now)
		change.Follow = PlanSend
	}
	change.Next = next
	return change, nil
}

// level is how loud a change by t is.
func (t transition) level(in Instruction, saw observation, answer BankAnswer) slog.Level {
	switch {
	case t.critical:
		return LevelCritical
	case t.to == StateManual && in.State != StateManual, saw == sawHeld:
		return slog.LevelError
	case answer.Detail != "" && (saw == sawPending || saw == sawConfirmed || saw == sawAccepted):
		return slog.LevelWarn // the answer was understood, and something about it is unusual
	}
	return slog.LevelInfo
}

func (p Policy) transition(in Instruction, saw observation, took Interval) (transition, bool) {
	for _, t := range transitions {
		if t.from == in.State && t.on == saw && (t.guard == nil || t.guard(p, in, took)) {
			return t, true
		}
	}
	return transition{}, false
}

// countCheck keeps the books of a state that was entered, and of one that was kept.
func countCheck(next *Instruction, from State, saw observation, now time.Time) {
	if next.State == from {
		next.Checks++
		if saw == sawUncertain {
			next.Checks = 0 // the questions about a send begin anew
		}
		return
	}
	next.Checks = 0
	if next.State == StateAccepted {
		next.AcceptedAt = now
	}
	if next.State.Final() && next.FinalAt.IsZero() {
		next.FinalAt = now
	}
}

// nextCheck is when next is looked at next, after saw was seen; zero for never.
func (p Policy) nextCheck(next Instruction, saw observation, answer BankAnswer, now time.Time) time.Time {
	wait := p.wait(next, saw, now)
	if wait == 0 {
		return time.Time{}
	}
	return now.Add(max(wait, answer.RetryAfter))
}

func (p Policy) wait(next Instruction, saw observation, now time.Time) time.Duration {
	switch next.State {
	case StateUncertain:
		return p.waitUncertain(next, saw)
	case StateAccepted:
		switch age := now.Sub(next.AcceptedAt); {
		case age == 0:
			return p.firstCheck()
		case age < 24*time.Hour:
			return jitter(time.Hour, next)
		case age < 5*24*time.Hour:
			return jitter(6*time.Hour, next)
		default:
			return jitter(24*time.Hour, next)
		}
	case StateConfirmed, StateRejected:
		if now.Before(next.FinalAt.Add(watchFor)) {
			return jitter(24*time.Hour, next)
		}
		return 0
	case StateReturned, StateManual, StateNone:
		return 0
	}
	return 0
}

func (p Policy) waitUncertain(next Instruction, saw observation) time.Duration {
	scheduled := jitter(pace[min(max(int(next.Checks)-1, 0), len(pace)-1)], next)
	switch saw { //nolint:exhaustive // the others have nothing special about them
	case sawUncertain:
		return p.firstCheck()
	case sawHeld:
		return max(scheduled, heldFor)
	case sawNotFound:
		return max(scheduled, p.lag())
	}
	return scheduled
}

// jitter spreads d by up to a fifth, so that instructions that met one outage do
// not all come back at the same moment. It depends on the instruction and its
// number of checks alone: the same history gives the same times.
func jitter(d time.Duration, in Instruction) time.Duration {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s %d", in.SettlementID, in.Checks)
	const steps = 1000
	offset := int64(h.Sum32()%(2*steps+1)) - steps // -1000 to 1000
	return d + time.Duration(int64(d)/5*offset/steps)
}

func joinDetail(parts ...string) string {
	text := ""
	for _, part := range parts {
		switch {
		case part == "":
		case text == "":
			text = part
		default:
			text += "; " + part
		}
	}
	return text
}
