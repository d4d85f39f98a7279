package settle

import (
	"time"

	"github.com/settleonce/settleonce/internal/settle/payout"
)

// Delivery is one attempt of Pub/Sub to hand over one message. The zero value
// is a delivery of an empty message.
type Delivery struct {
	// Message is the delivered message.
	Message Message
	// Attempt is Pub/Sub's number of the delivery, from 1. Zero means unknown:
	// Pub/Sub counts only where the subscription has a dead-letter policy.
	Attempt int
	// Refusal is set for an event that is not a readable Pub/Sub message. Its reason is
	// [payout.ReasonUnsupportedEvent], and the message's Data holds the whole event.
	Refusal *payout.Refusal
	// TraceParent is the event's W3C trace context; empty when unknown. It serves
	// traces only and may be malformed.
	TraceParent string
}

// Message is a Pub/Sub message. Only Data is part of the payout: several messages
// can carry the same payout.
type Message struct {
	// ID is the Pub/Sub message ID; empty when unknown. It identifies the
	// message and never the payout.
	ID string
	// Subscription is the full name of the delivering subscription; empty when
	// unknown.
	Subscription string
	// Source is the topic by which the message came, or else the subscription: its full
	// name. Empty when unknown.
	Source string
	// PublishTime is the time at which Pub/Sub accepted the message; zero when
	// unknown.
	PublishTime time.Time
	// OrderingKey is the message's ordering key; usually empty.
	OrderingKey string
	// Attributes are the message's attributes. They never change a payout.
	Attributes map[string]string
	// Data is the payload.
	Data []byte
	// Fingerprint identifies the content where Data holds a whole request, which
	// differs between deliveries of one message. Nil means that Data identifies it.
	Fingerprint []byte
}
