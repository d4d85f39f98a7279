package ledger

import (
	"context"
	"encoding/hex"
	"iter"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// ConflictEntry is a conflict in a list.
type ConflictEntry struct {
	Key          []byte     `json:"-" spanner:"settlement_key"`
	LastSeenAt   time.Time  `json:"last_seen_at" spanner:"last_seen_at"`
	SettlementID string     `json:"settlement_id" spanner:"settlement_id"`
	AccountID    string     `json:"account_id" spanner:"account_id"` // of the payout that was settled
	PayloadHash  string     `json:"payload_hash" spanner:"payload_hash"`
	Fields       []string   `json:"fields" spanner:"fields"`
	Deliveries   int64      `json:"deliveries" spanner:"deliveries"`
	FirstSeenAt  time.Time  `json:"first_seen_at" spanner:"first_seen_at"`
	MessageID    string     `json:"message_id" spanner:"message_id"`
	ResolvedAt   *time.Time `json:"resolved_at" spanner:"resolved_at"`
	ResolvedBy   *string    `json:"resolved_by" spanner:"resolved_by"`
	Note         *string    `json:"note" spanner:"note"`
}

func (e ConflictEntry) at() time.Time { return e.LastSeenAt }
func (e ConflictEntry) key() []any    { return []any{e.Key, e.PayloadHash} }

// Conflicts lists conflicts by when they were last delivered. The filter's State is
// open, resolved or all, its Reason a member in which the payouts differ.
func (r Reader) Conflicts(ctx context.Context, f Filter) iter.Seq2[ConflictEntry, error] {
	q := query{
		params: map[string]any{}, time: "c.last_seen_at", keys: []string{"c.settlement_key", "c.payload_hash"},
	}
	hint := ""
	switch f.State {
	case StateAll:
	case StateResolved:
		q.and("c.resolved_by IS NOT NULL", "", nil)
	default:
		hint, q.shard = index("settlement_conflicts_open"), "c.open_shard"
	}
	q.sql = `SELECT c.settlement_key, c.last_seen_at, c.settlement_id, m.account_id, c.payload_hash, c.fields, c.deliveries,
       c.first_seen_at, c.message_id, c.resolved_at, c.resolved_by, c.note
FROM settlement_conflicts` + hint + ` AS c
JOIN ledger_movements AS m ON m.settlement_key = c.settlement_key`
	q.narrow(f, "m.account_id")
	if f.Reason != "" {
		q.and("@reason IN UNNEST(c.fields)", "reason", f.Reason)
	}
	return list[ConflictEntry](ctx, r, q, f.Limit)
}

// UncertainEntry is an uncertain instruction in a list.
type UncertainEntry struct {
	Key            []byte     `json:"-" spanner:"settlement_key"`
	UncertainSince time.Time  `json:"uncertain_since" spanner:"uncertain_since"`
	SettlementID   string     `json:"settlement_id" spanner:"settlement_id"`
	AccountID      string     `json:"account_id" spanner:"account_id"`
	AmountCents    int64      `json:"amount_cents" spanner:"amount_cents"`
	Currency       string     `json:"currency" spanner:"currency"`
	Sends          int64      `json:"sends" spanner:"sends"`
	Checks         int64      `json:"checks" spanner:"checks"`
	LastSentAt     *time.Time `json:"last_sent_at" spanner:"last_sent_at"`
	NotFoundSince  *time.Time `json:"not_found_since" spanner:"not_found_since"`
	NextCheckAt    *time.Time `json:"next_check_at" spanner:"next_check_at"`
}

func (e UncertainEntry) at() time.Time { return e.UncertainSince }
func (e UncertainEntry) key() []any    { return []any{e.Key} }

// Amount is the transfer's amount.
func (e UncertainEntry) Amount() Amount { return Cents(e.AmountCents, e.Currency) }

// Uncertain lists uncertain instructions by since when they are. The filter has no
// Reason and no State. Its index is the function's, which looks for the oldest: each
// page sorts what a shard has, which is little but in a long outage of the bank.
func (r Reader) Uncertain(ctx context.Context, f Filter) iter.Seq2[UncertainEntry, error] {
	q := query{
		sql: `SELECT i.settlement_key, i.uncertain_since, i.settlement_id, m.account_id, m.amount_cents, m.currency, i.sends, i.checks,
       i.last_sent_at, i.not_found_since, i.next_check_at
FROM bank_instructions` + index("bank_instructions_uncertain") + ` AS i
JOIN ledger_movements AS m ON m.settlement_key = i.settlement_key`,
		params: map[string]any{}, shard: "i.due_shard", time: "i.uncertain_since", keys: []string{"i.settlement_key"},
	}
	q.and("i.uncertain_since IS NOT NULL", "", nil)
	q.narrow(f, "m.account_id")
	return list[UncertainEntry](ctx, r, q, f.Limit)
}

// ManualEntry is an instruction that a person decides about, in a list, with what
// made it so.
type ManualEntry struct {
	Key          []byte    `json:"-" spanner:"settlement_key"`
	CreatedAt    time.Time `json:"created_at" spanner:"created_at"`
	SettlementID string    `json:"settlement_id" spanner:"settlement_id"`
	AccountID    string    `json:"account_id" spanner:"account_id"`
	AmountCents  int64     `json:"amount_cents" spanner:"amount_cents"`
	Currency     string    `json:"currency" spanner:"currency"`
	Sends        int64     `json:"sends" spanner:"sends"`
	BankStatus   *string   `json:"bank_status" spanner:"bank_status"`
	ManualSince  time.Time `json:"manual_since" spanner:"manual_since"`
	Cause        string    `json:"cause" spanner:"cause"`
	HTTPStatus   *int64    `json:"http_status" spanner:"http_status"`
	Detail       *string   `json:"detail" spanner:"detail"`
}

func (e ManualEntry) at() time.Time { return e.CreatedAt }
func (e ManualEntry) key() []any    { return []any{e.Key} }

// Amount is the transfer's amount.
func (e ManualEntry) Amount() Amount { return Cents(e.AmountCents, e.Currency) }

// Manual lists the instructions that a person decides about by when they were
// created. The filter has no Reason and no State.
func (r Reader) Manual(ctx context.Context, f Filter) iter.Seq2[ManualEntry, error] {
	q := query{
		// The latest event made it manual: nothing happens to it before a person decides.
		sql: `SELECT i.settlement_key, i.created_at, i.settlement_id, m.account_id, m.amount_cents, m.currency, i.sends, i.bank_status,
       e.recorded_at AS manual_since, e.cause, e.http_status, e.detail
FROM bank_instructions` + index("bank_instructions_manual") + ` AS i
JOIN ledger_movements AS m ON m.settlement_key = i.settlement_key
JOIN bank_instruction_events AS e ON e.settlement_key = i.settlement_key AND e.version = i.version`,
		params: map[string]any{}, shard: "i.manual_shard", time: "i.created_at", keys: []string{"i.settlement_key"},
	}
	q.narrow(f, "m.account_id")
	return list[ManualEntry](ctx, r, q, f.Limit)
}

// QuarantineEntry is a quarantined message in a list.
type QuarantineEntry struct {
	RowKey        []byte     `json:"-" spanner:"message_key"`
	QuarantinedAt time.Time  `json:"quarantined_at" spanner:"quarantined_at"`
	MessageID     string     `json:"message_id" spanner:"message_id"`
	Subscription  string     `json:"subscription" spanner:"subscription"`
	Reason        string     `json:"reason" spanner:"reason"`
	Member        *string    `json:"member" spanner:"member"`
	Detail        string     `json:"detail" spanner:"detail"`
	DataBytes     int64      `json:"data_bytes" spanner:"data_bytes"`
	PublishTime   *time.Time `json:"publish_time" spanner:"publish_time"`
	Deliveries    int64      `json:"deliveries" spanner:"deliveries"`
	ReleasedAt    *time.Time `json:"released_at" spanner:"released_at"`
	ReleasedBy    *string    `json:"released_by" spanner:"released_by"`
	Note          *string    `json:"note" spanner:"note"`
	// MessageKey is the row's key in hex: it names the message where its ID does not.
	MessageKey string `json:"message_key" spanner:"-"`
}

func (e QuarantineEntry) at() time.Time { return e.QuarantinedAt }
func (e QuarantineEntry) key() []any    { return []any{e.RowKey} }

// Quarantine lists quarantined messages by when they came first. The filter's State
// is open, released or all, its Reason a [payout.Reason]; it has no AccountID.
func (r Reader) Quarantine(ctx context.Context, f Filter) iter.Seq2[QuarantineEntry, error] {
	q := query{params: map[string]any{}, time: "q.quarantined_at", keys: []string{"q.message_key"}}
	hint := ""
	switch f.State {
	case StateAll:
	case StateReleased:
		q.and("q.released_by IS NOT NULL", "", nil)
	default:
		hint, q.shard = index("quarantined_messages_open"), "q.open_shard"
	}
	q.sql = `SELECT q.message_key, q.quarantined_at, q.message_id, q.subscription, q.reason, q.member, q.detail, BYTE_LENGTH(q.data) AS data_bytes,
       q.publish_time, q.deliveries, q.released_at, q.released_by, q.note
FROM quarantined_messages` + hint + ` AS q`
	q.narrow(f, "")
	if f.Reason != "" {
		q.and("q.reason = @reason", "reason", f.Reason)
	}
	found := list[QuarantineEntry](ctx, r, q, f.Limit)
	return func(yield func(QuarantineEntry, error) bool) {
		for e, err := range found {
			e.MessageKey = hex.EncodeToString(e.RowKey)
			if !yield(e, err) {
				return
			}
		}
	}
}

// MovementEntry is a movement in a list.
type MovementEntry struct {
	Key             []byte    `json:"-" spanner:"settlement_key"`
	RecordedAt      time.Time `json:"recorded_at" spanner:"recorded_at"`
	SettlementID    string    `json:"settlement_id" spanner:"settlement_id"`
	AccountID       string    `json:"account_id" spanner:"account_id"`
	AmountCents     int64     `json:"amount_cents" spanner:"amount_cents"`
	Currency        string    `json:"currency" spanner:"currency"`
	CreditorAccount *string   `json:"creditor_account" spanner:"creditor_account"`
	Reference       *string   `json:"reference" spanner:"reference"`
	// State is that of the bank instruction; nil: there is none.
	State *string `json:"state" spanner:"state"`
	// Reversed is the reason of the reversal; nil: the movement stands.
	Reversed *string `json:"reversed" spanner:"reversed"`
}

func (e MovementEntry) at() time.Time { return e.RecordedAt }
func (e MovementEntry) key() []any    { return []any{e.Key} }

// Amount is the movement's amount.
func (e MovementEntry) Amount() Amount { return Cents(e.AmountCents, e.Currency) }

// Movements lists movements by when they were recorded. The filter's State is that of
// the bank instruction, or none; it has no Reason. See the package's comment for
// what it costs.
func (r Reader) Movements(ctx context.Context, f Filter) iter.Seq2[MovementEntry, error] {
	q := query{
		sql: `SELECT m.settlement_key, m.recorded_at, m.settlement_id, m.account_id, m.amount_cents, m.currency, m.creditor_account, m.reference,
       i.state, v.reason AS reversed
FROM ledger_movements AS m
LEFT JOIN bank_instructions AS i ON i.settlement_key = m.settlement_key
LEFT JOIN ledger_reversals AS v ON v.settlement_key = m.settlement_key`,
		params: map[string]any{}, time: "m.recorded_at", keys: []string{"m.settlement_key"},
	}
	q.narrow(f, "m.account_id")
	switch f.State {
	case "":
	case StateNone:
		q.and("i.state IS NULL", "", nil)
	default:
		q.and("i.state = @state", "state", f.State)
	}
	return list[MovementEntry](ctx, r, q, f.Limit)
}

// InstructionStates are the states that a bank instruction can have, in the order
// of its life.
func InstructionStates() []transfer.State {
	return []transfer.State{
		transfer.StateUncertain, transfer.StateAccepted, transfer.StateConfirmed,
		transfer.StateRejected, transfer.StateReturned, transfer.StateManual,
	}
}

// Reasons are the reasons of quarantine.
func Reasons() []payout.Reason {
	return []payout.Reason{
		payout.ReasonUnsupportedEvent, payout.ReasonTooLarge, payout.ReasonEmptyData, payout.ReasonNotJSON, payout.ReasonDuplicateField,
		payout.ReasonUnknownField, payout.ReasonMissingField, payout.ReasonInvalidField,
	}
}

// MemberNames are the members in which two payouts can differ.
func MemberNames() []string {
	var names []string
	for _, member := range members(payout.Payout{}) {
		if member.name != "settlement_id" {
			names = append(names, member.name)
		}
	}
	return append(names, settle.FieldPayloadHash)
}
