package sim

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// countedRow is a row that counts deliveries: a conflict or a quarantined message.
type countedRow struct {
	messageID  string
	data       []byte
	fields     []string // of a conflict
	firstSeen  time.Time
	deliveries int64
}

// counted is the required state of a counted row.
type counted struct {
	recorded     int64 // calls of the store that recorded it
	acknowledged map[*delivery]bool
	first        *countedRow // at first sight
}

// checkRow checks that the row persists unchanged, except for a count that fits.
func (o *oracle) checkRow(required *counted, id string, row countedRow) {
	if required.first == nil {
		required.first = &row
	}
	first, n := required.first, row.deliveries
	if row.messageID != first.messageID || !bytes.Equal(row.data, first.data) || !slices.Equal(row.fields, first.fields) || !row.firstSeen.Equal(first.firstSeen) {
		o.fail(id, "the row of message %s has changed (-first +now):\n%s", row.messageID, cmp.Diff(*first, row, cmp.AllowUnexported(row)))
	}
	if n > required.recorded || n < int64(len(required.acknowledged)) {
		o.fail(id, "the row of message %s counts %d deliveries; %d were acknowledged, and the store recorded it %d times",
			row.messageID, n, len(required.acknowledged), required.recorded)
	}
}

func (h *history) conflict(hash payout.Hash) *counted {
	if h.conflicts[hash] == nil {
		h.conflicts[hash] = &counted{acknowledged: map[*delivery]bool{}}
	}
	return h.conflicts[hash]
}

// quarantined records a Quarantine call that the store carried out.
func (o *oracle) quarantined(q settle.Quarantined, err error) {
	if err != nil {
		return
	}
	o.quarantineChanged = true
	id := q.Identity()
	if o.quarantine[id] == nil {
		o.quarantine[id] = &counted{acknowledged: map[*delivery]bool{}}
	}
	o.quarantine[id].recorded++
}

// checkFailure checks that a fault explains a delivery without a 200.
func (o *oracle) checkFailure(d *delivery, err error) {
	o.w.seen["delivery failed"]++
	canceled := d.disconnected && errors.Is(err, context.Canceled)
	if !d.faulted && !canceled {
		o.fail(d.meaning.String(), "message %s is answered 500 without a fault: %v", d.push.Message.ID, err)
	}
}

// checkAcknowledgement checks that the store holds the effect of a delivery with a
// 200.
func (o *oracle) checkAcknowledgement(d *delivery, r settle.Result) {
	o.w.seen["delivery "+r.Outcome.String()]++
	if d.meaning.settlement == "" || r.Outcome == settle.OutcomeQuarantined {
		o.checkQuarantined(d, r)
		return
	}
	id := d.meaning.settlement
	h, rows := o.history(id), o.rows(id)
	m := rows.Movement(id)
	switch {
	case r.SettlementID != id:
		o.fail(id, "answered as settlement %q", r.SettlementID)
	case m == nil || h.content == nil:
		o.fail(id, "answered %s without a movement", r.Outcome)
	case !r.AppliedAt.Equal(m.RecordedAt):
		o.fail(id, "answered applied at %v, and the movement was recorded at %v", r.AppliedAt, m.RecordedAt)
	case r.ReceiptExpired && !h.expired:
		o.fail(id, "answered that the receipt has expired")
	case rows.Receipt(id) == nil && !h.expired:
		o.fail(id, "answered %s without a receipt", r.Outcome)
	}
	if r.ReceiptExpired {
		o.w.seen["delivery after the receipt expired"]++
	}
	o.checkContent(h, m)
	o.checkOutcome(d, h, r)
}

// checkContent checks that the movement has the content of the first settled message.
func (o *oracle) checkContent(h *history, m *settle.Movement) {
	got := content{m.AccountID, m.AmountCents, m.Currency, m.CreditorAccount, m.Reference}
	want := *h.content
	if want.currency == "" && (got.currency == "USD" || got.currency == "EUR") {
		got.currency = "" // an instance's default
	}
	if got != want {
		o.fail(h.id, "settled as %+v, and the message has %+v", got, want)
	}
}

func (o *oracle) checkOutcome(d *delivery, h *history, r settle.Result) {
	differing := h.content.differences(d.meaning.content)
	switch {
	case len(differing) > 0:
		if r.Outcome != settle.OutcomeConflict || !slices.Equal(r.Fields, differing) {
			o.fail(h.id, "answered %s about %v, and it differs from the settled payout in %v", r.Outcome, r.Fields, differing)
		}
		o.checkConflict(d, h, r)
	case r.Outcome == settle.OutcomeApplied:
		h.applied++
		receipt := o.rows(h.id).Receipt(h.id)
		switch {
		case h.applied > 1:
			o.fail(h.id, "answered applied twice")
		case receipt != nil && receipt.MessageID != d.push.Message.ID:
			o.fail(h.id, "answered applied to message %s, and the receipt names message %s", d.push.Message.ID, receipt.MessageID)
		}
	case r.Outcome != settle.OutcomeDuplicate:
		o.fail(h.id, "answered %s for the settled payout", r.Outcome)
	}
}

