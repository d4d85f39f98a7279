package fakebank

import "time"

// Plan scripts the faults of one creditor account, or of everything without a plan of
// its own. The zero value is a bank without faults: it executes
// at once, answers [Accepted], reports [Settled], replays, and forgets no key.
type Plan struct {
	// Attempts are the sends of a key in order; later sends follow Rest.
	Attempts []Attempt
	Rest     Attempt
	// Steps are the status requests of a key in order; later ones follow StepsRest.
	Steps     []Step
	StepsRest Step
	// Key is the treatment of known keys.
	Key KeyPolicy
	// Life is the status changes of an executed transfer, in time order. Defaults to
	// [Settled] at once.
	Life []Change
}

// Change is a status change of a transfer.
type Change struct {
	// After is the time since the execution.
	After time.Duration
	// Status is the status word.
	Status string
	// Reason is the reason code, such as DUPL; empty: none.
	Reason string
}

// Status words of the generic profile.
const (
	// Accepted is the status in the answer to a send.
	Accepted = "ACCP"
	// Settled is the final status of an executed transfer.
	Settled = "ACSC"
	// Rejected is the final status of a transfer that was not executed after all.
	Rejected = "RJCT"
	// Cancelled is the final status of a withdrawn transfer.
	Cancelled = "CANC"
	// Returned is the final status of a transfer that was executed and sent back.
	Returned = "RETURNED"
)

// Attempt scripts one send. The zero value has no fault.
type Attempt struct {
	// Before ends the exchange before the bank reads the transfer.
	Before Before
	// BeforeStatus is the HTTP status with which the bank answers without reading the
	// transfer, such as 401, 429 or 503; 0: it reads the transfer. The URL of a
	// redirect answers 200 to GET.
	BeforeStatus int
	// Reject, unless empty, is the code of a refusal with 422, such as
	// "insufficient_funds". The bank executes nothing, and does not keep the
	// refusal under the key.
	Reject string
	// Execute is whether and when the bank executes the transfer.
	Execute Execute
	// LateBy is the delay of [ExecuteLate].
	LateBy time.Duration
	// Status is the status word in the answer. Defaults to [Accepted].
	Status string
	// AfterStatus is the HTTP status of an answer without the transfer, after the bank
	// processed it, such as 500; 0: the answer is the transfer.
	AfterStatus int
	// Answer is the form in which the answer arrives.
	Answer Answer
	// RetryAfter is the Retry-After header; empty: none.
	RetryAfter string
}

// Before ends an exchange before the bank reads the transfer.
type Before string

const (
	// BeforeNothing goes on. The zero value.
	BeforeNothing Before = ""
	// BeforeRefuse closes the connection.
	BeforeRefuse Before = "refuse"
	// BeforeHang reads the body and does not answer until the client closes the
	// connection, or [Bank.Close].
	BeforeHang Before = "hang"
)

// Execute is whether and when the bank executes a send's transfer.
type Execute string

const (
	// ExecuteNow executes before the answer. The zero value.
	ExecuteNow Execute = ""
	// ExecuteNever drops the send, whatever the answer says.
	ExecuteNever Execute = "never"
	// ExecuteLate executes after LateBy. Until then neither status requests nor
	// other sends of the key see the send, as if the network delayed it. Another
	// send in between is executed at once, and the late one then finds the key used.
	ExecuteLate Execute = "late"
)

// Step scripts one status request. The zero value answers the truth.
type Step struct {
	// Say replaces the answer.
	Say Say
	// Status, unless empty, replaces the transfer's status word in the answer. The
	// ledger keeps the true one.
	Status string
	// HTTPStatus, unless zero, is answered instead: 400, 401, 429, 500 and the like.
	HTTPStatus int
	// RetryAfter is the Retry-After header with HTTPStatus; empty: none.
	RetryAfter string
	// Answer is the form in which the answer arrives.
	Answer Answer
}

// Say replaces the answer to a status request.
type Say string

const (
	// SayTruth answers the executed transfers. The zero value.
	SayTruth Say = ""
	// SayEmpty answers an empty list.
	SayEmpty Say = "empty"
	// SayTyped404 answers 404 as a problem with transfer_not_found.
	SayTyped404 Say = "typed_404"
	// SayPlain404 answers 404 as an HTML page.
	SayPlain404 Say = "plain_404"
	// SayTwice answers every transfer twice, with different IDs.
	SayTwice Say = "twice"
	// SayHang does not answer.
	SayHang Say = "hang"
)

// attempt returns the n-th send, from 1.
func (p Plan) attempt(n int) Attempt {
	if n <= len(p.Attempts) {
		return p.Attempts[n-1]
	}
	return p.Rest
}

// step returns the n-th status request, from 1.
func (p Plan) step(n int) Step {
	if n <= len(p.Steps) {
		return p.Steps[n-1]
	}
	return p.StepsRest
}

// plan returns the plan of a creditor account, which is empty until a body with the key
// has arrived.
func (b *Bank) plan(creditor string) Plan {
	if plan, ok := b.byCreditor[creditor]; ok {
		return plan
	}
	return b.rest
}

// ScriptCreditor sets the plan of a creditor account. Sends and status requests keep
// their numbers.
func (b *Bank) ScriptCreditor(account string, plan Plan) {
	b.locked(func(time.Time) { b.byCreditor[account] = plan })
}

// Default sets the plan of everything without a plan of its own.
func (b *Bank) Default(plan Plan) {
	b.locked(func(time.Time) { b.rest = plan })
}
