package spannerstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Movements is the table ledger_movements.
var Movements = Table[settle.Movement]{"ledger_movements", settlementKey, func(m *settle.Movement) []Field {
	return []Field{
		{Name: "settlement_id", to: &m.SettlementID},
		{Name: "account_id", to: &m.AccountID},
		{Name: "amount_cents", to: &m.AmountCents},
		{Name: "currency", to: &m.Currency},
		{Name: "creditor_account", to: &m.CreditorAccount, nullable: true},
		{Name: "reference", to: &m.Reference, nullable: true},
		{Name: "payload_hash", to: (*string)(&m.PayloadHash)},
		{Name: "source", to: &m.Source, nullable: true},
		{Name: "recorded_at", to: &m.RecordedAt},
	}
}}

// ReceiptRow is a row of settlement_receipts.
type ReceiptRow struct {
	SettlementID string
	PayloadHash  payout.Hash
	ResultStatus string
	DeliveryID   string
	MessageID    string
	PublishTime  *time.Time // nil: unknown
	Metadata     string     // a JSON object; empty: none
	AppliedAt    time.Time
}

// Receipts is the table settlement_receipts.
var Receipts = Table[ReceiptRow]{"settlement_receipts", settlementKey, func(r *ReceiptRow) []Field {
	return []Field{
		{Name: "settlement_id", to: &r.SettlementID},
		{Name: "result_status", to: &r.ResultStatus},
		{Name: "payload_hash", to: (*string)(&r.PayloadHash)},
		{Name: "delivery_id", to: &r.DeliveryID},
		{Name: "message_id", to: &r.MessageID},
		{Name: "publish_time", to: &r.PublishTime},
		{Name: "metadata", to: &r.Metadata, nullable: true},
		{Name: "applied_at", to: &r.AppliedAt},
	}
}}

// ReversalRow is a row of ledger_reversals.
type ReversalRow struct {
	SettlementID string
	AmountCents  int64
	Reason       string
	RecordedAt   time.Time
}

// Reversals is the table ledger_reversals.
var Reversals = Table[ReversalRow]{"ledger_reversals", settlementKey, func(r *ReversalRow) []Field {
	return []Field{
		{Name: "settlement_id", to: &r.SettlementID},
		{Name: "amount_cents", to: &r.AmountCents},
		{Name: "reason", to: &r.Reason},
		{Name: "recorded_at", to: &r.RecordedAt},
	}
}}

// InstructionRow is a row of bank_instructions. Its Transfer and Superseded are
// empty: other tables hold them. See [InstructionRow.Join].
type InstructionRow struct {
	transfer.Instruction

	IdempotencyKey string
	UncertainSince *time.Time // nil: the state is another
}

// Instructions is the table bank_instructions.
var Instructions = Table[InstructionRow]{"bank_instructions", settlementKey, func(in *InstructionRow) []Field {
	return []Field{
		{Name: "settlement_id", to: &in.SettlementID},
		{Name: "state", to: (*string)(&in.State)},
		{Name: "version", to: &in.Version},
		{Name: "idempotency_key", to: &in.IdempotencyKey},
		{Name: "request_body", to: &in.Body},
		{Name: "lease_owner", to: &in.Owner, nullable: true},
		{Name: "lease_until", to: &in.LeaseUntil, nullable: true},
		{Name: "sends", to: &in.Sends},
		{Name: "send_deferred", to: &in.SendDeferred},
		{Name: "first_sent_at", to: &in.FirstSentAt, nullable: true},
		{Name: "last_sent_at", to: &in.LastSentAt, nullable: true},
		{Name: "resend_not_after", to: &in.ResendNotAfter, nullable: true},
		{Name: "not_found_since", to: &in.NotFoundSince, nullable: true},
		{Name: "accepted_at", to: &in.AcceptedAt, nullable: true},
		{Name: "final_at", to: &in.FinalAt, nullable: true},
		{Name: "bank_transfer_id", to: &in.TransferID, nullable: true},
		{Name: "bank_status", to: &in.BankStatus, nullable: true},
		{Name: "checks", to: &in.Checks},
		{Name: "next_check_at", to: &in.NextCheckAt, nullable: true},
		{Name: "created_at", to: &in.CreatedAt},
		{Name: "uncertain_since", to: &in.UncertainSince},
	}
}}

// Join returns the instruction with the transfer's amount, currency and creditor,
// which stand in the movement, and its earlier keys, oldest first. A key that is
// no UUID is an error, and zero in the instruction.
func (row InstructionRow) Join(m settle.Movement, superseded []SupersededRow) (transfer.Instruction, error) {
	in := row.Instruction
	in.Transfer = transfer.Transfer{AmountCents: m.AmountCents, Currency: m.Currency, CreditorAccount: m.CreditorAccount}
	var err, oldErr error
	in.Transfer.Key, err = parseKey(row.IdempotencyKey)
	for _, old := range superseded {
		key, keyErr := parseKey(old.IdempotencyKey)
		in.Superseded = append(in.Superseded, transfer.SupersededKey{Key: key, At: old.SupersededAt})
		oldErr = errors.Join(oldErr, keyErr)
	}
	if err = errors.Join(err, oldErr); err != nil {
		return in, fmt.Errorf("read bank instruction of settlement %q: %w", in.SettlementID, err)
	}
	return in, nil
}

