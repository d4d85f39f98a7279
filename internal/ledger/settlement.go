package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/api/iterator"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// tag tells these reads apart in Spanner's statistics.
const tag = "investigate"

// maxConflicts bounds the conflicts of one settlement that are read: a producer
// can make any number.
const maxConflicts = 100

// ErrNoSettlement reports a settlement ID that was never settled.
var ErrNoSettlement = errors.New("no such settlement")

// Reader reads a database. It is safe for concurrent use.
type Reader struct {
	// Client is the database's. Required.
	Client *spanner.Client
	// Bound says how fresh what is read must be. Defaults to a strong read.
	Bound spanner.TimestampBound

	page int // rows that one query of a list returns; zero: as many as is sensible
}

// Settlement is everything that is stored under a settlement ID, as of ReadAt.
type Settlement struct {
	ReadAt   time.Time `json:"read_at"`
	Movement Movement  `json:"movement"`
	// Receipt is nil where it has expired.
	Receipt *Receipt `json:"receipt"`
	// Instruction is nil where the payout has no creditor account.
	Instruction *Instruction `json:"bank_instruction"`
	Events      []Event      `json:"bank_instruction_events"`
	// Reversal is nil where the movement stands.
	Reversal *Reversal `json:"reversal"`
	// Conflicts are the newest first, 100 at most.
	Conflicts []Conflict `json:"conflicts"`
	// MoreConflicts says that there are more.
	MoreConflicts bool `json:"more_conflicts"`
	// Next is what happens next, the most urgent first; never empty.
	Next []Next `json:"next"`
}

// Movement is the effect on the ledger.
type Movement struct {
	SettlementID    string    `json:"settlement_id"`
	AccountID       string    `json:"account_id"`
	Amount          Amount    `json:"amount"`
	CreditorAccount *string   `json:"creditor_account"`
	Reference       *string   `json:"reference"`
	PayloadHash     string    `json:"payload_hash"`
	RecordedAt      time.Time `json:"recorded_at"`
	// CurrencyDefaulted says that the message had no currency.
	CurrencyDefaulted bool `json:"currency_defaulted"`
	// Intact is false where the columns do not hash to the payload hash: somebody
	// has changed the ledger by hand.
	Intact bool `json:"intact"`
}

// Receipt proves that the settlement ID was processed.
type Receipt struct {
	ResultStatus string         `json:"result_status"`
	PayloadHash  string         `json:"payload_hash"`
	DeliveryID   string         `json:"delivery_id"`
	MessageID    string         `json:"message_id"`
	PublishTime  *time.Time     `json:"publish_time"`
	Metadata     jsontext.Value `json:"metadata,omitzero"`
	AppliedAt    time.Time      `json:"applied_at"`
	// ExpireFrom is when the outcome became final; nil: the receipt is kept.
	ExpireFrom *time.Time `json:"expire_from"`
}

// Reversal undoes the movement.
type Reversal struct {
	Amount     Amount    `json:"amount"`
	Reason     string    `json:"reason"`
	RecordedAt time.Time `json:"recorded_at"`
}

// Instruction is what the bank was asked for, and what is known of it. A nil time
// means never.
type Instruction struct {
	State          transfer.State `json:"state"`
	Version        int64          `json:"version"`
	IdempotencyKey string         `json:"idempotency_key"`
	Body           []byte         `json:"request_body"`
	LeaseOwner     string         `json:"lease_owner,omitzero"`
	LeaseUntil     *time.Time     `json:"lease_until"`
	Sends          int64          `json:"sends"`
	SendDeferred   bool           `json:"send_deferred"`
	FirstSentAt    *time.Time     `json:"first_sent_at"`
	LastSentAt     *time.Time     `json:"last_sent_at"`
	ResendNotAfter *time.Time     `json:"resend_not_after"`
	NotFoundSince  *time.Time     `json:"not_found_since"`
	AcceptedAt     *time.Time     `json:"accepted_at"`
	FinalAt        *time.Time     `json:"final_at"`
	TransferID     string         `json:"bank_transfer_id,omitzero"`
	BankStatus     string         `json:"bank_status,omitzero"`
	Checks         int64          `json:"checks"`
	NextCheckAt    *time.Time     `json:"next_check_at"`
	CreatedAt      time.Time      `json:"created_at"`
	// Superseded are the keys that it had before, the oldest first; usually none.
	Superseded []SupersededKey `json:"superseded_keys,omitzero"`
}

// SupersededKey is an idempotency key that two people gave up. The bank is still
// asked about it.
type SupersededKey struct {
	// Generation counts the instruction's keys from 1.
	Generation     int64      `json:"generation" spanner:"generation"`
	IdempotencyKey string     `json:"idempotency_key" spanner:"idempotency_key"`
	Body           []byte     `json:"request_body" spanner:"request_body"`
	Sends          int64      `json:"sends" spanner:"sends"`
	FirstSentAt    *time.Time `json:"first_sent_at" spanner:"first_sent_at"`       // nil: never
	LastSentAt     *time.Time `json:"last_sent_at" spanner:"last_sent_at"`         // nil: never
	TransferID     *string    `json:"bank_transfer_id" spanner:"bank_transfer_id"` // nil: unknown
	BankStatus     *string    `json:"bank_status" spanner:"bank_status"`           // nil: unknown
	// DecidedVersion is the event that says who gave it up, and why.
	DecidedVersion int64     `json:"decided_version" spanner:"decided_version"`
	SupersededAt   time.Time `json:"superseded_at" spanner:"superseded_at"`
}

