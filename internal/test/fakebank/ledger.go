package fakebank

import (
	"fmt"
	"slices"
	"time"
)

// Transfer is an executed transfer. Money that was rejected after all or sent back
// has no effect in the end; [Transfer.Moved] tells.
type Transfer struct {
	// ID is the bank's name of the transfer. It depends on the key and the number
	// of transfers with it only.
	ID string `json:"id"`
	// Key is the idempotency key, which is also the client_reference.
	Key string `json:"client_reference"`
	// Settlement is what the transfer is for; empty when nobody said.
	Settlement      string `json:"settlement,omitzero"`
	AmountMinor     int64  `json:"amount_minor"` // minor units of the currency
	Currency        string `json:"currency"`
	DebtorAccount   string `json:"debtor_account"`
	CreditorAccount string `json:"creditor_account"`
	Remittance      string `json:"remittance"`
	// ExecutedAt is when it was executed, in UTC.
	ExecutedAt time.Time `json:"executed_at"`
	// Status is the true status word, whatever questions were answered.
	Status string `json:"status"`
	// Returned says that the money was sent back.
	Returned bool `json:"returned"`
}

// Moved reports whether the money is with the creditor, or on its way there.
func (t Transfer) Moved() bool {
	return !t.Returned && t.Status != Rejected && t.Status != Cancelled
}

// transfer is a transfer in the bank.
type transfer struct {
	Transfer

	changes []statusAt // in time order, what is yet to come included
}

type statusAt struct {
	at             time.Time
	status, reason string
}

// statusAt returns the status at a time not before the execution.
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

func (t *transfer) wire(now time.Time) wireTransfer {
	last := t.statusAt(now)
	return wireTransfer{
		ID: t.ID, ClientReference: t.Key, AmountMinor: t.AmountMinor, Currency: t.Currency,
		CreditorAccount: t.CreditorAccount, Status: last.status, Reason: last.reason,
	}
}

// Ledger returns every executed transfer in the order of execution, with its
// status of now. It is the oracle. It is a copy.
func (b *Bank) Ledger() []Transfer {
	ledger := []Transfer{}
	b.locked(func(now time.Time) {
		for _, t := range b.transfers {
			ledger = append(ledger, b.shown(t, now))
		}
	})
	return ledger
}

// shown is a transfer as the ledger shows it.
func (b *Bank) shown(t *transfer, now time.Time) Transfer {
	shown := t.Transfer
	shown.Status = t.statusAt(now).status
	shown.Returned = shown.Status == b.options.ReturnedWord
	return shown
}

// Settle gives the key's last transfer a status by hand, and cancels what its
// plan had yet in store for it. The error says that there is no transfer.
func (b *Bank) Settle(key, status string) (err error) {
	b.locked(func(now time.Time) {
		s, ok := b.keys[key]
		if !ok || len(s.executed) == 0 {
			err = fmt.Errorf("settle transfer of key %q: nothing was executed", key)
			return
		}
		t := s.executed[len(s.executed)-1]
		t.changes = slices.DeleteFunc(t.changes, func(c statusAt) bool { return c.at.After(now) })
		t.changes = append(t.changes, statusAt{at: now, status: status})
	})
	return err
}
