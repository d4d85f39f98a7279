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
// A Store is shared: several instances of the program, each with a Store of its
// own, work on the same data at the same time, and any of them can die between
// any two of its steps. All methods are safe for concurrent use.
//
// A nil error means that what the result says is durably committed, before the
// method returns. Any error means that nothing is known: the change may be
// committed, may be committed later, or may never be. The caller then must not
// acknowledge, and the same call, made again by anyone, does what is still to be
// done. The method retries what its database tells it to retry, within ctx; the
// caller does not.
type Store interface {
	// Settle settles s at most once per settlement ID.
	//
	// In one atomic step that is isolated from every other, it looks at what is
	// stored under s's settlement ID, lets [Judge] decide, and carries the
	// decision out: receipt, movement and instruction are inserted together, or
	// a conflict is recorded, or nothing is changed. A Store may take any
	// shorter way that always comes to the same result. Stored receipts and
	// movements are never changed.
	//
	// A Store that cannot tell whether its commit went through reads again, and
	// recognises its own commit by s's delivery ID; the error is
	// [ErrOutcomeUnknown] where that does not help either. A conflict whose answer was
	// lost is counted once, unless another delivery of it came in between.
	Settle(ctx context.Context, s Settlement) (Result, error)

	// Quarantine keeps q.Message whole, once per identity. A message that is
	// already kept stays as it is, and only its count of deliveries is raised. A
	// delivery that is recorded again right after itself, its answer having been
	// lost, is counted once.
	Quarantine(ctx context.Context, q Quarantined) error
}

// ErrOutcomeUnknown reports that a commit was sent, that its answer was lost,
// and that reading again did not tell whether it went through.
var ErrOutcomeUnknown = errors.New("outcome of the commit is unknown")

// ErrTooLargeToKeep reports a message that no quarantine row can hold. Pub/Sub
// delivers no such message.
var ErrTooLargeToKeep = errors.New("message is too large to keep in quarantine")

// MaxQuarantineBytes is the largest data a quarantined message can have: a
// Spanner column's limit. A Pub/Sub message has 10,000,000 bytes at most.
const MaxQuarantineBytes = 10 << 20

// Settlement is what is stored of a payout that is settled.
type Settlement struct {
	Payout payout.Payout
	// Hash is the payload hash of Payout, computed once.
	Hash payout.Hash
	// DeliveryID is unique to the delivery, not to the message: it tells a
	// delivery's own commit from one of another delivery of the same message.
	DeliveryID string
	// Message is the message that carried the payout.
	Message Message
	// Instruction is the credit transfer that the payout wants; nil for none.
	Instruction *transfer.Instruction
}

// Quarantined is what is stored of a message that cannot be a payout.
type Quarantined struct {
	Message Message
	Refusal payout.Refusal
	// DeliveryID is as in [Settlement].
	DeliveryID string
}

// Identity tells messages apart in quarantine: subscription, message ID and a
// digest of the data. The digest is there for messages without an ID, and so
// that no producer or tool that uses an ID twice can hide one message behind
// another.
func (q Quarantined) Identity() string {
	content := q.Message.Fingerprint
	if content == nil {
		content = q.Message.Data
	}
	return fmt.Sprintf("%q %q %x", q.Message.Subscription, q.Message.ID, sha256.Sum256(content))
}

// JSONObject returns metadata or attributes as stores keep them: one JSON object
// as text, its names sorted, and empty for an empty map. It is text, and not a
// database's JSON type, so that every character a message can have is kept.
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

// Stored is what a store holds under a settlement ID. The zero value is a
// settlement ID that was never settled.
type Stored struct {
	// Movement is the effect on the ledger; nil where the settlement ID is new.
	Movement *Movement
	// Receipt is nil where it has expired or the settlement ID is new.
	Receipt *Receipt
	// Instruction is the state of the bank instruction, if there is one.
	Instruction transfer.State
	// ConflictDeliveryID is the last delivery that recorded a conflict under the
	// incoming payload hash; empty where no such conflict is recorded.
	ConflictDeliveryID string
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
	RecordedAt      time.Time
}

// Receipt proves that a settlement ID was processed.
type Receipt struct {
	PayloadHash payout.Hash
	DeliveryID  string
}