// Event is a row of the instruction's history.
type Event struct {
	Version    int64     `json:"version" spanner:"version"`
	From       *string   `json:"from_state" spanner:"from_state"` // nil: it was created
	To         string    `json:"to_state" spanner:"to_state"`
	Cause      string    `json:"cause" spanner:"cause"`
	HTTPStatus *int64    `json:"http_status" spanner:"http_status"` // nil: no answer
	Detail     *string   `json:"detail" spanner:"detail"`
	RecordedAt time.Time `json:"recorded_at" spanner:"recorded_at"`
}

// Conflict is a message that says something else under the settlement ID.
type Conflict struct {
	PayloadHash string     `json:"payload_hash" spanner:"payload_hash"`
	Fields      []string   `json:"fields" spanner:"fields"`
	Payload     []byte     `json:"payload" spanner:"payload"`
	MessageID   string     `json:"message_id" spanner:"message_id"`
	Deliveries  int64      `json:"deliveries" spanner:"deliveries"`
	FirstSeenAt time.Time  `json:"first_seen_at" spanner:"first_seen_at"`
	LastSeenAt  time.Time  `json:"last_seen_at" spanner:"last_seen_at"`
	ResolvedAt  *time.Time `json:"resolved_at" spanner:"resolved_at"` // nil: open
	ResolvedBy  *string    `json:"resolved_by" spanner:"resolved_by"`
	Note        *string    `json:"note" spanner:"note"`
	// Members are all members of both payouts, side by side.
	Members []Member `json:"members" spanner:"-"`
	// Fault says why the kept message cannot be read as a payout; empty: it can.
	Fault string `json:"fault,omitzero" spanner:"-"`
}

// Settlement returns everything that is stored under a settlement ID, read at one
// timestamp. It fails with [ErrNoSettlement].
func (r Reader) Settlement(ctx context.Context, id string) (Settlement, error) {
	tx := r.Client.ReadOnlyTransaction().WithTimestampBound(r.Bound)
	defer tx.Close()
	one := keyed{ctx: ctx, tx: tx, id: id}
	var s Settlement
	movement := one.movement(&s)
	one.receipt(&s)
	instruction := one.instruction(&s)
	one.superseded(&s)
	one.events(&s)
	one.reversal(&s)
	one.conflicts(&s)
	if one.err != nil {
		return Settlement{}, fmt.Errorf("read settlement %q: %w", id, one.err)
	}
	if movement == nil {
		return Settlement{}, fmt.Errorf("settlement %q: %w", id, ErrNoSettlement)
	}
	readAt, err := tx.Timestamp()
	if err != nil {
		return Settlement{}, fmt.Errorf("read settlement %q: %w", id, err)
	}
	s.ReadAt = readAt
	for i := range s.Conflicts {
		s.Conflicts[i].compare(*movement)
	}
	s.Next = next(s, instruction)
	return s, nil
}

// keyed reads the rows of one settlement. After an error it reads nothing more.
type keyed struct {
	ctx context.Context // lives as long as the call that makes it
	tx  *spanner.ReadOnlyTransaction
	id  string
	err error
}

// row reads the settlement's one row of a table into the columns' places. It
// returns false where there is none.
func (k *keyed) row(table string, columns []string, to ...any) bool {
	if k.err != nil {
		return false
	}
	row, err := k.tx.ReadRowWithOptions(k.ctx, table, spanner.Key{spannerstore.SettlementKey(k.id)}, columns, &spanner.ReadOptions{RequestTag: tag})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return false
	}
	if err == nil {
		err = row.Columns(to...)
	}
	k.err = err
	return err == nil
}

