package spannerstore

import (
	"time"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

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

// ReversalRow is a row of ledger_reversals.
type ReversalRow struct {
	SettlementID string
	AmountCents  int64
	Reason       string
	RecordedAt   time.Time
}

// EventRow is a row of bank_instruction_events.
type EventRow struct {
	SettlementID string
	Version      int64
	Event        transfer.Event
	RecordedAt   time.Time
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
	Note           string     // empty: nothing written
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
	ReleasedAt     *time.Time // nil: it was not
	ReleasedBy     string     // empty: nobody
	Note           string     // empty: nothing written
	ExpireFrom     *time.Time // nil: kept
}
