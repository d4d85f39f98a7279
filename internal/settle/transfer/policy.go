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
	// lease bounds one exchange and its recording. A resend in the same step gets a new
	// lease.
	lease = 60 * time.Second
	// maxResends bounds the sends after the first.
	maxResends = 3
	// giveUpAfter is the time after the creation or a new key at which people decide.
	giveUpAfter = 7 * 24 * time.Hour
	// watchFor is the time of daily status checks after a final state.
	watchFor = 10 * 24 * time.Hour
	// firstCheckAtLeast is the least time between a send and the first status check.
	firstCheckAtLeast = 15 * time.Second
	// heldFor is the least time to the next exchange after the bank rejected our
	// credentials.
	heldFor = 10 * time.Minute
)

// pace is the time to the next status check while uncertain, by the number of checks
// without a change; the last value repeats.
var pace = [...]time.Duration{
	30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// Policy holds the figures that differ between banks.
type Policy struct {
	// KeyLifetime is the time for which the bank remembers an idempotency key.
	KeyLifetime time.Duration
	// VisibilityLag is the longest time until the status API shows a new transfer.
	VisibilityLag time.Duration
	// SendTimeout and StatusTimeout bound one exchange each.
	SendTimeout, StatusTimeout time.Duration
}

// LongestSend bounds [Stepper.SendCreated]: a send and its recording.
func (p Policy) LongestSend() time.Duration { return p.SendTimeout + RecordTimeout }

// LongestStep bounds the duration of a claimed step: a status request, a send and the
// recording of both.
func (p Policy) LongestStep() time.Duration { return p.StatusTimeout + RecordTimeout + p.LongestSend() }

func (p Policy) lag() time.Duration        { return max(p.VisibilityLag, time.Second) }
func (p Policy) firstCheck() time.Duration { return max(p.VisibilityLag, firstCheckAtLeast) }

// Plan is the next exchange of a step with the bank.
type Plan int

const (
	// PlanNothing ends the step. The zero value.
	PlanNothing Plan = iota
	// PlanSend sends the instruction; the send is already counted.
	PlanSend
	// PlanAsk asks the status API.
	PlanAsk
)

// Event is a row in the history of an instruction.
type Event struct {
	From State `json:"from_state"`
	To   State `json:"to_state"`
	// Cause is one of the Cause constants.
	Cause string `json:"cause"`
	// HTTPStatus is the bank's; zero if there was no answer.
	HTTPStatus int `json:"http_status,omitzero"`
	// Detail describes the bank's answer or the decision. It holds no payload.
	Detail string `json:"detail,omitzero"`
}

// Causes of events, beside [CauseDecided].
const (
	CauseCreated = "created"
	CauseSend    = "send"
	CauseAnswer  = "send answered"
	CauseStatus  = "status"
)

// Change is one change of an instruction, with all rows of its transaction. The zero
// value changes nothing.
type Change struct {
	// Write is false if the change stores nothing.
	Write bool
	// Next is the instruction after the change.
	Next Instruction
	// Event is the row of the history, under Next's version; nil for a lease alone.
	Event *Event
	// Class is the name of the exchange's [SendClass] or [StatusReading]; empty without an
	// exchange.
	Class string
	// Supersedes is the instruction before a change of its key and body; nil if they stay.
	Supersedes *Instruction
	// Reverse inserts the movement's reversal, with Next's state as the reason.
	Reverse bool
	// Level is the level of the log line; [LevelCritical] for a contradiction of the bank.
	Level slog.Level
	// Follow is the next exchange of the step, under the lease of Next.
	Follow Plan
}

// Errors of a step that changes nothing.
var (
	// ErrNotDue reports an instruction that is not due or that another step holds.
	ErrNotDue = errors.New("the bank instruction is not due")
	// ErrLeaseLost reports an instruction that another step has changed during the
	// exchange. The exchange is not recorded; the next step asks again.
	ErrLeaseLost = errors.New("another step has changed the bank instruction")
	// ErrOutOfTime reports an exchange that was not begun, because it could outlast its
	// lease or the key's lifetime. The next step asks first.
	ErrOutOfTime = errors.New("too late to begin the exchange with the bank")
	// ErrNoInstruction reports a settlement without a bank instruction.
	ErrNoInstruction = errors.New("the settlement has no bank instruction")
)

// Claim leases the instruction to owner and counts the send if the plan is to send: from
// this commit on it may have reached the bank. A store can run Claim again after its own
// commit; Claim then recognises owner and writes nothing. It fails with [ErrNotDue].
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
		// The lease's holder crashed. Its send may have begun as late as this.
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

// planFor returns the plan of a step that begins now.
func planFor(in Instruction, now time.Time) Plan {
	if in.NextCheckAt.IsZero() || now.Before(in.NextCheckAt) {
		return PlanNothing
	}
	switch in.State {
	case StateUncertain:
		if len(in.Superseded) > 0 {
			return PlanAsk // a send needs the status of the superseded keys first
		}
		if in.Sends == 0 {
			return PlanSend // no send can have reached the bank
		}
		if in.SendDeferred && in.Sends <= maxResends && now.Before(in.ResendNotAfter) {
			return PlanSend // the bank asked for a retry
		}
		return PlanAsk
	case StateAccepted, StateConfirmed, StateRejected:
		return PlanAsk
	case StateReturned, StateManual, StateNone:
		return PlanNothing
	}
	return PlanNothing
}

// hold leases next to owner. After a crash it is due at the end of the lease.
func hold(next *Instruction, owner string, now time.Time) {
	next.Owner, next.LeaseUntil = owner, now.Add(lease)
	next.NextCheckAt = next.LeaseUntil
}

// holdForSend leases a new instruction to owner and counts its send.
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

// Interval is the time of an exchange with the bank. The answer was true at some moment
// of it, so each rule counts from the end that makes it wait longer.
type Interval struct{ Began, Ended time.Time }

// AfterSend returns the change after a send.
func (p Policy) AfterSend(in Instruction, r SendResult, took Interval) (Change, error) {
	in.LastSentAt = later(in.LastSentAt, took.Began) // the claim's commit may have been slow
	return p.apply(in, r.observation(), CauseAnswer, r.Class.String(), r.Answer, took)
}

// AfterStatus returns the change after a status check.
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

// wantsProof reports whether an observation can lead to a send or to a reversal. Both
// need the status of every superseded key.
func (p Policy) wantsProof(in Instruction, saw observation, took Interval) bool {
	if saw == sawNotFound && in.State == StateUncertain {
		return true // the first not-found allows a send after the second
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

// apply returns the change of the observation's transition.
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
		t.resend, t.note = false, "not found twice: sending the same key and bytes again after the bank's Retry-After"
		next.SendDeferred = true
	}
	change := Change{
		Write: true, Level: t.level(in, saw, answer), Class: word,
		Reverse: t.to != in.State && t.to.reverses(),
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

// level is the log level of a change by t.
func (t transition) level(in Instruction, saw observation, answer BankAnswer) slog.Level {
	switch {
	case t.critical:
		return LevelCritical
	case t.to == StateManual && in.State != StateManual, saw == sawHeld:
		return slog.LevelError
	case answer.Detail != "" && (saw == sawPending || saw == sawConfirmed || saw == sawAccepted):
		return slog.LevelWarn // a clear answer with an unusual detail
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

// countCheck updates the counters and times of a kept or a new state.
func countCheck(next *Instruction, from State, saw observation, now time.Time) {
	if next.State == from {
		next.Checks++
		if saw == sawUncertain {
			next.Checks = 0 // the checks of the new send begin
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

// nextCheck is the time of the next step after the observation; zero for never.
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
	switch saw { //nolint:exhaustive // the other observations use the schedule
	case sawUncertain:
		return p.firstCheck()
	case sawHeld:
		return max(scheduled, heldFor)
	case sawNotFound:
		return max(scheduled, p.lag())
	}
	return scheduled
}

// jitter changes d by up to a fifth, so that instructions of one outage are not due at
// the same moment. It depends on the instruction and its checks alone, so the same
// history gives the same times.
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
