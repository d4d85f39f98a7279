package audit

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Terms are facts beside the rows that the rules depend on. The zero value fits a
// store that deletes no receipt, and skips the checks of its other fields.
type Terms struct {
	// ReceiptGone reports whether the receipt of a settlement that was recorded at that
	// time may have expired. Nil: no receipt expires.
	ReceiptGone func(recorded time.Time) bool
	// Compose returns the request body of a payout's transfer. Nil: bodies are not
	// checked.
	Compose func(payout.Payout, uuid.UUID) ([]byte, error)
	// KeyLifetimes are all that the bank's configuration has had. Empty: unknown, and
	// any is right.
	KeyLifetimes []time.Duration
}

// Violations lists all violations, a line each. receiptsExpire says that receipts may
// have expired: a movement then needs none.
func (s Snapshot) Violations(receiptsExpire bool) []string {
	terms := Terms{ReceiptGone: func(time.Time) bool { return receiptsExpire }}
	var found []string
	all := s.settlements()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		for _, v := range terms.Settlement(id, *all[id]) {
			found = append(found, v.String())
		}
	}
	for _, q := range s.Quarantined {
		for _, v := range QuarantineViolations(q) {
			found = append(found, v.String())
		}
	}
	return found
}

// settlements divides the snapshot by settlement ID.
func (s Snapshot) settlements() map[string]*Snapshot {
	all := map[string]*Snapshot{}
	of := func(id string) *Snapshot {
		if all[id] == nil {
			all[id] = &Snapshot{}
		}
		return all[id]
	}
	deal(s.Movements, func(m settle.Movement) *[]settle.Movement { return &of(m.SettlementID).Movements })
	deal(s.Receipts, func(r spannerstore.ReceiptRow) *[]spannerstore.ReceiptRow { return &of(r.SettlementID).Receipts })
	deal(s.Reversals, func(r spannerstore.ReversalRow) *[]spannerstore.ReversalRow { return &of(r.SettlementID).Reversals })
	deal(s.Instructions, func(in transfer.Instruction) *[]transfer.Instruction { return &of(in.SettlementID).Instructions })
	deal(s.Events, func(e spannerstore.EventRow) *[]spannerstore.EventRow { return &of(e.SettlementID).Events })
	deal(s.Conflicts, func(c spannerstore.ConflictRow) *[]spannerstore.ConflictRow { return &of(c.SettlementID).Conflicts })
	return all
}

// deal appends each row to the slice that to returns for it.
func deal[R any](rows []R, to func(R) *[]R) {
	for _, row := range rows {
		hand := to(row)
		*hand = append(*hand, row)
	}
}

// Settlement lists the violations of one settlement. All its rows have the ID, and
// the events are in the order of their versions.
func (t Terms) Settlement(id string, one Snapshot) []Violation {
	f := &findings{of: Violation{SettlementID: id}}
	f.once(one)
	if len(one.Movements) == 0 {
		f.orphans(one)
		return f.list
	}
	m := one.Movements[0]
	intact := f.movement(m)
	f.ok((len(one.Instructions) > 0) == (m.CreditorAccount != ""), RuleInstructionWanted,
		"a bank instruction if, and only if, the payout names a creditor", "creditor named: %t, bank instruction: %t",
		m.CreditorAccount != "", len(one.Instructions) > 0)
	past := newPast(one)
	f.receipt(one, m, t)
	for _, in := range one.Instructions {
		f.superseded(in, past)
		f.transfer(in, m, past, intact, t)
		f.chain(one.Events, in)
		f.state(in, past)
		f.sends(in, past, t)
	}
	if len(one.Instructions) == 0 && len(one.Events) > 0 {
		f.broken(RuleParent, "the bank instruction that they belong to", "events without bank instruction")
	}
	f.reversal(one, m, past)
	for _, c := range one.Conflicts {
		f.conflict(m, c)
	}
	return f.list
}

// past summarises the events of a settlement.
type past struct {
	history []transfer.Event
	// rekeyed are the times of its new keys.
	rekeyed  []time.Time
	accepted bool
	final    bool
	// reversed is the time of the reversal; zero: there is none.
	reversed time.Time
	reason   transfer.State
}

func newPast(one Snapshot) past {
	var p past
	for _, e := range one.Events {
		p.history = append(p.history, e.Event)
		if e.Event.Supersedes() {
			p.rekeyed, p.accepted = append(p.rekeyed, e.RecordedAt), false
		}
		p.accepted = p.accepted || e.Event.To == transfer.StateAccepted
		p.final = p.final || e.Event.To.Final()
		if e.Event.Reverses() && p.reversed.IsZero() {
			p.reversed, p.reason = e.RecordedAt, e.Event.To
		}
	}
	return p
}

