package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/settleonce/settleonce/internal/ledger"
)

func conflictList() listing {
	return listing{
		name: "conflicts", short: "List messages that contradict a settled payout",
		long:    "No money moved for them; ask the producer which payout is right.\n--state resolved and --state all scan the whole table and can be slow.",
		example: `  settlectl list conflicts --account reserve-claims --since 24h`,
		time:    "they were first delivered", account: true,
		states: []string{ledger.StateOpen, ledger.StateResolved, ledger.StateAll}, stateHelp: "of the case",
		reasons: ledger.MemberNames(), reasonHelp: "`member` that differs",
		read: ledger.Reader.Conflicts,
		columns: []column{
			{name: "seen"},
			{name: "settlement"},
			{name: "account"},
			{name: "differs in", text: true},
			{name: "source", spare: true},
			{name: "state", text: true, colors: openColors},
		},
		row: func(e ledger.Entry) []string {
			c := e.Conflict
			return []string{clock(c.SeenAt), c.SettlementID, e.Movement.AccountID, strings.Join(c.Fields, ", "), shortName(c.Source), closedBy(c.ResolvedBy, "resolved by ")}
		},
		csvColumns: named("seen_at", "settlement_id", "account_id", "payload_hash", "fields", "message_id", "source", "resolved_at", "resolved_by", "note"),
		csvRow: func(e ledger.Entry) []string {
			c := e.Conflict
			return []string{
				exact(c.SeenAt), c.SettlementID, e.Movement.AccountID, string(c.PayloadHash), strings.Join(c.Fields, " "),
				c.MessageID, c.Source, exactOr(c.ResolvedAt), c.ResolvedBy, c.Note,
			}
		},
		entries: "conflicts",
	}
}

// closedBy returns "open", or the state of a closed case.
func closedBy(person, closed string) string {
	if person == "" {
		return ledger.StateOpen
	}
	return closed + person
}

func openColors(state string) text.Colors {
	if state == ledger.StateOpen {
		return text.Colors{text.FgRed}
	}
	return nil
}

