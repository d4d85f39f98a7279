package settle

import (
	"log/slog"
	"time"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
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

// Outcome is the result of a delivery. The zero value, [OutcomeUnknown], must not be
// acknowledged.
type Outcome int

const (
	// OutcomeUnknown means that no commit is known. The message is delivered again.
	OutcomeUnknown Outcome = iota
	// OutcomeApplied means that this delivery settled the payout.
	OutcomeApplied
	// OutcomeDuplicate means that an earlier delivery settled the same payout.
	OutcomeDuplicate
	// OutcomeConflict means that the settlement ID is known with another payload hash.
	// Nothing moved; the conflict is recorded for investigation.
	OutcomeConflict
	// OutcomeQuarantined means that the message cannot be a payout. Nothing moved; the
	// message is kept whole.
	OutcomeQuarantined
)

// String returns the outcome's name in answers, logs and tables.
func (o Outcome) String() string {
	switch o {
	case OutcomeApplied:
		return "applied"
	case OutcomeDuplicate:
		return "duplicate"
	case OutcomeConflict:
		return "conflict"
	case OutcomeQuarantined:
		return "quarantined"
	case OutcomeUnknown:
	}
	return "unknown"
}

// MarshalText implements [encoding.TextMarshaler] with the name.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Final reports whether the outcome is committed, so that the message can be
// acknowledged.
func (o Outcome) Final() bool { return o != OutcomeUnknown }

// Result is the outcome of a delivery with the stored facts about it. It holds
// nothing of the payload but the settlement ID and the payload hash. Encoded as JSON
// it is the answer to the request; logged it gives the line's attributes.
type Result struct {
	// Outcome tells applied, duplicate, conflict and quarantined apart.
	Outcome Outcome `json:"outcome"`
	// SettlementID and PayloadHash are those of the delivered payout; empty for
	// a quarantined message.
	SettlementID string      `json:"settlement_id,omitzero"`
	PayloadHash  payout.Hash `json:"payload_hash,omitzero"`
	// AppliedAt is the commit timestamp of the settlement's movement. Zero for a
	// quarantined message.
	AppliedAt time.Time `json:"applied_at,omitzero"`
	// Instruction is the state of the settlement's bank instruction;
	// [transfer.StateNone] for none.
	Instruction transfer.State `json:"instruction,omitzero"`
	// Fields names the members in which a conflicting payout differs from the
	// settled one, in the order of the payout message's table.
	Fields []string `json:"fields,omitempty"`
	// ReceiptExpired reports that the receipt is gone and the movement decided.
	ReceiptExpired bool `json:"receipt_expired,omitzero"`
	// Refusal is the reason for quarantine; nil otherwise. Its detail may quote the
	// message and is neither answered nor logged.
	Refusal *payout.Refusal `json:",embed"`
}

// LogValue implements [slog.LogValuer]: the attributes of the delivery's log line.
func (r Result) LogValue() slog.Value {
	attrs := append(make([]slog.Attr, 0, 8), slog.String("outcome", r.Outcome.String()))
	for _, text := range [...]struct{ key, value string }{
		{"settlement_id", r.SettlementID}, {"payload_hash", string(r.PayloadHash)}, {"instruction", string(r.Instruction)},
	} {
		if text.value != "" {
			attrs = append(attrs, slog.String(text.key, text.value))
		}
	}
	if r.ReceiptExpired {
		attrs = append(attrs, slog.Bool("receipt_expired", true))
	}
	if len(r.Fields) > 0 {
		attrs = append(attrs, slog.Any("conflict_fields", r.Fields))
	}
	if r.Refusal != nil {
		attrs = append(attrs, slog.String("reason", string(r.Refusal.Reason)))
		if r.Refusal.Member != "" {
			attrs = append(attrs, slog.String("member", r.Refusal.Member))
		}
	}
	return slog.GroupValue(attrs...)
}