func (f *findings) once(one Snapshot) {
	f.ok(len(one.Movements) <= 1, RuleOnce, "one movement", "moved twice")
	f.ok(len(one.Receipts) <= 1, RuleOnce, "one receipt", "two receipts")
	f.ok(len(one.Instructions) <= 1, RuleOnce, "one bank instruction", "two bank instructions")
	f.ok(len(one.Reversals) <= 1, RuleOnce, "one reversal", "reversed twice")
}

func (f *findings) orphans(one Snapshot) {
	for row, found := range map[string]bool{
		"receipt": len(one.Receipts) > 0, "bank instruction": len(one.Instructions) > 0, "event": len(one.Events) > 0,
		"reversal": len(one.Reversals) > 0, "conflict": len(one.Conflicts) > 0,
	} {
		f.ok(!found, RuleParent, "the movement that it belongs to", "%s without movement", row)
	}
}

// movement reports whether the movement is intact.
func (f *findings) movement(m settle.Movement) (intact bool) {
	p, intact := m.Payout()
	if !f.ok(intact, RuleMovementHash, "columns that hash to it", "payload hash %s is not that of the movement's columns", m.PayloadHash) {
		return false
	}
	message, err := p.Message()
	if err == nil {
		_, err = payout.Decode(message, p.Currency)
	}
	return f.ok(err == nil && payout.ValidCurrency(p.Currency), RuleMovementFields,
		"a payout that a message can express", "the movement's columns are none: %v", err)
}

func (f *findings) receipt(one Snapshot, m settle.Movement, t Terms) {
	if len(one.Receipts) == 0 {
		gone := t.ReceiptGone != nil && t.ReceiptGone(m.RecordedAt)
		f.ok(gone, RuleReceiptMissing, "a receipt until it expires", "movement without receipt")
		return
	}
	r := one.Receipts[0]
	f.ok(r.PayloadHash == m.PayloadHash, RuleReceiptHash, "the movement's, "+string(m.PayloadHash), "receipt with payload hash %s", r.PayloadHash)
	f.ok(r.AppliedAt.Equal(m.RecordedAt), RuleReceiptCommit, "one commit for both, "+clock(m.RecordedAt), "receipt of %s", clock(r.AppliedAt))
	f.ok(r.ResultStatus == settle.OutcomeApplied.String() && r.DeliveryID != "", RuleReceiptFields,
		"the status applied and a delivery ID", "receipt with status %q and delivery ID %q", r.ResultStatus, r.DeliveryID)
	f.ok(validObject(r.Metadata), RuleReceiptFields, "a JSON object of texts, or NULL", "receipt with other metadata")
}

// validObject reports whether text can come from [settle.JSONObject].
func validObject(text string) bool {
	if text == "" {
		return true
	}
	var object map[string]string
	return json.Unmarshal([]byte(text), &object) == nil && len(object) > 0
}

// superseded checks the superseded keys.
func (f *findings) superseded(in transfer.Instruction, past past) {
	if !f.ok(len(in.Superseded) == len(past.rekeyed), RuleSupersededKeys, "one for each decision to send under a new key",
		"%d superseded keys, %d such decisions", len(in.Superseded), len(past.rekeyed)) {
		return
	}
	for i, old := range in.Superseded {
		key := transfer.KeyOfGeneration(in.SettlementID, i+1)
		f.ok(old.Key == key && old.At.Equal(past.rekeyed[i]), RuleSupersededKeys,
			fmt.Sprintf("%s, superseded at %s", key, clock(past.rekeyed[i])), "superseded key %d is %s, superseded at %s", i+1, old.Key, clock(old.At))
	}
}

// transfer checks the request to the bank.
func (f *findings) transfer(in transfer.Instruction, m settle.Movement, past past, intact bool, t Terms) {
	want := transfer.Transfer{
		Key: transfer.KeyOfGeneration(in.SettlementID, 1+len(past.rekeyed)), AmountCents: m.AmountCents, Currency: m.Currency, CreditorAccount: m.CreditorAccount,
	}
	if in.Transfer.Key != want.Key {
		f.broken(RuleInstructionTransfer, "the key that derives from the settlement ID, "+want.Key.String(), "idempotency key %s", in.Transfer.Key)
		return
	}
	f.ok(in.Transfer == want, RuleInstructionTransfer, "the movement's amount, currency and creditor", "bank instruction over %d %s",
		in.Transfer.AmountCents, in.Transfer.Currency)
	if t.Compose == nil || !intact || m.CreditorAccount == "" {
		return
	}
	p, _ := m.Payout()
	body, err := t.Compose(p, want.Key)
	if err != nil || !bytes.Equal(body, in.Body) {
		f.broken(RuleInstructionBody, "the body that the payout composes to", "request body that differs in %s", list(differingJSON(body, in.Body)))
	}
}