// optionalInt formats a number; 0: absent.
func optionalInt(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func uncertainList(s streams) listing {
	return listing{
		name: "uncertain", short: "List bank instructions that may have reached the bank",
		long:    "The reconciler makes status checks until the bank gives an answer. After 7 days\nan instruction becomes manual.",
		example: `  settlectl list uncertain --until 1h --limit 20`,
		time:    "they became uncertain", account: true,
		read: ledger.Reader.Uncertain,
		columns: []column{
			{name: "uncertain since"}, {name: "settlement"}, {name: "account"}, {name: "amount", right: true}, {name: "sends", right: true}, {name: "next step"},
		},
		row: func(e ledger.Entry) []string {
			next := "never"
			in := e.Instruction
			if !in.NextCheckAt.IsZero() {
				next = awayFrom(s.now(), in.NextCheckAt)
			}
			return []string{clockOr(in.UncertainSince, ""), in.SettlementID, e.Movement.AccountID, e.Amount().String(), fmt.Sprint(in.Sends), next}
		},
		csvColumns: named("uncertain_since", "settlement_id", "account_id", "amount", "amount_minor", "currency", "sends", "checks", "last_sent_at", "not_found_since", "next_check_at"),
		csvRow: func(e ledger.Entry) []string {
			in := e.Instruction
			return []string{
				exactOr(in.UncertainSince), in.SettlementID, e.Movement.AccountID, e.Amount().Major, e.Amount().Minor, e.Movement.Currency, fmt.Sprint(in.Sends), fmt.Sprint(in.Checks),
				exactOr(orNil(in.LastSentAt)), exactOr(orNil(in.NotFoundSince)), exactOr(orNil(in.NextCheckAt)),
			}
		},
		entries: "uncertain bank instructions",
	}
}

func manualList() listing {
	return listing{
		name: "manual", short: "List bank instructions that wait for two people",
		long:    "They wait for a decision of two people with settlectl decide. The order is that\nof their creation.",
		example: `  settlectl list manual --json | jq -r .settlement_id`,
		time:    "they were created", account: true,
		read: ledger.Reader.Manual,
		columns: []column{
			{name: "manual since"}, {name: "settlement"}, {name: "account"}, {name: "amount", right: true}, {name: "reason", text: true},
		},
		row: func(e ledger.Entry) []string {
			return []string{clock(e.Event.RecordedAt), e.Instruction.SettlementID, e.Movement.AccountID, e.Amount().String(), e.Event.Event.Detail}
		},
		csvColumns: named("created_at", "manual_since", "settlement_id", "account_id", "amount", "amount_minor", "currency", "sends", "bank_status", "cause", "http_status", "detail"),
		csvRow: func(e ledger.Entry) []string {
			in, event := e.Instruction, e.Event.Event
			return []string{
				exact(in.CreatedAt), exact(e.Event.RecordedAt), in.SettlementID, e.Movement.AccountID, e.Amount().Major, e.Amount().Minor, e.Movement.Currency, fmt.Sprint(in.Sends),
				in.BankStatus, event.Cause, optionalInt(event.HTTPStatus), event.Detail,
			}
		},
		entries: "manual bank instructions",
	}
}

func quarantineList() listing {
	var reasons []string
	for _, reason := range ledger.Reasons() {
		reasons = append(reasons, string(reason))
	}
	return listing{
		name: "quarantine", short: "List quarantined messages",
		long:    "The list leaves the data of the messages out. --state released and --state all\nscan the whole table and can be slow.",
		example: `  settlectl list quarantine --reason missing_field --since 7d`,
		time:    "they were first delivered", states: []string{ledger.StateOpen, ledger.StateReleased, ledger.StateAll}, stateHelp: "of the case",
		reasons: reasons, reasonHelp: "reason `code`",
		read: ledger.Reader.Quarantine,
		columns: []column{
			{name: "quarantined"}, {name: "message"}, {name: "reason"}, {name: "detail", text: true},
		},
		row: func(e ledger.Entry) []string {
			q, message := e.Quarantined, e.Quarantined.MessageID
			if message == "" {
				message = e.MessageKey
			}
			detail := q.Detail
			if q.ReleasedBy != "" {
				detail += "; released by " + q.ReleasedBy
			}
			return []string{clock(q.QuarantinedAt), message, string(q.Reason), detail}
		},
		csvColumns: named("quarantined_at", "message_id", "message_key", "subscription", "reason", "member", "detail", "data_bytes", "publish_time", "released_at", "released_by", "note"),
		csvRow: func(e ledger.Entry) []string {
			q := e.Quarantined
			return []string{
				exact(q.QuarantinedAt), q.MessageID, e.MessageKey, q.Subscription, string(q.Reason), q.Member, q.Detail, fmt.Sprint(e.DataBytes),
				exactOr(q.PublishTime), exactOr(q.ReleasedAt), q.ReleasedBy, q.Note,
			}
		},
		entries: "quarantined messages",
	}
}

func movementList() listing {
	var states []string
	for _, state := range ledger.InstructionStates() {
		states = append(states, string(state))
	}
	return listing{
		name: "movements", short: "List movements on the ledger",
		long:    "The list scans all movements, because the ledger has no index by time. On a\nlarge ledger it can be slow.",
		example: `  settlectl list movements --account reserve-claims --since 2026-11-01 --csv`,
		since:   "24h", time: "they were recorded", account: true, states: append(states, ledger.StateNone), stateHelp: "of the bank instruction",
		read: ledger.Reader.Movements,
		columns: []column{
			{name: "recorded"}, {name: "settlement"}, {name: "account"}, {name: "amount", right: true}, {name: "bank", colors: stateColors}, {name: "reversed"}, {name: "source", spare: true},
		},
		row: func(e ledger.Entry) []string {
			m, reversed := e.Movement, ""
			if e.Reversal.Reason != "" {
				reversed = "yes"
			}
			return []string{clock(m.RecordedAt), m.SettlementID, m.AccountID, e.Amount().String(), orNone(string(e.Instruction.State)), reversed, shortName(m.Source)}
		},
		csvColumns: named("recorded_at", "settlement_id", "account_id", "amount", "amount_minor", "currency", "creditor_account", "source", "state", "reversed"),
		csvRow: func(e ledger.Entry) []string {
			m := e.Movement
			return []string{
				exact(m.RecordedAt), m.SettlementID, m.AccountID, e.Amount().Major, e.Amount().Minor, m.Currency, m.CreditorAccount, m.Source, orNone(string(e.Instruction.State)), e.Reversal.Reason,
			}
		},
		entries: "movements",
	}
}
