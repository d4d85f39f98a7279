package fakebank

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// send is a send that was read and can be executed.
type send struct {
	key     string
	body    []byte
	order   order
	plan    Plan
	attempt Attempt
}

// lateExecution is a send that waits for its time.
type lateExecution struct {
	send

	due   time.Time
	claim *keyRecord // of a queued send; nil for one that nobody can see
}

// execute does what the attempt says about the transfer, and returns the transfer
// as the answer says it is.
func (b *Bank) execute(s *keyState, x send, now time.Time) wireTransfer {
	made := x.promise(s)
	switch x.attempt.Execute {
	case ExecuteNow:
		b.book(s, x, now)
		s.record = x.claim(made, now)
	case ExecuteNever:
	case ExecuteLate:
		b.late = append(b.late, &lateExecution{send: x, due: now.Add(x.attempt.LateBy)})
	case ExecuteQueued:
		s.record = x.claim(made, now)
		s.record.inProgress = true
		b.late = append(b.late, &lateExecution{send: x, due: now.Add(x.attempt.LateBy), claim: s.record})
	case ExecuteCrash:
		b.book(s, x, now)
		s.record = x.claim(made, now)
		s.record.inProgress = true
		b.downUntil = now.Add(x.attempt.DownFor)
	}
	return made
}

// promise is the transfer as the answer to the send says it is.
func (x send) promise(s *keyState) wireTransfer {
	return wireTransfer{
		ID: transferID(x.key, len(s.executed)), ClientReference: x.key,
		AmountMinor: x.order.AmountMinor, Currency: x.order.Currency, CreditorAccount: x.order.CreditorAccount,
		Status: cmp.Or(x.attempt.Status, Accepted),
	}
}

func transferID(key string, before int) string { return fmt.Sprintf("bt-%s-%d", key, before+1) }

// claim is what the bank remembers of the key when it takes the send.
func (x send) claim(made wireTransfer, now time.Time) *keyRecord {
	return &keyRecord{since: now, lifetime: x.plan.Key.Lifetime, body: x.body, made: made}
}

// book executes.
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
		t.Settlement = b.options.SettlementOf(b.shown(t, at))
	}
	s.executed = append(s.executed, t)
	b.transfers = append(b.transfers, t)
	b.policeExecution(t, s)
}

// executeLate executes what is due, each as of the time at which it was.
func (b *Bank) executeLate(now time.Time) {
	b.executeLateIf(func(l *lateExecution) bool { return !l.due.After(now) })
}

// executeAllLate executes everything that still waits.
func (b *Bank) executeAllLate() {
	b.executeLateIf(func(*lateExecution) bool { return true })
}

func (b *Bank) executeLateIf(due func(*lateExecution) bool) {
	slices.SortStableFunc(b.late, func(x, y *lateExecution) int { return x.due.Compare(y.due) })
	for len(b.late) > 0 && due(b.late[0]) {
		l := b.late[0]
		b.late = b.late[1:]
		s := b.state(l.key)
		switch known := s.remembered(l.due); {
		case l.claim != nil: // was taken under its key already
			b.book(s, l.send, l.due)
			l.claim.inProgress = false
		case known == nil:
			made := l.promise(s)
			b.book(s, l.send, l.due)
			s.record = l.send.claim(made, l.due)
		}
	}
}
