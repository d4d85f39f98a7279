package fakebank

import (
	"fmt"
	"slices"
	"time"
)

// Transfer is an executed transfer. [Transfer.Moved] excludes transfers that the
// bank rejected afterwards or sent back.
type Transfer struct {
	// ID is the bank's own ID. It depends only on the key and the number of
	// transfers under it.
	ID string `json:"id"`
	// Key is the idempotency key, which is also the client_reference.
	Key string `json:"client_reference"`
	// Settlement is the settlement ID; empty: unknown.
	Settlement      string `json:"settlement,omitzero"`
	AmountMinor     int64  `json:"amount_minor"` // minor units of the currency
	Currency        string `json:"currency"`
	DebtorAccount   string `json:"debtor_account"`
	CreditorAccount string `json:"creditor_account"`
	Remittance      string `json:"remittance"`
	// ExecutedAt is the time of execution, in UTC.
	ExecutedAt time.Time `json:"executed_at"`
	// Status is the true status word, whatever status requests were answered.
	Status string `json:"status"`
	// Returned reports that the bank sent the money back.
	Returned bool `json:"returned"`
}

// Moved reports whether the creditor has the money, or will have it.
func (t Transfer) Moved() bool {
	return !t.Returned && t.Status != Rejected && t.Status != Cancelled
}

// transfer is a transfer with its status changes.
type transfer struct {
	Transfer

	changes []statusAt // in time order, future ones included
}

type statusAt struct {
	at             time.Time
	status, reason string
}

func (t *transfer) statusAt(now time.Time) statusAt {
	last := statusAt{status: Accepted}
	for _, c := range t.changes {
		if c.at.After(now) {
			break
		}
		last = c
	}
	return last
}

// at returns the transfer with its status at that time.
func (t *transfer) at(now time.Time) Transfer {
	shown := t.Transfer
	shown.Status = t.statusAt(now).status
	shown.Returned = shown.Status == Returned
	return shown
}

func (t *transfer) wire(now time.Time) wireTransfer {
	last := t.statusAt(now)
	return wireTransfer{
		ID: t.ID, ClientReference: t.Key, AmountMinor: t.AmountMinor, Currency: t.Currency,
		CreditorAccount: t.CreditorAccount, Status: last.status, Reason: last.reason,
	}
}

// Ledger returns a copy of every executed transfer, in the order of execution,
// with its present status.
func (b *Bank) Ledger() (ledger []Transfer) {
	b.locked(func(now time.Time) { ledger = b.ledger(now) })
	return ledger
}

func (b *Bank) ledger(now time.Time) []Transfer {
	ledger := []Transfer{}
	for _, t := range b.transfers {
		ledger = append(ledger, t.at(now))
	}
	return ledger
}

// Settle sets the status of the key's last transfer, and drops its future status
// changes. It fails where the bank has executed no transfer under the key.
func (b *Bank) Settle(key, status string) (err error) {
	b.locked(func(now time.Time) {
		s, ok := b.keys[key]
		if !ok || len(s.executed) == 0 {
			err = fmt.Errorf("settle transfer of key %q: not executed", key)
			return
		}
		t := s.executed[len(s.executed)-1]
		t.changes = slices.DeleteFunc(t.changes, func(c statusAt) bool { return c.at.After(now) })
		t.changes = append(t.changes, statusAt{at: now, status: status})
	})
	return err
}
