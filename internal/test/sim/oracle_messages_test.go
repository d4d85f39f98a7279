package sim

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// kept is what the oracle knows about a row that counts deliveries: a conflict, or
// a message in quarantine.
type kept struct {
	runs         int64 // of the store, by which it can have been counted
	acknowledged map[*delivery]bool
	conflict     *spannerstore.ConflictRow // as first seen
	quarantined  *spannerstore.QuarantineRow
}

func (h *history) conflict(hash payout.Hash) *kept {
	if h.conflicts[hash] == nil {
		h.conflicts[hash] = &kept{acknowledged: map[*delivery]bool{}}
	}
	return h.conflicts[hash]
}

// quarantined looks at a call of Quarantine that the store has carried out.
func (o *oracle) quarantined(q settle.Quarantined, err error) {
	if err != nil {
		return
	}
	o.quarantineStale = true
	id := q.Identity()
	if o.quarantine[id] == nil {
		o.quarantine[id] = &kept{acknowledged: map[*delivery]bool{}}
	}
	o.quarantine[id].runs++
}

// refused looks at a delivery that was not answered 200: there has to be a reason.
func (o *oracle) refused(d *delivery, err error) {
	o.w.seen["delivery failed"]++
	leftWaiting := d.left && errors.Is(err, context.Canceled)
	if !d.harmed && !leftWaiting {
		o.fail(d.means.String(), "message %s is answered 500 and nothing was wrong: %v", d.push.Message.ID, err)
	}
}

// acknowledged looks at a delivery that was answered 200: at that moment, what it
// was answered for has to be in the store.
func (o *oracle) acknowledged(d *delivery, r settle.Result) {
	o.w.seen["delivery "+r.Outcome.String()]++
	if d.means.settlement == "" || r.Outcome == settle.OutcomeQuarantined {
		o.keptInQuarantine(d, r)
		return
	}
	id := d.means.settlement
	h, rows := o.of(id), o.rows(id)
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
		o.w.seen["delivery after the receipt has expired"]++
	}
	o.asSettled(h, m)
	o.outcomeFits(d, h, r)
}

// asSettled checks that the movement is of the payout that was settled first.
func (o *oracle) asSettled(h *history, m *settle.Movement) {
	is := content{m.AccountID, m.AmountCents, m.Currency, m.CreditorAccount, m.Reference}
	want := *h.content
	if want.currency == "" && (is.currency == "USD" || is.currency == "EUR") {
		is.currency = "" // an instance's default
	}
	if is != want {
		o.fail(h.id, "settled as %+v, and the message said %+v", is, want)
	}
}

func (o *oracle) outcomeFits(d *delivery, h *history, r settle.Result) {
	differing := h.content.differences(d.means.content)
	switch {
	case len(differing) > 0:
		if r.Outcome != settle.OutcomeConflict || !slices.Equal(r.Fields, differing) {
			o.fail(h.id, "answered %s about %v, and it differs from what was settled in %v", r.Outcome, r.Fields, differing)
		}
		o.conflictKept(d, h, r)
	case r.Outcome == settle.OutcomeApplied:
		h.applied++
		receipt := o.rows(h.id).Receipt(h.id)
		switch {
		case h.applied > 1:
			o.fail(h.id, "answered applied twice")
		case receipt != nil && receipt.MessageID != d.push.Message.ID:
			o.fail(h.id, "answered applied to message %s, and the receipt is of message %s", d.push.Message.ID, receipt.MessageID)
		}
	case r.Outcome != settle.OutcomeDuplicate:
		o.fail(h.id, "answered %s, and it is what was settled", r.Outcome)
	}
}

// conflictKept checks the row of a conflict that was answered.
func (o *oracle) conflictKept(d *delivery, h *history, r settle.Result) {
	known := h.conflict(r.PayloadHash)
	known.acknowledged[d] = true
	i := slices.IndexFunc(o.rows(h.id).Conflicts, func(c spannerstore.ConflictRow) bool { return c.PayloadHash == r.PayloadHash })
	if i < 0 {
		o.fail(h.id, "answered conflict, and none is recorded")
	}
	c := o.rows(h.id).Conflicts[i]
	if first := o.w.producer.meanings[c.MessageID]; first.content != d.means.content || !bytes.Equal(first.data, c.Payload) || !slices.Equal(c.Fields, r.Fields) {
		o.fail(h.id, "the conflict about %v is recorded about %v, with message %s: %s", r.Fields, c.Fields, c.MessageID, c.Payload)
	}
}

