package ledger

import (
	"context"
	"iter"
	"slices"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// The tables, with the aliases by which the queries know them.

func movement(e *Entry, names ...string) []spannerstore.Field {
	return spannerstore.Movements.As("m", &e.Movement, names...)
}

func instruction(e *Entry, names ...string) []spannerstore.Field {
	return spannerstore.Instructions.As("i", &e.Instruction, names...)
}

func event(e *Entry, names ...string) []spannerstore.Field {
	return spannerstore.Events.As("e", &e.Event, names...)
}

func reversal(e *Entry, names ...string) []spannerstore.Field {
	return spannerstore.Reversals.As("v", &e.Reversal, names...)
}

func conflict(e *Entry, names ...string) []spannerstore.Field {
	return spannerstore.Conflicts.As("c", &e.Conflict, names...)
}

func quarantined(e *Entry, names ...string) []spannerstore.Field {
	return spannerstore.Quarantined.As("q", &e.Quarantined, names...)
}

// Conflicts lists conflicts by their first delivery. The filter's State is open,
// resolved or all, its Reason a member in which the payouts differ.
func (r Reader) Conflicts(ctx context.Context, f Filter) iter.Seq2[Entry, error] {
	q := query{
		fields: func(e *Entry) []spannerstore.Field {
			return slices.Concat(
				conflict(e, "seen_at", "settlement_id"), movement(e, "account_id"),
				conflict(e, "payload_hash", "fields", "message_id", "source", "resolved_at", "resolved_by", "note"),
			)
		},
		params: map[string]any{}, time: "c.seen_at", keys: []string{"c.settlement_key", "c.payload_hash"},
	}
	hint := ""
	switch f.State {
	case StateAll:
	case StateResolved:
		q.and("c.resolved_by IS NOT NULL", "", nil)
	default:
		hint = index("settlement_conflicts_open")
		q.and("c.open_shard IS NOT NULL", "", nil)
	}
	q.from = `FROM settlement_conflicts` + hint + ` AS c
JOIN ledger_movements AS m ON m.settlement_key = c.settlement_key`
	q.narrow(f, "m.account_id")
	if f.Reason != "" {
		q.and("@reason IN UNNEST(c.fields)", "reason", f.Reason)
	}
	return r.list(ctx, q, f.Limit)
}

// Uncertain lists uncertain instructions by the time at which they became so. The
// filter has no Reason and no State.
func (r Reader) Uncertain(ctx context.Context, f Filter) iter.Seq2[Entry, error] {
	q := query{
		fields: func(e *Entry) []spannerstore.Field {
			return slices.Concat(
				instruction(e, "uncertain_since", "settlement_id"), movement(e, "account_id", "amount_cents", "currency"),
				instruction(e, "sends", "checks", "last_sent_at", "not_found_since", "next_check_at"),
			)
		},
		from: `FROM bank_instructions` + index("bank_instructions_uncertain") + ` AS i
JOIN ledger_movements AS m ON m.settlement_key = i.settlement_key`,
		params: map[string]any{}, time: "i.uncertain_since", keys: []string{"i.settlement_key"},
	}
	q.and("i.due_shard IS NOT NULL AND i.uncertain_since IS NOT NULL", "", nil)
	q.narrow(f, "m.account_id")
	return r.list(ctx, q, f.Limit)
}

// Manual lists manual instructions by their creation, each with the event that made
// it manual: nothing happens to it afterwards before a decision. The filter has no
// Reason and no State.
func (r Reader) Manual(ctx context.Context, f Filter) iter.Seq2[Entry, error] {
	q := query{
		fields: func(e *Entry) []spannerstore.Field {
			return slices.Concat(
				instruction(e, "created_at", "settlement_id"), movement(e, "account_id", "amount_cents", "currency"),
				instruction(e, "sends", "bank_status"),
				[]spannerstore.Field{spannerstore.Computed("manual_since", "e.recorded_at", &e.Event.RecordedAt)},
				event(e, "cause", "http_status", "detail"),
			)
		},
		from: `FROM bank_instructions` + index("bank_instructions_manual") + ` AS i
JOIN ledger_movements AS m ON m.settlement_key = i.settlement_key
JOIN bank_instruction_events AS e ON e.settlement_key = i.settlement_key AND e.version = i.version`,
		params: map[string]any{}, time: "i.created_at", keys: []string{"i.settlement_key"},
	}
	q.and("i.manual_shard IS NOT NULL", "", nil)
	q.narrow(f, "m.account_id")
	return r.list(ctx, q, f.Limit)
}

// Quarantine lists quarantined messages by their first delivery. The filter's State
// is open, released or all, its Reason a [payout.Reason]; it has no AccountID.
func (r Reader) Quarantine(ctx context.Context, f Filter) iter.Seq2[Entry, error] {
	q := query{
		fields: func(e *Entry) []spannerstore.Field {
			return slices.Concat(
				quarantined(e, "quarantined_at", "message_id", "subscription", "reason", "member", "detail"),
				[]spannerstore.Field{spannerstore.Computed("data_bytes", "BYTE_LENGTH(q.data)", &e.DataBytes)},
				quarantined(e, "publish_time", "released_at", "released_by", "note"),
				[]spannerstore.Field{spannerstore.Computed("message_key", "TO_HEX(q.message_key)", &e.MessageKey)},
			)
		},
		params: map[string]any{}, time: "q.quarantined_at", keys: []string{"q.message_key"},
	}
	hint := ""
	switch f.State {
	case StateAll:
	case StateReleased:
		q.and("q.released_by IS NOT NULL", "", nil)
	default:
		hint = index("quarantined_messages_open")
		q.and("q.open_shard IS NOT NULL", "", nil)
	}
	q.from = `FROM quarantined_messages` + hint + ` AS q`
	q.narrow(f, "")
	if f.Reason != "" {
		q.and("q.reason = @reason", "reason", f.Reason)
	}
	return r.list(ctx, q, f.Limit)
}

// Movements lists movements by the time at which they were recorded. The filter's
// State is that of the bank instruction, or none; it has no Reason. The package
// comment says how much it reads.
func (r Reader) Movements(ctx context.Context, f Filter) iter.Seq2[Entry, error] {
	q := query{
		fields: func(e *Entry) []spannerstore.Field {
			return slices.Concat(
				movement(e, "recorded_at", "settlement_id", "account_id", "amount_cents", "currency", "creditor_account", "reference", "source"),
				spannerstore.Optional(append(instruction(e, "state"), spannerstore.Computed("reversed", "v.reason", &e.Reversal.Reason))),
			)
		},
		from: `FROM ledger_movements AS m
LEFT JOIN bank_instructions AS i ON i.settlement_key = m.settlement_key
LEFT JOIN ledger_reversals AS v ON v.settlement_key = m.settlement_key`,
		params: map[string]any{}, time: "m.recorded_at", keys: []string{"m.settlement_key"},
	}
	q.narrow(f, "m.account_id")
	switch f.State {
	case "":
	case StateNone:
		q.and("i.state IS NULL", "", nil)
	default:
		q.and("i.state = @state", "state", f.State)
	}
	return r.list(ctx, q, f.Limit)
}

// InstructionStates returns the states of bank instructions, in the usual order.
func InstructionStates() []transfer.State {
	return []transfer.State{
		transfer.StateUncertain, transfer.StateAccepted, transfer.StateConfirmed,
		transfer.StateRejected, transfer.StateReturned, transfer.StateManual,
	}
}

// Reasons returns the reasons of quarantine.
func Reasons() []payout.Reason {
	return []payout.Reason{
		payout.ReasonUnsupportedEvent, payout.ReasonTooLarge, payout.ReasonEmptyData, payout.ReasonNotJSON, payout.ReasonDuplicateField,
		payout.ReasonUnknownField, payout.ReasonMissingField, payout.ReasonInvalidField,
	}
}

// MemberNames returns the members in which two payouts can differ.
func MemberNames() []string {
	var names []string
	for _, m := range payoutMembers(payout.Payout{}) {
		if m.name != "settlement_id" {
			names = append(names, m.name)
		}
	}
	return append(names, settle.FieldPayloadHash)
}
