package fakebank

import "time"

// Plan says what becomes of the transfers of one key, or of all that have no plan
// of their own. The zero value is a good bank: it executes at once, answers
// [Accepted], says [Settled] to questions, replays, and forgets no key.
type Plan struct {
	// Attempts are the sends of a key in order; sends after them follow Rest.
	Attempts []Attempt
	// Rest is every send after Attempts.
	Rest Attempt
	// Steps are the questions of a key in order; questions after them follow
	// StepsRest.
	Steps []Step
	// StepsRest is every question after Steps.
	StepsRest Step
	// Lag is how long a transfer cannot be seen by questions.
	Lag time.Duration
	// Typed404 says that the answer to an unknown key is the typed 404, not an
	// empty list.
	Typed404 bool
	// Key is how the bank treats a key that it knows.
	Key KeyPolicy
	// Life is what becomes of an executed transfer, in time order. Defaults to
	// [Settled] at once, so that only the answer to the send says otherwise.
	Life []Change
	// KeptAlive is what happens to the second and later requests of a connection.
	KeptAlive KeptAlive
}

// Change is a status that a transfer gets.
type Change struct {
	// After is counted from the execution.
	After time.Duration
	// Status is the status word.
	Status string
	// Reason is the reason code, such as DUPL; empty for none.
	Reason string
}

// Status words that the bank knows a meaning of.
const (
	// Received is the status of a transfer that is queued.
	Received = "RCVD"
	// Accepted is what the answer to a send says.
	Accepted = "ACCP"
	// Settled is the final status of a transfer that was executed.
	Settled = "ACSC"
	// Rejected is the final status of a transfer that was not executed after all.
	Rejected = "RJCT"
	// Cancelled is the final status of a transfer that was withdrawn.
	Cancelled = "CANC"
	// Returned is the final status of a transfer that was executed and sent back,
	// unless Options say another.
	Returned = "RETURNED"
)

// Attempt is what happens to one send. The zero value is a good bank's.
type Attempt struct {
	// Before ends the exchange before the bank looks at the transfer.
	Before Before
	// BeforeStatus, unless zero, is answered before the bank looks at the
	// transfer: 301, 401, 408, 425, 429, 503 and the like. A redirect leads to a
	// place that answers 200 to GET.
	BeforeStatus int
	// Reject, unless empty, is the code of the problem with which the bank refuses
	// the transfer, such as "insufficient_funds". Nothing is executed, and the
	// refusal is not kept under the key.
	Reject string
	// RejectStatus is the HTTP status of a refusal. Defaults to 422.
	RejectStatus int
	// Execute says whether the transfer is executed.
	Execute Execute
	// LateBy is how much later a late or queued execution is.
	LateBy time.Duration
	// DownFor is how long no request is answered after [ExecuteCrash].
	DownFor time.Duration
	// Status is the status word in the answer. Defaults to [Accepted].
	Status string
	// AfterStatus, unless zero, is answered instead of the transfer, such as 500.
	AfterStatus int
	// Answer says how the answer arrives.
	Answer Answer
	// CutAt is the number of bytes of the body that arrive when the answer is cut.
	// Zero: half of it.
	CutAt int
	// Code is the problem's code with BeforeStatus and AfterStatus. Defaults to
	// one that suits the status.
	Code string
	// Page says that an error is answered as HTML, not as a problem.
	Page bool
	// RetryAfter is the Retry-After header, as it is; see also [RetryAt].
	RetryAfter string
}

// Before says how an exchange ends before the bank looks at the transfer.
type Before string

const (
	// BeforeNothing goes on. The zero value.
	BeforeNothing Before = ""
	// BeforeRefuse closes the connection without reading the body.
	BeforeRefuse Before = "refuse"
	// BeforeHang reads the body and answers nothing until the client goes away or
	// the bank is closed.
	BeforeHang Before = "hang"
)

// Execute says whether a send's transfer is executed.
type Execute string

const (
	// ExecuteNow executes before the answer. The zero value.
	ExecuteNow Execute = ""
	// ExecuteNever forgets the send, whatever the answer says.
	ExecuteNever Execute = "never"
	// ExecuteLate executes when LateBy has passed. Until then nobody can see the
	// send, as if it were stuck on its way: the key is not known, and another send
	// of it is executed at once. The late one then finds the key used.
	ExecuteLate Execute = "late"
	// ExecuteQueued executes when LateBy has passed. The key is taken at once:
	// other sends are in progress, questions see [Received].
	ExecuteQueued Execute = "queued"
	// ExecuteCrash executes, and the bank goes down for DownFor before it answers.
	// The key stays in progress for ever.
	ExecuteCrash Execute = "crash"
)

// KeptAlive is what happens to the second and later requests of one connection.
// It needs [Bank.Listener].
type KeptAlive string