func (k *keyed) movement(s *Settlement) *settle.Movement {
	var (
		m     = settle.Movement{SettlementID: k.id}
		shown = &s.Movement
	)
	found := k.row("ledger_movements",
		[]string{"account_id", "amount_cents", "currency", "creditor_account", "reference", "payload_hash", "recorded_at"},
		&m.AccountID, &m.AmountCents, &m.Currency, &shown.CreditorAccount, &shown.Reference, &shown.PayloadHash, &m.RecordedAt)
	if !found {
		return nil
	}
	m.PayloadHash = payout.Hash(shown.PayloadHash)
	m.CreditorAccount, m.Reference = orEmpty(shown.CreditorAccount), orEmpty(shown.Reference)
	shown.SettlementID, shown.AccountID, shown.RecordedAt = m.SettlementID, m.AccountID, m.RecordedAt
	shown.Amount = Cents(m.AmountCents, m.Currency)
	settled, intact := m.Payout()
	shown.CurrencyDefaulted, shown.Intact = intact && settled.CurrencyDefaulted, intact
	return &m
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (k *keyed) receipt(s *Settlement) {
	var (
		r        Receipt
		metadata spanner.NullString
	)
	found := k.row("settlement_receipts",
		[]string{"result_status", "payload_hash", "delivery_id", "message_id", "publish_time", "metadata", "applied_at", "expire_from"},
		&r.ResultStatus, &r.PayloadHash, &r.DeliveryID, &r.MessageID, &r.PublishTime, &metadata, &r.AppliedAt, &r.ExpireFrom)
	if !found {
		return
	}
	if metadata.Valid {
		if r.Metadata = jsontext.Value(metadata.StringVal); !r.Metadata.IsValid() {
			k.err = errors.New("the receipt's metadata is not JSON")
		}
	}
	s.Receipt = &r
}

func (k *keyed) reversal(s *Settlement) {
	var (
		r     Reversal
		minor int64
	)
	if k.row("ledger_reversals", []string{"amount_cents", "reason", "recorded_at"}, &minor, &r.Reason, &r.RecordedAt) {
		r.Amount = Cents(minor, s.Movement.Amount.Currency)
		s.Reversal = &r
	}
}

func (k *keyed) instruction(s *Settlement) *transfer.Instruction {
	var found *transfer.Instruction
	k.query(spannerstore.InstructionSQL+` WHERE i.settlement_key = @key`, func(row *spanner.Row) error {
		in, err := spannerstore.ScanInstruction(row)
		if err != nil {
			return err
		}
		found, s.Instruction = &in, shownInstruction(in)
		return nil
	})
	return found
}

func shownInstruction(in transfer.Instruction) *Instruction {
	return &Instruction{
		State: in.State, Version: in.Version, IdempotencyKey: in.Transfer.Key.String(), Body: in.Body,
		LeaseOwner: in.Owner, LeaseUntil: orNil(in.LeaseUntil),
		Sends: in.Sends, SendDeferred: in.SendDeferred, FirstSentAt: orNil(in.FirstSentAt), LastSentAt: orNil(in.LastSentAt),
		ResendNotAfter: orNil(in.ResendNotAfter), NotFoundSince: orNil(in.NotFoundSince), AcceptedAt: orNil(in.AcceptedAt), FinalAt: orNil(in.FinalAt),
		TransferID: in.TransferID, BankStatus: in.BankStatus, Checks: in.Checks, NextCheckAt: orNil(in.NextCheckAt), CreatedAt: in.CreatedAt,
	}
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// superseded reads what [transfer.Instruction] does not hold of the earlier keys.
func (k *keyed) superseded(s *Settlement) {
	if s.Instruction == nil {
		return
	}
	k.query(`SELECT generation, idempotency_key, request_body, sends, first_sent_at, last_sent_at, bank_transfer_id, bank_status,
  decided_version, superseded_at
FROM bank_superseded_keys WHERE settlement_key = @key ORDER BY generation`, func(row *spanner.Row) error {
		var old SupersededKey
		err := row.ToStruct(&old)
		s.Instruction.Superseded = append(s.Instruction.Superseded, old)
		return err
	})
}

func (k *keyed) events(s *Settlement) {
	k.query(`SELECT version, from_state, to_state, cause, http_status, detail, recorded_at
FROM bank_instruction_events WHERE settlement_key = @key ORDER BY version`, func(row *spanner.Row) error {
		var e Event
		err := row.ToStruct(&e)
		s.Events = append(s.Events, e)
		return err
	})
}

func (k *keyed) conflicts(s *Settlement) {
	k.query(`SELECT payload_hash, fields, payload, message_id, deliveries, first_seen_at, last_seen_at, resolved_at, resolved_by, note
FROM settlement_conflicts WHERE settlement_key = @key ORDER BY last_seen_at DESC, payload_hash LIMIT @limit`, func(row *spanner.Row) error {
		if len(s.Conflicts) == maxConflicts {
			s.MoreConflicts = true
			return nil
		}
		var c Conflict
		err := row.ToStruct(&c)
		s.Conflicts = append(s.Conflicts, c)
		return err
	})
}

// query runs a query about the settlement.
func (k *keyed) query(sql string, each func(*spanner.Row) error) {
	if k.err != nil {
		return
	}
	statement := spanner.Statement{SQL: sql, Params: map[string]any{"key": spannerstore.SettlementKey(k.id), "limit": int64(maxConflicts + 1)}}
	k.err = forEach(k.tx.QueryWithOptions(k.ctx, statement, spanner.QueryOptions{RequestTag: tag}), each)
}

// forEach calls each with every row.
func forEach(rows *spanner.RowIterator, each func(*spanner.Row) error) error {
	defer rows.Stop()
	for {
		row, err := nextRow(rows)
		if row == nil || err != nil {
			return err
		}
		if err := each(row); err != nil {
			return err
		}
	}
}

// nextRow returns the next row, or nil at the end.
func nextRow(rows *spanner.RowIterator) (*spanner.Row, error) {
	row, err := rows.Next()
	if errors.Is(err, iterator.Done) {
		return nil, nil
	}
	return row, err
}
