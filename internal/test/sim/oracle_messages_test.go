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

// keptRow is a conflict or a quarantined message, as it was inserted.
type keptRow struct {
	messageID string
	data      []byte
	fields    []string // of a conflict
	at        time.Time
}

// kept is the state that the oracle requires of a stored row. The zero value requires no row.
type kept struct {
	recorded int      // commits that inserted the row
	first    *keptRow // at first sight
}

// record records a commit that was told to have inserted the row, or to have found it.
func (o *oracle) record(required *kept, id string, known bool) {
	switch {
	case known && required.recorded == 0:
		o.fail(id, "called known, and no commit recorded it")
	case !known:
		required.recorded++
	}
	if required.recorded > 1 {
		o.fail(id, "recorded %d times", required.recorded)
	}
}

// checkRow checks that the row persists unchanged: a known one must not be written again.
func (o *oracle) checkRow(required *kept, id string, row keptRow) {
	if required.first == nil {
		required.first = &row
	}
	first := required.first
	if row.messageID != first.messageID || !bytes.Equal(row.data, first.data) || !slices.Equal(row.fields, first.fields) || !row.at.Equal(first.at) {
		o.fail(id, "the row of message %s has changed (-first +now):\n%s", row.messageID, cmp.Diff(*first, row, cmp.AllowUnexported(row)))
	}
}

func (h *history) conflict(hash payout.Hash) *kept {
	if h.conflicts[hash] == nil {
		h.conflicts[hash] = &kept{}
	}
	return h.conflicts[hash]
}

// quarantined records a Quarantine call that the store carried out.
func (o *oracle) quarantined(q settle.Quarantined, known bool, err error) {
	if err != nil {
		return
	}
	o.quarantineChanged = true
	id := q.Identity()
	if o.quarantine[id] == nil {
		o.quarantine[id] = &kept{}
	}
	o.record(o.quarantine[id], "message "+q.Message.ID, known)
}

// checkFailure checks that a fault explains a delivery without a 200.
func (o *oracle) checkFailure(d *delivery, err error) {
	o.w.seen["delivery failed"]++
	canceled := d.disconnected && errors.Is(err, context.Canceled)
	late := errors.Is(err, context.DeadlineExceeded) && time.Since(d.began) >= settleTimeout
	if !d.faulted && !canceled && !late {
		o.fail(d.meaning.String(), "message %s is answered 500 without a fault: %v", d.push.Message.ID, err)
	}
}

// checkAcknowledgement checks that the store holds the effect of a delivery with a
// 200.
func (o *oracle) checkAcknowledgement(d *delivery, r settle.Result) {
	o.w.seen["delivery "+r.Outcome.String()+map[bool]string{true: ", known"}[r.Known]]++
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
	case r.Known:
		o.fail(h.id, "answered %s as known", r.Outcome)
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
	i := slices.IndexFunc(o.rows(h.id).Conflicts, func(c spannerstore.ConflictRow) bool { return c.PayloadHash == r.PayloadHash })
	if i < 0 {
		o.fail(h.id, "answered conflict, and none is recorded")
	}
	c := o.rows(h.id).Conflicts[i]
	if first := o.w.producer.meanings[c.MessageID]; first.content != d.meaning.content || !bytes.Equal(first.data, c.Payload) || !slices.Equal(c.Fields, r.Fields) {
		o.fail(h.id, "the conflict about %v is recorded about %v, with message %s: %s", r.Fields, c.Fields, c.MessageID, c.Payload)
	}
}

// checkConflicts checks that each recorded conflict has one row, which never changes.
func (o *oracle) checkConflicts(h *history) {
	rows := map[payout.Hash]int{}
	for _, c := range o.rows(h.id).Conflicts {
		rows[c.PayloadHash]++
		o.checkRow(h.conflict(c.PayloadHash), h.id, keptRow{c.MessageID, c.Payload, c.Fields, c.SeenAt})
	}
	for hash, required := range h.conflicts {
		if rows[hash] != required.recorded {
			o.fail(h.id, "a conflict has %d rows, and %d commits recorded it", rows[hash], required.recorded)
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
	}
	if rows != 1 {
		o.fail(want.String(), "message %s is answered quarantined, and has %d rows", d.push.Message.ID, rows)
	}
}

// checkQuarantine checks that each quarantined message has one row, which never changes.
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
		required := o.quarantine[q.Identity]
		if required == nil {
			o.w.fail("message %s is in quarantine, and no commit recorded it", q.MessageID)
		}
		o.checkRow(required, "message "+q.MessageID, keptRow{q.MessageID, q.Data, nil, q.QuarantinedAt})
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