const (
	// KeptAliveServed serves them. The zero value.
	KeptAliveServed KeptAlive = ""
	// KeptAliveDropped closes the connection without looking at them.
	KeptAliveDropped KeptAlive = "dropped"
	// KeptAliveExecuted looks at them and closes the connection without an answer.
	// An HTTP client that repeats by itself then sends twice what was executed.
	KeptAliveExecuted KeptAlive = "executed"
)

// Step is what happens to one question. The zero value is the truth.
type Step struct {
	// Say is what is answered.
	Say Say
	// Status, unless empty, is answered as the transfer's status word instead of
	// the true one, and Reason as its reason code. The transfer itself stays as it
	// is.
	Status, Reason string
	// HTTPStatus, unless zero, is answered instead: 400, 401, 429, 500 and the
	// like.
	HTTPStatus int
	// Code, Page and RetryAfter are those of an [Attempt].
	Code       string
	Page       bool
	RetryAfter string
	// Answer says how the answer arrives.
	Answer Answer
	// CutAt is that of an [Attempt].
	CutAt int
}

// Say is what is answered to a question.
type Say string

const (
	// SayTruth answers what the bank has. The zero value.
	SayTruth Say = ""
	// SayEmpty answers an empty list.
	SayEmpty Say = "empty"
	// SayTyped404 answers 404 as a problem with the bank's not-found code.
	SayTyped404 Say = "typed_404"
	// SayPlain404 answers 404 as a page of HTML.
	SayPlain404 Say = "plain_404"
	// SayTwice answers every transfer twice, with different IDs.
	SayTwice Say = "twice"
	// SayHang answers nothing.
	SayHang Say = "hang"
	// SayRefuse closes the connection.
	SayRefuse Say = "refuse"
)

// RetryAt is the Retry-After header that names a time.
func RetryAt(t time.Time) string { return t.UTC().Format("Mon, 02 Jan 2006 15:04:05") + " GMT" }

// attempt returns the n-th send, from 1.
func (p Plan) attempt(n int) Attempt {
	if n <= len(p.Attempts) {
		return p.Attempts[n-1]
	}
	return p.Rest
}

// step returns the n-th question, from 1.
func (p Plan) step(n int) Step {
	if n <= len(p.Steps) {
		return p.Steps[n-1]
	}
	return p.StepsRest
}

// plans are the plans of a bank.
type plans struct {
	byKey, byCreditor map[string]Plan
	rest              Plan
	random            *random
}

// find returns the plan of a key. The creditor account is empty while nobody
// knows it.
func (p *plans) find(key, creditor string) Plan {
	if plan, ok := p.byKey[key]; ok {
		return plan
	}
	if plan, ok := p.byCreditor[creditor]; ok {
		return plan
	}
	if p.random != nil {
		return p.random.plan(p.rest, key)
	}
	return p.rest
}

// attempt returns the plan of a key's n-th send, and the send.
func (p *plans) attempt(key, creditor string, n int) (Plan, Attempt) {
	plan := p.find(key, creditor)
	if p.rolled(key, creditor) {
		return plan, p.random.attempt(key, n)
	}
	return plan, plan.attempt(n)
}

// step returns the plan of a key's n-th question, and the question.
func (p *plans) step(key, creditor string, n int) (Plan, Step) {
	plan := p.find(key, creditor)
	if p.rolled(key, creditor) {
		return plan, p.random.step(key, n)
	}
	return plan, plan.step(n)
}

// rolled reports whether chance decides about the key.
func (p *plans) rolled(key, creditor string) bool {
	_, scripted := p.byKey[key]
	_, scriptedToo := p.byCreditor[creditor]
	return p.random != nil && !scripted && !scriptedToo
}

// Script gives a key its plan. The count of its sends goes on.
func (b *Bank) Script(key string, plan Plan) {
	b.locked(func(time.Time) { b.plans.byKey[key] = plan })
}

// ScriptCreditor gives the transfers to a creditor account a plan, for those keys
// that have none. Their bodies are read before anything can happen to them.
func (b *Bank) ScriptCreditor(account string, plan Plan) {
	b.locked(func(time.Time) { b.plans.byCreditor[account] = plan })
}

// Default gives everything that has no plan this one.
func (b *Bank) Default(plan Plan) {
	b.locked(func(time.Time) { b.plans.rest = plan })
}

// Random lets chance decide about everything that has no plan of its own. Of the
// default plan remain Lag, Typed404, Key, KeptAlive and, where chance draws no
// other, Life.
func (b *Bank) Random(seed uint64, rates Rates) {
	b.locked(func(time.Time) { b.plans.random = &random{seed: seed, rates: rates, returned: b.options.ReturnedWord} })
}