// conflictsStay checks that conflicts never go, and are counted right.
func (o *oracle) conflictsStay(h *history) {
	found := 0
	for _, c := range o.rows(h.id).Conflicts {
		known := h.conflict(c.PayloadHash)
		if known.conflict == nil {
			known.conflict = &c
		}
		found++
		switch first := known.conflict; {
		case c.MessageID != first.MessageID || !bytes.Equal(c.Payload, first.Payload) || !c.FirstSeenAt.Equal(first.FirstSeenAt) || !slices.Equal(c.Fields, first.Fields):
			o.fail(h.id, "a conflict has changed (-first +now):\n%s", cmp.Diff(*first, c))
		case c.Deliveries > known.runs || c.Deliveries < int64(len(known.acknowledged)):
			o.fail(h.id, "a conflict counts %d deliveries; %d were acknowledged, and the store recorded it %d times", c.Deliveries, len(known.acknowledged), known.runs)
		}
	}
	for _, known := range h.conflicts {
		if known.conflict != nil {
			found--
		}
	}
	if found < 0 {
		o.fail(h.id, "a conflict is gone")
	}
}

// keptInQuarantine checks the row of a message that was answered as quarantined.
func (o *oracle) keptInQuarantine(d *delivery, r settle.Result) {
	means := d.means
	if r.Outcome != settle.OutcomeQuarantined || r.Refusal == nil || r.Refusal.Reason != means.reason || r.Refusal.Member != means.member {
		o.fail(means.String(), "answered %s (%v), and it should be quarantined as %q %s", r.Outcome, r.Refusal, means.reason, means.member)
	}
	rows := 0
	for _, q := range o.w.store.Snapshot().Quarantined {
		if q.MessageID != d.push.Message.ID {
			continue
		}
		rows++
		if whole := bytes.HasPrefix(q.Data, means.data); !whole || q.Reason != means.reason || q.Member != means.member {
			o.fail(means.String(), "message %s is quarantined as %q %s: %q", q.MessageID, q.Reason, q.Member, q.Data)
		}
		o.quarantine[q.Identity].acknowledged[d] = true
	}
	if rows != 1 {
		o.fail(means.String(), "message %s is answered quarantined, and is there %d times", d.push.Message.ID, rows)
	}
}

// quarantineStays checks that messages in quarantine never go, and are counted
// right.
func (o *oracle) quarantineStays() {
	if !o.quarantineStale {
		return
	}
	o.quarantineStale = false
	rows := o.w.store.Snapshot().Quarantined
	if len(rows) != len(o.quarantine) {
		o.w.fail("%d messages are in quarantine, and %d were put there", len(rows), len(o.quarantine))
	}
	for _, q := range rows {
		known := o.quarantine[q.Identity]
		if known.quarantined == nil {
			known.quarantined = &q
		}
		switch first := known.quarantined; {
		case q.MessageID != first.MessageID || !bytes.Equal(q.Data, first.Data) || !q.QuarantinedAt.Equal(first.QuarantinedAt):
			o.w.fail("message %s in quarantine has changed (-first +now):\n%s", q.MessageID, cmp.Diff(*first, q))
		case q.Deliveries > known.runs || q.Deliveries < int64(len(known.acknowledged)):
			o.w.fail("message %s in quarantine counts %d deliveries; %d were acknowledged, and the store recorded it %d times",
				q.MessageID, q.Deliveries, len(known.acknowledged), known.runs)
		}
	}
}

// acked notes that Pub/Sub has heard of an acknowledgement.
func (o *oracle) acked(d *delivery) { o.messages[d.push.Message] = true }

// sought notes that a seek has taken it back.
func (o *oracle) sought(m *Message) {
	delete(o.messages, m)
	o.w.seen["message sought back"]++
}

// deadLettered checks that what goes to the dead-letter topic was not settled and
// acknowledged before.
func (o *oracle) deadLettered(d *delivery) {
	if o.messages[d.push.Message] {
		o.fail(d.means.String(), "message %s is dead-lettered, and was acknowledged", d.push.Message.ID)
	}
}

// allSettled checks that every message that was published has its effect.
func (o *oracle) allSettled() {
	for _, m := range o.w.pubsub.Messages {
		means := o.w.producer.meanings[m.ID]
		switch {
		case !m.Acked:
			o.fail(means.String(), "message %s is not acknowledged in the end", m.ID)
		case means.settlement != "":
			o.hasEffect(m, means)
		case !m.Dead: // its dead letter was published again, and is a message too
			o.isQuarantined(m)
		}
	}
}

func (o *oracle) isQuarantined(m *Message) {
	for _, known := range o.quarantine {
		if known.quarantined != nil && known.quarantined.MessageID == m.ID {
			return
		}
	}
	o.w.fail("message %s is acknowledged, and is not in quarantine", m.ID)
}

func (o *oracle) hasEffect(m *Message, means meaning) {
	h := o.of(means.settlement)
	if h.content == nil || h.movement == nil {
		o.fail(h.id, "message %s is acknowledged, and nothing was settled", m.ID)
	}
	if len(h.content.differences(means.content)) == 0 {
		return
	}
	for _, c := range o.rows(h.id).Conflicts {
		if o.w.producer.meanings[c.MessageID].content == means.content {
			return
		}
	}
	o.fail(h.id, "message %s is acknowledged, and says something else than was settled, and no conflict is recorded", m.ID)
}