// differingJSON names the members in which two JSON objects differ.
func differingJSON(a, b []byte) []string {
	var first, second map[string]any
	if json.Unmarshal(a, &first) != nil || json.Unmarshal(b, &second) != nil {
		return []string{"not being a JSON object"}
	}
	var names []string
	for name, value := range first {
		if second[name] != value {
			names = append(names, name)
		}
	}
	for name := range second {
		if _, known := first[name]; !known {
			names = append(names, "a member of another name")
		}
	}
	if len(names) == 0 {
		return []string{"its bytes only"}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// chain checks the history of an instruction, and the instruction against it.
func (f *findings) chain(events []spannerstore.EventRow, in transfer.Instruction) {
	version, state, before := int64(0), transfer.StateNone, in.CreatedAt
	for _, e := range events {
		version++
		if e.Version != version || e.Event.From != state || e.RecordedAt.Before(before) {
			f.broken(RuleEventChain, "versions without a gap from 1, each from the state before it, in the order of time",
				"event %d of %s from state %q follows %d to state %q", e.Version, clock(e.RecordedAt), e.Event.From, version-1, state)
			return
		}
		f.ok(e.Event.Possible(), RuleEventTransition, "a transition of the state machine",
			"event %d from state %q to %q by %q", e.Version, e.Event.From, e.Event.To, e.Event.Cause)
		state, before = e.Event.To, e.RecordedAt
	}
	f.ok(version == in.Version && state == in.State, RuleInstructionState, "the same version and state in both",
		"the bank instruction is %d %s, its history ends at %d %s", in.Version, in.State, version, state)
}

// state checks the columns that depend on an instruction's state.
func (f *findings) state(in transfer.Instruction, past past) {
	accepted, final := !in.AcceptedAt.IsZero(), !in.FinalAt.IsZero()
	f.ok(accepted == past.accepted && final == past.final, RuleInstructionTimes, "accepted_at and final_at as the events have it",
		"accepted_at set %t, an event says so %t; final_at set %t, an event says so %t", accepted, past.accepted, final, past.final)
	open := in.State == transfer.StateUncertain || in.State == transfer.StateAccepted
	f.ok(!open || !in.NextCheckAt.IsZero(), RuleInstructionCheck, "a next check", "%s bank instruction without a next check", in.State)
}

// sends checks the number and the times of sends.
func (f *findings) sends(in transfer.Instruction, past past, t Terms) {
	least, most := transfer.SendBounds(past.history)
	if !f.ok(least <= in.Sends && in.Sends <= most, RuleSends, "the sends that the events account for, at most the allowed ones",
		"%d sends counted, %d to %d accounted for, %d allowed", in.Sends, least, most, transfer.MaxSends) {
		return
	}
	sent := in.Sends > 0
	if !sent || in.FirstSentAt.IsZero() || in.LastSentAt.IsZero() || in.ResendNotAfter.IsZero() {
		f.ok(sent == !in.FirstSentAt.IsZero() && sent == !in.LastSentAt.IsZero() && sent == !in.ResendNotAfter.IsZero(), RuleResendWindow,
			"first_sent_at, last_sent_at and resend_not_after if, and only if, it was sent", "%d sends; set are first %t, last %t, resend %t",
			in.Sends, !in.FirstSentAt.IsZero(), !in.LastSentAt.IsZero(), !in.ResendNotAfter.IsZero())
		return
	}
	window := in.ResendNotAfter.Sub(in.FirstSentAt)
	known := window > 0 && len(t.KeyLifetimes) == 0 ||
		slices.ContainsFunc(t.KeyLifetimes, func(life time.Duration) bool { return window == transfer.ResendWindow(life) })
	f.ok(known, RuleResendWindow, "four fifths of the bank's key lifetime", "resend_not_after %v after the first send", window)
	// last_sent_at and the times of send events have no upper bound: a crashed step
	// counts as a send, and a commit can be late, after which the step does not send.
	f.ok(!in.LastSentAt.Before(in.FirstSentAt), RuleResendWindow, "no send before the first", "latest send %v after the first",
		in.LastSentAt.Sub(in.FirstSentAt))
}

// reversal checks that the movement has a reversal of its amount if, and only if, an
// event reverses it.
func (f *findings) reversal(one Snapshot, m settle.Movement, past past) {
	if len(one.Reversals) == 0 {
		f.ok(past.reversed.IsZero(), RuleReversalMissing, "a reversal of "+clock(past.reversed), "%s without reversal", past.reason)
		return
	}
	r := one.Reversals[0]
	f.ok(r.AmountCents == m.AmountCents, RuleReversalAmount, "the movement's amount", "reversal of %d, movement of %d", r.AmountCents, m.AmountCents)
	founded := !past.reversed.IsZero() && r.Reason == string(past.reason) && r.RecordedAt.Equal(past.reversed)
	f.ok(founded, RuleReversalUnfounded, "an event of the same commit that reverses the movement",
		"reversal of %s for the reason %q", clock(r.RecordedAt), r.Reason)
}

// ConflictViolations lists the violations of a conflict. m is the settlement's
// movement.
func ConflictViolations(m settle.Movement, c spannerstore.ConflictRow) []Violation {
	f := &findings{of: Violation{SettlementID: c.SettlementID}}
	f.conflict(m, c)
	return f.list
}

func (f *findings) conflict(m settle.Movement, c spannerstore.ConflictRow) {
	name := "conflict " + string(c.PayloadHash)
	f.ok(!c.SeenAt.Before(m.RecordedAt), RuleConflictTime, "a time after the settlement, "+clock(m.RecordedAt), "%s seen at %s", name, clock(c.SeenAt))
	closed := c.ResolvedAt != nil && c.ResolvedBy != ""
	open := c.ResolvedAt == nil && c.ResolvedBy == ""
	f.ok(open || closed && !c.ResolvedAt.Before(c.SeenAt), RuleConflictResolution,
		"a name and a time after the first delivery, or neither", "%s closed by %q at %s", name, c.ResolvedBy, clockOf(c.ResolvedAt))
	if !f.ok(c.PayloadHash != m.PayloadHash, RuleConflictHash, "another payload hash than the movement's", "%s has the movement's", name) {
		return
	}
	p, err := payout.Decode(c.Payload, m.Currency)
	if !f.ok(err == nil && p.SettlementID == c.SettlementID, RuleConflictPayload, "a payout with the settlement ID", "%s with another payload", name) {
		return
	}
	if same, err := c.PayloadHash.Matches(p); err != nil || !same {
		f.broken(RuleConflictHash, "the hash of its payload, "+string(p.Hash()), "%s with a payload of another hash", name)
		return
	}
	if _, intact := m.Payout(); !intact {
		return // the settled payout is lost, so the differing members are unknown
	}
	if want := m.DifferingMembers(p); !slices.Equal(want, c.Fields) {
		f.broken(RuleConflictFields, "those that differ: "+list(want), "%s names %s", name, list(c.Fields))
	}
}

// QuarantineViolations lists the violations of a message in quarantine.
func QuarantineViolations(q spannerstore.QuarantineRow) []Violation {
	f := &findings{of: Violation{Message: q.Identity}}
	if q.Reason != payout.ReasonUnsupportedEvent { // whose identity is of a part of the data
		of := settle.Quarantined{Message: settle.Message{ID: q.MessageID, Subscription: q.Subscription, Data: q.Data}}
		f.ok(q.Identity == of.Identity(), RuleQuarantineIdentity, of.Identity(), "data or names that the identity does not derive from")
		f.ok(refusedFor(q), RuleQuarantineReason, "the reason for which the decoder refuses its data", "quarantined for %s",
			strings.TrimSpace(string(q.Reason)+" "+q.Member))
	}
	kept := q.ReleasedAt == nil && q.ReleasedBy == "" && q.ExpireFrom == nil
	released := q.ReleasedAt != nil && q.ReleasedBy != "" && q.ExpireFrom != nil && !q.ReleasedAt.Before(q.QuarantinedAt)
	f.ok(kept || released, RuleQuarantineRelease, "released_at, released_by and expire_from together, or none",
		"released at %s by %q, expires from %s", clockOf(q.ReleasedAt), q.ReleasedBy, clockOf(q.ExpireFrom))
	return f.list
}

// refusedFor reports whether the decoder refuses the data for the stored reason, with
// or without a default currency.
func refusedFor(q spannerstore.QuarantineRow) bool {
	for _, currency := range []string{"", "USD"} {
		_, err := payout.Decode(q.Data, currency)
		if refusal, ok := errors.AsType[*payout.Refusal](err); ok && refusal.Reason == q.Reason && refusal.Member == q.Member {
			return true
		}
	}
	return false
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func clockOf(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return clock(*t)
}
