package sim

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

const (
	// MaxSkew is how far an instance's clock is off at most.
	MaxSkew = 5 * time.Second
	// Slack is what of the last fifth of a key's life is not the network's: a send
	// that begins just before resend_not_after is written within its time limit of
	// 20 seconds, and the clocks of the first and the last sender are off.
	Slack = 20*time.Second + 2*MaxSkew
)

// Fate is what the bank makes of a request whose key it does not remember. The
// zero value is executed at once, and shown at once.
type Fate struct {
	// Rejected transfers are not executed, Stuck ones neither executed nor rejected.
	Rejected, Stuck bool
	// After is the time from the arrival to the outcome.
	After time.Duration
	// ReturnedAfter is the time from the execution to the return; zero is never.
	ReturnedAfter time.Duration
	// ShownAfter is the time from the arrival until the status API knows it.
	ShownAfter time.Duration
	// Blocked transfers are shown with a status that a person has to look at.
	Blocked bool
	// Lies says that the transfer counts as rejected until it is executed.
	Lies bool
	// OtherAmount says that the bank moves another amount than it was asked for.
	OtherAmount bool
}

// Entry is a transfer in the bank's ledger.
type Entry struct {
	Settlement string
	Key        uuid.UUID
	Fate       Fate
	Arrived    time.Time
}

// Word is what the bank says of an entry.
type Word int

// The words. WordNone is for a time before the entry's arrival.
const (
	WordNone Word = iota
	WordPending
	WordRejected
	WordExecuted
	WordReturned
)

// String returns the word as a story tells it.
func (w Word) String() string {
	return [...]string{"nothing", "pending", "rejected", "executed", "returned"}[w]
}

// Word returns what the bank says of the entry at the given time.
func (e *Entry) Word(at time.Time) Word {
	decided := e.Arrived.Add(e.Fate.After)
	switch {
	case at.Before(e.Arrived):
		return WordNone
	case e.Fate.Lies && at.Before(decided):
		return WordRejected
	case e.Fate.Stuck || at.Before(decided):
		return WordPending
	case e.Fate.Rejected:
		return WordRejected
	case e.Fate.ReturnedAfter > 0 && !at.Before(decided.Add(e.Fate.ReturnedAfter)):
		return WordReturned
	}
	return WordExecuted
}

// Executed tells whether money has moved by then, sent back or not.
func (e *Entry) Executed(at time.Time) bool {
	word := e.Word(at)
	return word == WordExecuted || word == WordReturned
}

// Bank is a bank with a ledger, as the package comment describes it. It knows no
// clock: the time comes in as a value. It is not safe for concurrent use.
type Bank struct {
	// Lifetime is how long a key is remembered from its first arrival.
	Lifetime time.Duration
	// Replays says that a key which is remembered is answered with its transfer.
	// Other banks say that the key is used, in progress or locked, or answer again
	// the 500 that they answered first: all of that proves nothing.
	Replays bool
	// DownUntil is until when the bank answers nobody.
	DownUntil time.Time
	// Entries are all transfers that were ever taken, by settlement ID.
	Entries map[string][]*Entry
}

// NewBank returns a bank with an empty ledger, which replays.
func NewBank(lifetime time.Duration) *Bank {
	return &Bank{Lifetime: lifetime, Replays: true, Entries: map[string][]*Entry{}}
}

// Body is what the model bank is asked with.
func Body(p payout.Payout, key uuid.UUID) []byte {
	return fmt.Appendf(nil, "%s %s %d %s %s %s", p.SettlementID, key, p.AmountCents, p.Currency, p.CreditorAccount, p.Reference)
}

// Known returns the entry under a key that the bank remembers, or nil.
func (b *Bank) Known(settlementID string, key uuid.UUID, at time.Time) *Entry {
	for _, e := range b.Entries[settlementID] {
		if e.Key == key && at.Before(e.Arrived.Add(b.Lifetime)) {
			return e
		}
	}
	return nil
}

// Take takes a request whose key is not remembered into the ledger.
func (b *Bank) Take(settlementID string, key uuid.UUID, fate Fate, at time.Time) *Entry {
	e := &Entry{Settlement: settlementID, Key: key, Fate: fate, Arrived: at}
	b.Entries[settlementID] = append(b.Entries[settlementID], e)
	return e
}

// SendAnswer is how the adapter classifies the answer to a request that became
// entry e; earlier is transfer.SendRequest.EarlierMayHaveReached.
func (e *Entry) SendAnswer(at time.Time, earlier bool) transfer.SendClass {
	switch {
	case e.Fate.OtherAmount:
		return transfer.SendManual
	case e.Word(at) != WordRejected:
		return transfer.SendAccepted
	}
	return Refusal(earlier)
}

// Refusal is how the adapter classifies a refusal from the bank's reject list.
func Refusal(earlier bool) transfer.SendClass {
	if earlier {
		return transfer.SendUncertain
	}
	return transfer.SendRejected
}

// Status is how the adapter reads the status API's answer about a key. seen is
// the time whose state the API shows: its own, or an earlier one.
func (b *Bank) Status(settlementID string, key uuid.UUID, seen time.Time) transfer.StatusReading {
	var shown []*Entry
	for _, e := range b.Entries[settlementID] {
		if e.Key == key && !seen.Before(e.Arrived.Add(e.Fate.ShownAfter)) {
			shown = append(shown, e)
		}
	}
	switch {
	case len(shown) == 0:
		return transfer.StatusNotFound
	case len(shown) > 1 || shown[0].Fate.OtherAmount:
		return transfer.StatusManual
	case shown[0].Fate.Blocked:
		return transfer.StatusAttention
	}
	switch shown[0].Word(seen) {
	case WordPending:
		return transfer.StatusPending
	case WordRejected:
		return transfer.StatusRejected
	case WordExecuted:
		return transfer.StatusConfirmed
	case WordReturned:
		return transfer.StatusReturned
	case WordNone:
	}
	return transfer.StatusNotFound
}
