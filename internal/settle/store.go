package settle

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Store keeps settlements and quarantined messages.
//
// Several instances of the program, each with its own Store, work on the same data
// at the same time, and any of them can crash between two of its steps. All methods
// are safe for concurrent use.
//
// A nil error means that the result is durably committed before the method returns.
// After an error the commit is unknown: the change may be committed, may be committed
// later, or never. The caller then must not acknowledge; the same call, repeated by
// any instance, completes the work. The method repeats aborted transactions within
// ctx; the caller does not.
type Store interface {
	// Settle settles s at most once per settlement ID.
	//
	// In one atomic, isolated step it reads the rows of s's settlement ID, calls
	// [Judge] and carries out the decision: it inserts receipt, movement and
	// instruction together, inserts a conflict, or changes nothing. A Store may use a
	// shorter path that always gives the same result. It never changes a stored row.
	//
	// A Store that does not know whether its commit succeeded reads the rows, and
	// recognises its own commit by s's delivery ID. It fails with [ErrOutcomeUnknown]
	// where this read does not decide either. It fails with [transfer.ErrNoBank] for a
	// new payout that is [Settlement.Unroutable].
	Settle(ctx context.Context, s Settlement) (Result, error)

	// Movement reads the movement of a settlement ID; nil: there is none.
	Movement(ctx context.Context, settlementID string) (*Movement, error)

	// Quarantine stores q.Message whole, once per identity. It reports whether the
	// message was known; then it writes nothing.
	Quarantine(ctx context.Context, q Quarantined) (known bool, err error)
}

// ErrOutcomeUnknown reports that the answer to a commit was lost, and that reading
// the rows did not show whether the commit succeeded.
var ErrOutcomeUnknown = errors.New("outcome of the commit is unknown")

// ErrTooLargeToKeep reports a message that no quarantine row can hold. Pub/Sub
// delivers no such message.
var ErrTooLargeToKeep = errors.New("message is too large to keep in quarantine")

// MaxQuarantineBytes is the largest data of a quarantined message: Spanner's limit
// for a column. A Pub/Sub message has at most 10,000,000 bytes.
const MaxQuarantineBytes = 10 << 20

// Settlement is a payout with the other stored facts of its delivery.
type Settlement struct {
	Payout payout.Payout
	// Hash is the payload hash of Payout, computed once.
	Hash payout.Hash
	// DeliveryID is unique to the delivery, not to the message. By it a delivery
	// distinguishes its own commit from another delivery's.
	DeliveryID string
	// Message is the message that carried the payout.
	Message Message
	// Instruction is the payout's credit transfer; nil for none.
	Instruction *transfer.Instruction
	// Redelivered means that Pub/Sub delivered the message before. A Store can then read
	// before it writes, because the payout is probably settled.
	Redelivered bool
}

// Unroutable reports that the payout wants a bank instruction and has none, because no
// bank serves it. Such a payout is compared with the stored one and never inserted.
func (s Settlement) Unroutable() bool { return s.Payout.WantsBank() && s.Instruction == nil }

// Quarantined is a message that is not a valid payout, with the reason.
type Quarantined struct {
	Message Message
	Refusal payout.Refusal
}

// Identity identifies a message in quarantine by subscription, message ID and a
// digest of the data. The digest separates messages without an ID, and messages of a
// producer or tool that uses an ID twice.
func (q Quarantined) Identity() string {
	content := q.Message.Fingerprint
	if content == nil {
		content = q.Message.Data
	}
	return fmt.Sprintf("%q %q %x", q.Message.Subscription, q.Message.ID, sha256.Sum256(content))
}

// JSONObject returns metadata or attributes in stored form: the text of one JSON
// object with sorted names, or "" for an empty map. A database's JSON type would not
// keep every character.
func JSONObject(m map[string]string) (string, error) {
	if len(m) == 0 {
		return "", nil
	}
	text, err := json.Marshal(m, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode as a JSON object: %w", err)
	}
	return string(text), nil
}

// Stored are the rows of one settlement ID. The zero value is a settlement ID that
// was never settled.
type Stored struct {
	// Movement is nil if the settlement ID is new. It is not needed where
	// [Receipt.Decides].
	Movement *Movement
	// Receipt is nil if it has expired or the settlement ID is new.
	Receipt *Receipt
	// ConflictKnown means that a conflict is recorded under the incoming payload hash.
	ConflictKnown bool
}

// Movement is a row of the ledger. It is permanent.
type Movement struct {
	SettlementID    string
	AccountID       string
	AmountCents     int64
	Currency        string
	CreditorAccount string // empty for none
	Reference       string // empty for none
	PayloadHash     payout.Hash
	// Source is the topic or subscription by which the settling message came; empty
	// when unknown.
	Source     string
	RecordedAt time.Time
}

// Receipt proves that a settlement ID was processed.
type Receipt struct {
	PayloadHash payout.Hash
	DeliveryID  string
	AppliedAt   time.Time
}

// Decides reports whether the receipt alone shows that p is settled. Another payload
// hash does not decide, because only the movement has the members to compare.
func (r *Receipt) Decides(p payout.Payout) bool {
	if r == nil {
		return false
	}
	same, err := r.PayloadHash.Matches(p)
	return err == nil && same
}
