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

func column(name string, to any) Field   { return Field{Name: name, to: to} }
func nullable(name string, to any) Field { return Field{Name: name, to: to, nullable: true} }

func movementFields(m *settle.Movement) []Field {
	return []Field{
		column("settlement_id", &m.SettlementID),
		column("account_id", &m.AccountID),
		column("amount_cents", &m.AmountCents),
		column("currency", &m.Currency),
		nullable("creditor_account", &m.CreditorAccount),
		nullable("reference", &m.Reference),
		column("payload_hash", (*string)(&m.PayloadHash)),
		column("recorded_at", &m.RecordedAt),
	}
}

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
	ExpireFrom   *time.Time // nil: kept
}

func receiptFields(r *ReceiptRow) []Field {
	return []Field{
		column("settlement_id", &r.SettlementID),
		column("result_status", &r.ResultStatus),
		column("payload_hash", (*string)(&r.PayloadHash)),
		column("delivery_id", &r.DeliveryID),
		column("message_id", &r.MessageID),
		column("publish_time", &r.PublishTime),
		nullable("metadata", &r.Metadata),
		column("applied_at", &r.AppliedAt),
		column("expire_from", &r.ExpireFrom),
	}
}

// ReversalRow is a row of ledger_reversals.
type ReversalRow struct {
	SettlementID string
	AmountCents  int64
	Reason       string
	RecordedAt   time.Time
}

func reversalFields(r *ReversalRow) []Field {
	return []Field{
		column("settlement_id", &r.SettlementID),
		column("amount_cents", &r.AmountCents),
		column("reason", &r.Reason),
		column("recorded_at", &r.RecordedAt),
	}
}

// InstructionRow is a row of bank_instructions. Its Transfer and Superseded are
// empty: other tables hold them. See [InstructionRow.Join].
type InstructionRow struct {
	transfer.Instruction

	IdempotencyKey string
	UncertainSince *time.Time // nil: the state is another
}

func instructionFields(in *InstructionRow) []Field {
	return []Field{
		column("settlement_id", &in.SettlementID),
		column("state", (*string)(&in.State)),
		column("version", &in.Version),
		column("idempotency_key", &in.IdempotencyKey),
		column("request_body", &in.Body),
		nullable("lease_owner", &in.Owner),
		nullable("lease_until", &in.LeaseUntil),
		column("sends", &in.Sends),
		column("send_deferred", &in.SendDeferred),
		nullable("first_sent_at", &in.FirstSentAt),
		nullable("last_sent_at", &in.LastSentAt),
		nullable("resend_not_after", &in.ResendNotAfter),
		nullable("not_found_since", &in.NotFoundSince),
		nullable("accepted_at", &in.AcceptedAt),
		nullable("final_at", &in.FinalAt),
		nullable("bank_transfer_id", &in.TransferID),
		nullable("bank_status", &in.BankStatus),
		column("checks", &in.Checks),
		nullable("next_check_at", &in.NextCheckAt),
		column("created_at", &in.CreatedAt),
		column("uncertain_since", &in.UncertainSince),
	}
}

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

func supersededFields(k *SupersededRow) []Field {
	return []Field{
		column("settlement_id", &k.SettlementID),
		column("generation", &k.Generation),
		column("idempotency_key", &k.IdempotencyKey),
		column("request_body", &k.Body),
		column("sends", &k.Sends),
		nullable("first_sent_at", &k.FirstSentAt),
		nullable("last_sent_at", &k.LastSentAt),
		nullable("bank_transfer_id", &k.TransferID),
		nullable("bank_status", &k.BankStatus),
		column("decided_version", &k.DecidedVersion),
		column("superseded_at", &k.SupersededAt),
	}
}

// EventRow is a row of bank_instruction_events.
type EventRow struct {
	SettlementID string
	Version      int64
	Event        transfer.Event
	RecordedAt   time.Time
}

func eventFields(e *EventRow) []Field {
	return []Field{
		column("settlement_id", &e.SettlementID),
		column("version", &e.Version),
		nullable("from_state", (*string)(&e.Event.From)),
		column("to_state", (*string)(&e.Event.To)),
		column("cause", &e.Event.Cause),
		nullable("http_status", &e.Event.HTTPStatus),
		nullable("detail", &e.Event.Detail),
		column("recorded_at", &e.RecordedAt),
	}
}

// ConflictRow is a row of settlement_conflicts.
type ConflictRow struct {
	SettlementID   string
	PayloadHash    payout.Hash
	Fields         []string
	Payload        []byte
	MessageID      string
	LastDeliveryID string
	Deliveries     int64
	FirstSeenAt    time.Time
	LastSeenAt     time.Time
	ResolvedAt     *time.Time // nil: open
	ResolvedBy     string     // empty: open
	Note           string     // empty: none
}

func conflictFields(c *ConflictRow) []Field {
	return []Field{
		column("settlement_id", &c.SettlementID),
		column("payload_hash", (*string)(&c.PayloadHash)),
		column("fields", &c.Fields),
		column("payload", &c.Payload),
		column("message_id", &c.MessageID),
		column("last_delivery_id", &c.LastDeliveryID),
		column("deliveries", &c.Deliveries),
		column("first_seen_at", &c.FirstSeenAt),
		column("last_seen_at", &c.LastSeenAt),
		column("resolved_at", &c.ResolvedAt),
		nullable("resolved_by", &c.ResolvedBy),
		nullable("note", &c.Note),
	}
}

// QuarantineRow is a row of quarantined_messages.
type QuarantineRow struct {
	Identity       string
	MessageID      string
	Subscription   string
	Reason         payout.Reason
	Member         string
	Detail         string
	Data           []byte
	Attributes     string // a JSON object; empty: none
	OrderingKey    string
	PublishTime    *time.Time // nil: unknown
	LastDeliveryID string
	Deliveries     int64
	QuarantinedAt  time.Time
	ReleasedAt     *time.Time // nil: not released
	ReleasedBy     string     // empty: not released
	Note           string     // empty: none
	ExpireFrom     *time.Time // nil: kept
}

func quarantinedFields(q *QuarantineRow) []Field {
	return []Field{
		column("identity", &q.Identity),
		column("message_id", &q.MessageID),
		column("subscription", &q.Subscription),
		column("reason", (*string)(&q.Reason)),
		nullable("member", &q.Member),
		column("detail", &q.Detail),
		column("data", &q.Data),
		nullable("attributes", &q.Attributes),
		nullable("ordering_key", &q.OrderingKey),
		column("publish_time", &q.PublishTime),
		column("last_delivery_id", &q.LastDeliveryID),
		column("deliveries", &q.Deliveries),
		column("quarantined_at", &q.QuarantinedAt),
		column("released_at", &q.ReleasedAt),
		nullable("released_by", &q.ReleasedBy),
		nullable("note", &q.Note),
		column("expire_from", &q.ExpireFrom),
	}
}