func parseKey(text string) (uuid.UUID, error) {
	key, err := uuid.Parse(text)
	if err != nil {
		return key, fmt.Errorf("idempotency key %q: %w", text, err)
	}
	return key, nil
}

// SupersededRow is a row of bank_superseded_keys.
type SupersededRow struct {
	SettlementID   string
	Generation     int64 // counts the instruction's keys from 1
	IdempotencyKey string
	Body           []byte
	Sends          int64
	FirstSentAt    time.Time // zero: never
	LastSentAt     time.Time // zero: never
	TransferID     string    // empty: unknown
	BankStatus     string    // empty: unknown
	DecidedVersion int64     // of the event that records the decision
	SupersededAt   time.Time
}

// SupersededKeys is the table bank_superseded_keys.
var SupersededKeys = Table[SupersededRow]{"bank_superseded_keys", settlementKey, func(k *SupersededRow) []Field {
	return []Field{
		{Name: "settlement_id", to: &k.SettlementID},
		{Name: "generation", to: &k.Generation},
		{Name: "idempotency_key", to: &k.IdempotencyKey},
		{Name: "request_body", to: &k.Body},
		{Name: "sends", to: &k.Sends},
		{Name: "first_sent_at", to: &k.FirstSentAt, nullable: true},
		{Name: "last_sent_at", to: &k.LastSentAt, nullable: true},
		{Name: "bank_transfer_id", to: &k.TransferID, nullable: true},
		{Name: "bank_status", to: &k.BankStatus, nullable: true},
		{Name: "decided_version", to: &k.DecidedVersion},
		{Name: "superseded_at", to: &k.SupersededAt},
	}
}}

// EventRow is a row of bank_instruction_events.
type EventRow struct {
	SettlementID string         `json:"-"`
	Version      int64          `json:"version"`
	RecordedAt   time.Time      `json:"recorded_at"`
	Event        transfer.Event `json:",embed"`
}

// Events is the table bank_instruction_events.
var Events = Table[EventRow]{"bank_instruction_events", settlementKey, func(e *EventRow) []Field {
	return []Field{
		{Name: "settlement_id", to: &e.SettlementID},
		{Name: "version", to: &e.Version},
		{Name: "from_state", to: (*string)(&e.Event.From), nullable: true},
		{Name: "to_state", to: (*string)(&e.Event.To)},
		{Name: "cause", to: &e.Event.Cause},
		{Name: "http_status", to: &e.Event.HTTPStatus, nullable: true},
		{Name: "detail", to: &e.Event.Detail, nullable: true},
		{Name: "recorded_at", to: &e.RecordedAt},
	}
}}

// ConflictRow is a row of settlement_conflicts.
type ConflictRow struct {
	SettlementID string
	PayloadHash  payout.Hash
	Fields       []string
	Payload      []byte
	MessageID    string
	Source       string // topic or subscription; empty: unknown
	SeenAt       time.Time
	ResolvedAt   *time.Time // nil: open
	ResolvedBy   string     // empty: open
	Note         string     // empty: none
}

// Conflicts is the table settlement_conflicts.
var Conflicts = Table[ConflictRow]{"settlement_conflicts", settlementKey, func(c *ConflictRow) []Field {
	return []Field{
		{Name: "settlement_id", to: &c.SettlementID},
		{Name: "payload_hash", to: (*string)(&c.PayloadHash)},
		{Name: "fields", to: &c.Fields},
		{Name: "payload", to: &c.Payload},
		{Name: "message_id", to: &c.MessageID},
		{Name: "source", to: &c.Source, nullable: true},
		{Name: "seen_at", to: &c.SeenAt},
		{Name: "resolved_at", to: &c.ResolvedAt},
		{Name: "resolved_by", to: &c.ResolvedBy, nullable: true},
		{Name: "note", to: &c.Note, nullable: true},
	}
}}

// QuarantineRow is a row of quarantined_messages.
type QuarantineRow struct {
	Identity      string
	MessageID     string
	Subscription  string
	Reason        payout.Reason
	Member        string
	Detail        string
	Data          []byte
	Attributes    string // a JSON object; empty: none
	OrderingKey   string
	PublishTime   *time.Time // nil: unknown
	QuarantinedAt time.Time
	ReleasedAt    *time.Time // nil: not released
	ReleasedBy    string     // empty: not released
	Note          string     // empty: none
	ExpireFrom    *time.Time // nil: kept
}

// Quarantined is the table quarantined_messages.
var Quarantined = Table[QuarantineRow]{"quarantined_messages", "message_key", func(q *QuarantineRow) []Field {
	return []Field{
		{Name: "identity", to: &q.Identity},
		{Name: "message_id", to: &q.MessageID},
		{Name: "subscription", to: &q.Subscription},
		{Name: "reason", to: (*string)(&q.Reason)},
		{Name: "member", to: &q.Member, nullable: true},
		{Name: "detail", to: &q.Detail},
		{Name: "data", to: &q.Data},
		{Name: "attributes", to: &q.Attributes, nullable: true},
		{Name: "ordering_key", to: &q.OrderingKey, nullable: true},
		{Name: "publish_time", to: &q.PublishTime},
		{Name: "quarantined_at", to: &q.QuarantinedAt},
		{Name: "released_at", to: &q.ReleasedAt},
		{Name: "released_by", to: &q.ReleasedBy, nullable: true},
		{Name: "note", to: &q.Note, nullable: true},
		{Name: "expire_from", to: &q.ExpireFrom},
	}
}}
