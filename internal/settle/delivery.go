package settle

import (
	"time"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

// Delivery is one attempt of Pub/Sub to hand over one message. The zero value
// is a delivery of an empty message.
type Delivery struct {
	// Message is what was delivered.
	Message Message
	// Attempt counts the attempts of Pub/Sub, from 1. Zero means unknown:
	// Pub/Sub counts only where the subscription has a dead-letter policy.
	Attempt int
	// Refusal is set when the event could not be read as a Pub/Sub message; its
	// reason is then [payout.ReasonUnsupportedEvent] and the message's Data holds the
	// event as it came.
	Refusal *payout.Refusal
	// TraceParent is the W3C trace context that the event came with; empty when
	// unknown. It is for traces only and may be malformed.
	TraceParent string
}

// Message is a Pub/Sub message. Nothing in it but Data is part of the payout:
// the same payout can come in any number of messages.
type Message struct {
	// ID is the Pub/Sub message ID; empty when unknown. It identifies the
	// message and never the payout.
	ID string
	// Subscription is the full name of the subscription that delivered it;
	// empty when unknown.
	Subscription string
	// PublishTime is the time at which Pub/Sub took the message; zero when
	// unknown.
	PublishTime time.Time
	// OrderingKey is the key under which it was published; usually empty.
	OrderingKey string
	// Attributes are the message's attributes. They never change a payout.
	Attributes map[string]string
	// Data is the payload.
	Data []byte
	// Fingerprint tells the message apart from another one with the same ID, where
	// Data holds more than the message and differs from delivery to delivery. Nil
	// means Data.
	Fingerprint []byte
}
