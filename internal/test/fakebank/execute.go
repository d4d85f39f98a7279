package fakebank

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// send is a complete, valid send.
type send struct {
	key     string
	body    []byte
	order   order
	plan    Plan
	attempt Attempt
}

// lateExecution is a send that the bank executes when it is due.
type lateExecution struct {
	send

	due time.Time
}

// execute executes the transfer as the attempt says, and returns the answered
// transfer.
func (b *Bank) execute(s *keyState, x send, now time.Time) wireTransfer {
	answered := x.answered(s)
	switch x.attempt.Execute {
	case ExecuteNow:
		b.book(s, x, now)
		s.record = x.record(answered, now)
	case ExecuteNever:
	case ExecuteLate:
		b.late = append(b.late, &lateExecution{send: x, due: now.Add(x.attempt.LateBy)})
	}
	return answered
}

// answered is the transfer in the answer to the send.
func (x send) answered(s *keyState) wireTransfer {
	return wireTransfer{
		ID: transferID(x.key, len(s.executed)), ClientReference: x.key,
		AmountMinor: x.order.AmountMinor, Currency: x.order.Currency, CreditorAccount: x.order.CreditorAccount,
		Status: cmp.Or(x.attempt.Status, Accepted),
	}
}

func transferID(key string, before int) string { return fmt.Sprintf("bt-%s-%d", key, before+1) }

// record is the idempotency record of the send.
func (x send) record(answered wireTransfer, now time.Time) *keyRecord {
	return &keyRecord{since: now, lifetime: x.plan.Key.Lifetime, body: x.body, answered: answered}
}

// book enters the transfer in the ledger.
func (b *Bank) book(s *keyState, x send, at time.Time) {
	t := &transfer{Transfer: Transfer{
		ID: transferID(x.key, len(s.executed)), Key: x.key, Settlement: b.expected[x.key],
		AmountMinor: x.order.AmountMinor, Currency: x.order.Currency,
		DebtorAccount: x.order.DebtorAccount, CreditorAccount: x.order.CreditorAccount,
		Remittance: x.order.Remittance, ExecutedAt: at,
	}}
	life := x.plan.Life
	if life == nil {
		life = []Change{{Status: Settled}}
	}
	for _, c := range life {
		t.changes = append(t.changes, statusAt{at.Add(c.After), c.Status, c.Reason})
	}
	if t.Settlement == "" && b.options.SettlementOf != nil {
		t.Settlement = b.options.SettlementOf(t.at(at))
	}
	s.executed = append(s.executed, t)
	b.transfers = append(b.transfers, t)
	b.checkExecution(t, s)
}

// executeLate executes the late sends that are due, in the order of their due
// times, unless their key is in use by then.
func (b *Bank) executeLate(due func(*lateExecution) bool) {
	slices.SortStableFunc(b.late, func(x, y *lateExecution) int { return x.due.Compare(y.due) })
	for len(b.late) > 0 && due(b.late[0]) {
		l := b.late[0]
		b.late = b.late[1:]
		s := b.state(l.key)
		if s.remembered(l.due) == nil {
			answered := l.answered(s)
			b.book(s, l.send, l.due)
			s.record = l.record(answered, l.due)
		}
	}
}
