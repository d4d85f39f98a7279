package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

const (
	// MaxSkew is the largest offset of an instance's clock.
	MaxSkew = 5 * time.Second
	// Slack is the part of the last fifth of a key's life that the network cannot
	// use: a send that begins just before resend_not_after is written within its
	// deadline of 20 seconds, and the clocks of the first and the last sender differ.
	Slack = 20*time.Second + 2*MaxSkew
)

// Processing is how the bank processes a request under a new key. The zero value
// executes and shows the transfer at once.
type Processing struct {
	// Rejected transfers are not executed; Stuck ones stay pending.
	Rejected, Stuck bool
	// After is the time from the arrival to the execution or rejection.
	After time.Duration
	// ReturnedAfter is the time from the execution to the return; zero means never.
	ReturnedAfter time.Duration
	// ShownAfter is the time from the arrival until the status API shows the transfer.
	ShownAfter time.Duration
	// Blocked transfers have a status that requires manual review.
	Blocked bool
	// RejectedFirst transfers have the status rejected until they are executed.
	RejectedFirst bool
	// OtherAmount transfers move another amount than the requested one.
	OtherAmount bool
}

// Entry is a transfer in the bank's ledger.
type Entry struct {
	Key        uuid.UUID
	Processing Processing
	Arrived    time.Time
}

// EntryStatus is the status of an entry.
type EntryStatus int

// The statuses. EntryNone precedes the arrival.
const (
	EntryNone EntryStatus = iota
	EntryPending
	EntryRejected
	EntryExecuted
	EntryReturned
)

// String returns the status as one word.
func (s EntryStatus) String() string {
	return [...]string{"nothing", "pending", "rejected", "executed", "returned"}[s]
}

// Status returns the entry's status at the given time.
func (e *Entry) Status(at time.Time) EntryStatus {
	decided := e.Arrived.Add(e.Processing.After)
	switch {
	case at.Before(e.Arrived):
		return EntryNone
	case e.Processing.RejectedFirst && at.Before(decided):
		return EntryRejected
	case e.Processing.Stuck || at.Before(decided):
		return EntryPending
	case e.Processing.Rejected:
		return EntryRejected
	case e.Processing.ReturnedAfter > 0 && !at.Before(decided.Add(e.Processing.ReturnedAfter)):
		return EntryReturned
	}
	return EntryExecuted
}

// Executed reports whether the bank has moved money by then, returned or not.
func (e *Entry) Executed(at time.Time) bool { return e.Status(at) >= EntryExecuted }

// Bank is a model of a bank with a ledger, as the package comment describes it. It
// has no clock: callers pass the time. It is not safe for concurrent use.
type Bank struct {
	// Lifetime is the time for which the bank remembers a key, from its first
	// arrival.
	Lifetime time.Duration
	// Replays says that the bank answers a remembered key with its transfer. Other
	// banks answer that the key is used, in progress or locked, or repeat a 500:
	// all of that proves nothing.
	Replays bool
	// DownUntil is the end of the bank's downtime.
	DownUntil time.Time
	// Entries are the entries of the ledger by settlement ID.
	Entries map[string][]*Entry
}

// NewBank returns a bank with an empty ledger, which replays.
func NewBank(lifetime time.Duration) *Bank {
	return &Bank{Lifetime: lifetime, Replays: true, Entries: map[string][]*Entry{}}
}

// Body is the request body for the model bank.
func Body(p payout.Payout, key uuid.UUID) []byte {
	return fmt.Appendf(nil, "%s %s %d %s %s %s", p.SettlementID, key, p.AmountCents, p.Currency, p.CreditorAccount, p.Reference)
}

// Known returns the entry of a remembered key, or nil.
func (b *Bank) Known(settlementID string, key uuid.UUID, at time.Time) *Entry {
	for _, e := range b.Entries[settlementID] {
		if e.Key == key && at.Before(e.Arrived.Add(b.Lifetime)) {
			return e
		}
	}
	return nil
}

// Take enters a request under a new or forgotten key in the ledger.
func (b *Bank) Take(settlementID string, key uuid.UUID, processing Processing, at time.Time) *Entry {
	e := &Entry{Key: key, Processing: processing, Arrived: at}
	b.Entries[settlementID] = append(b.Entries[settlementID], e)
	return e
}

// SendAnswer is the adapter's class for the answer to a request that became entry
// e; earlier is transfer.SendRequest.EarlierMayHaveReached.
func (e *Entry) SendAnswer(at time.Time, earlier bool) transfer.SendClass {
	switch {
	case e.Processing.OtherAmount:
		return transfer.SendManual
	case e.Status(at) != EntryRejected:
		return transfer.SendAccepted
	}
	return Refusal(earlier)
}

// Refusal is the adapter's class for a refusal from the bank's reject list.
func Refusal(earlier bool) transfer.SendClass {
	if earlier {
		return transfer.SendUncertain
	}
	return transfer.SendRejected
}

// Status is the adapter's reading of the status API's answer about a key. The API
// shows the state at the given time, which can be in the past.
func (b *Bank) Status(settlementID string, key uuid.UUID, at time.Time) transfer.StatusReading {
	shown := slices.DeleteFunc(slices.Clone(b.Entries[settlementID]), func(e *Entry) bool {
		return e.Key != key || at.Before(e.Arrived.Add(e.Processing.ShownAfter))
	})
	switch {
	case len(shown) == 0:
		return transfer.StatusNotFound
	case len(shown) > 1 || shown[0].Processing.OtherAmount:
		return transfer.StatusManual
	case shown[0].Processing.Blocked:
		return transfer.StatusAttention
	}
	return map[EntryStatus]transfer.StatusReading{
		EntryNone: transfer.StatusNotFound, EntryPending: transfer.StatusPending, EntryRejected: transfer.StatusRejected,
		EntryExecuted: transfer.StatusConfirmed, EntryReturned: transfer.StatusReturned,
	}[shown[0].Status(at)]
}
