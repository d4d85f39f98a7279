package payout

import "fmt"

// Reason says why a message cannot be a payout. The zero value is no reason.
type Reason string

// The reasons, in the order in which the first that applies is given.
const (
	// ReasonUnsupportedEvent means that the event is not a Pub/Sub message. It comes from
	// the event's reading, before there is a payout message to decode.
	ReasonUnsupportedEvent Reason = "unsupported_event"
	// ReasonTooLarge means over MaxMessageBytes.
	ReasonTooLarge Reason = "too_large"
	// ReasonEmptyData means no data, or JSON white space only.
	ReasonEmptyData Reason = "empty_data"
	// ReasonNotJSON means not exactly one JSON object in valid UTF-8.
	ReasonNotJSON Reason = "not_json"
	// ReasonDuplicateField means a member twice in one object, at any depth.
	ReasonDuplicateField Reason = "duplicate_field"
	// ReasonUnknownField means a member that payout message version 1 does not have.
	ReasonUnknownField Reason = "unknown_field"
	// ReasonMissingField means that a required member is absent.
	ReasonMissingField Reason = "missing_field"
	// ReasonInvalidField means that a member's value breaks the member's rule.
	ReasonInvalidField Reason = "invalid_field"
)

// Refusal is the verdict on a message that cannot be a payout.
type Refusal struct {
	// Reason is the first reason that applies.
	Reason Reason `json:"reason"`
	// Member names the payout message's member that is missing or invalid; empty
	// for the other reasons.
	Member string `json:"member,omitzero"`
	// Detail says in words what is wrong and where. It may name a member that
	// the message has and should not have, so it belongs into the quarantine
	// table and in front of the person who wrote the message, and never into a
	// log or an answer.
	Detail string `json:"-"`
}

// Error gives the reason and the member, not the detail: it can be logged.
func (r *Refusal) Error() string {
	if r.Member == "" {
		return fmt.Sprintf("message refused: %s", r.Reason)
	}
	return fmt.Sprintf("message refused: %s %s", r.Reason, r.Member)
}