// checkConflict checks the row of an answered conflict.
func (o *oracle) checkConflict(d *delivery, h *history, r settle.Result) {
	h.conflict(r.PayloadHash).acknowledged[d] = true
	i := slices.IndexFunc(o.rows(h.id).Conflicts, func(c spannerstore.ConflictRow) bool { return c.PayloadHash == r.PayloadHash })
	if i < 0 {
		o.fail(h.id, "answered conflict, and none is recorded")
	}
	c := o.rows(h.id).Conflicts[i]
	if first := o.w.producer.meanings[c.MessageID]; first.content != d.meaning.content || !bytes.Equal(first.data, c.Payload) || !slices.Equal(c.Fields, r.Fields) {
		o.fail(h.id, "the conflict about %v is recorded about %v, with message %s: %s", r.Fields, c.Fields, c.MessageID, c.Payload)
	}
}

// checkConflicts checks that conflicts persist, with the right counts.
func (o *oracle) checkConflicts(h *history) {
	rows := o.rows(h.id).Conflicts
	for _, c := range rows {
		o.checkRow(h.conflict(c.PayloadHash), h.id, countedRow{c.MessageID, c.Payload, c.Fields, c.FirstSeenAt, c.Deliveries})
	}
	for hash, required := range h.conflicts {
		if required.first != nil && !slices.ContainsFunc(rows, func(c spannerstore.ConflictRow) bool { return c.PayloadHash == hash }) {
			o.fail(h.id, "a conflict is gone")
		}
	}
}

// checkQuarantined checks the row of a message that was answered quarantined.
func (o *oracle) checkQuarantined(d *delivery, r settle.Result) {
	want := d.meaning
	if r.Outcome != settle.OutcomeQuarantined || r.Refusal == nil || r.Refusal.Reason != want.reason || r.Refusal.Member != want.member {
		o.fail(want.String(), "answered %s (%v) instead of quarantined as %q %s", r.Outcome, r.Refusal, want.reason, want.member)
	}
	rows := 0
	for _, q := range o.w.store.Snapshot().Quarantined {
		if q.MessageID != d.push.Message.ID {
			continue
		}
		rows++
		if complete := bytes.HasPrefix(q.Data, want.data); !complete || q.Reason != want.reason || q.Member != want.member {
			o.fail(want.String(), "message %s is quarantined as %q %s: %q", q.MessageID, q.Reason, q.Member, q.Data)
		}
		o.quarantine[q.Identity].acknowledged[d] = true
	}
	if rows != 1 {
		o.fail(want.String(), "message %s is answered quarantined, and has %d rows", d.push.Message.ID, rows)
	}
}

// checkQuarantine checks that quarantined messages persist, with the right counts.
func (o *oracle) checkQuarantine() {
	if !o.quarantineChanged {
		return
	}
	o.quarantineChanged = false
	rows := o.w.store.Snapshot().Quarantined
	if len(rows) != len(o.quarantine) {
		o.w.fail("%d messages are in quarantine, and %d were quarantined", len(rows), len(o.quarantine))
	}
	for _, q := range rows {
		o.checkRow(o.quarantine[q.Identity], q.MessageID, countedRow{q.MessageID, q.Data, nil, q.QuarantinedAt, q.Deliveries})
	}
}

// checkDeadLetter checks that a dead-lettered message was not acknowledged before.
func (o *oracle) checkDeadLetter(d *delivery) {
	if o.acked[d.push.Message] {
		o.fail(d.meaning.String(), "message %s is dead-lettered, and was acknowledged", d.push.Message.ID)
	}
}

// checkMessages checks that every published message has its effect.
func (o *oracle) checkMessages() {
	for _, m := range o.w.pubsub.Messages {
		means := o.w.producer.meanings[m.ID]
		switch {
		case !m.Acked:
			o.fail(means.String(), "message %s is not acknowledged in the end", m.ID)
		case means.settlement != "":
			o.checkEffect(m, means)
		case m.Dead: // its dead letter was published again, as a message of its own
		case !slices.ContainsFunc(o.w.store.Snapshot().Quarantined, func(q spannerstore.QuarantineRow) bool { return q.MessageID == m.ID }):
			o.w.fail("message %s is acknowledged, and is not in quarantine", m.ID)
		}
	}
}

func (o *oracle) checkEffect(m *Message, means meaning) {
	h := o.history(means.settlement)
	if h.content == nil || h.movement == nil {
		o.fail(h.id, "message %s is acknowledged, and the payout is not settled", m.ID)
	}
	recorded := slices.ContainsFunc(o.rows(h.id).Conflicts, func(c spannerstore.ConflictRow) bool {
		return o.w.producer.meanings[c.MessageID].content == means.content
	})
	if len(h.content.differences(means.content)) > 0 && !recorded {
		o.fail(h.id, "message %s is acknowledged, differs from the settled payout, and no conflict is recorded", m.ID)
	}
}
