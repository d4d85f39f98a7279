package main

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/settleonce/settleonce/internal/ledger"
)

func conflictList() listing[ledger.Entry] {
	return listing[ledger.Entry]{
		name: "conflicts", short: "List messages that say something else under a known settlement ID",
		long: `conflicts lists messages that say something else under a settlement ID that is
settled. Nothing moved for them; a person finds out which of the two is meant.
Those that are closed are found by a search of the table.`,
		example: `  settlectl list conflicts
  settlectl list conflicts --account reserve-claims \
    --reason amount_cents --since 24h
  settlectl list conflicts --state resolved --csv`,
		time: "they were last delivered", account: true,
		states: []string{ledger.StateOpen, ledger.StateResolved, ledger.StateAll}, stateWords: "of the case",
		reasons: ledger.MemberNames(), reasonWord: "`member` in which the payouts differ",
		read: func(r ledger.Reader, ctx context.Context, f ledger.Filter) iter.Seq2[ledger.Entry, error] {
			return r.Conflicts(ctx, f)
		},
		columns: []column{
			{name: "last delivered", fixed: true},
			{name: "settlement"},
			{name: "account"},
			{name: "differs in", prose: true},
			{name: "times", right: true, fixed: true},
			{name: "state", prose: true, colors: openColors},
		},
		row: func(e ledger.Entry) []string {
			c := e.Conflict
			return []string{clock(c.LastSeenAt), c.SettlementID, e.Movement.AccountID, strings.Join(c.Fields, ", "), fmt.Sprint(c.Deliveries), closedBy(c.ResolvedBy, "resolved by ")}
		},
		csvColumns: named("last_seen_at", "settlement_id", "account_id", "payload_hash", "fields", "deliveries", "first_seen_at", "message_id", "resolved_at", "resolved_by", "note"),
		csvRow: func(e ledger.Entry) []string {
			c := e.Conflict
			return []string{
				exact(c.LastSeenAt), c.SettlementID, e.Movement.AccountID, string(c.PayloadHash), strings.Join(c.Fields, " "), fmt.Sprint(c.Deliveries),
				exact(c.FirstSeenAt), c.MessageID, exactOr(c.ResolvedAt), c.ResolvedBy, c.Note,
			}
		},
		nothing: "No conflicts.",
	}
}

// closedBy is the state of a case.
func closedBy(who, closed string) string {
	if who == "" {
		return ledger.StateOpen
	}
	return closed + who
}

func openColors(state string) text.Colors {
	if state == ledger.StateOpen {
		return text.Colors{text.FgRed}
	}
	return nil
}

// number writes a number; zero is absent.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func uncertainList(s streams) listing[ledger.Entry] {
	return listing[ledger.Entry]{
		name: "uncertain", short: "List bank instructions that the bank may or may not have",
		long: `uncertain lists the bank instructions of which nobody knows yet whether they
have reached the bank. The function finds out by itself; after 7 days, or where
it cannot, a person decides (list manual).`,
		example: `  settlectl list uncertain
  settlectl list uncertain --until 1h --limit 20`,
		time: "they became uncertain", account: true,
		read: func(r ledger.Reader, ctx context.Context, f ledger.Filter) iter.Seq2[ledger.Entry, error] {
			return r.Uncertain(ctx, f)
		},
		columns: []column{
			{name: "uncertain since", fixed: true}, {name: "settlement"}, {name: "account"}, {name: "amount", right: true, fixed: true}, {name: "sends", right: true, fixed: true, optional: true}, {name: "next step", fixed: true},
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
		nothing: "No uncertain bank instructions.",
	}
}

func manualList() listing[ledger.Entry] {
	return listing[ledger.Entry]{
		name: "manual", short: "List bank instructions that a person decides about",
		long: `manual lists the bank instructions that nothing more happens to before a person
decides what became of them (settlectl decide). They are in the order in which
they were created, which is not that in which they became manual.`,
		example: `  settlectl list manual
  settlectl list manual --account reserve-claims --json | jq -r .settlement_id`,
		time: "they were created", account: true,
		read: func(r ledger.Reader, ctx context.Context, f ledger.Filter) iter.Seq2[ledger.Entry, error] {
			return r.Manual(ctx, f)
		},
		columns: []column{
			{name: "manual since", fixed: true}, {name: "settlement"}, {name: "account"}, {name: "amount", right: true, fixed: true}, {name: "why", prose: true},
		},
		row: func(e ledger.Entry) []string {
			return []string{clock(e.Event.RecordedAt), e.Instruction.SettlementID, e.Movement.AccountID, e.Amount().String(), e.Event.Event.Detail}
		},
		csvColumns: named("created_at", "manual_since", "settlement_id", "account_id", "amount", "amount_minor", "currency", "sends", "bank_status", "cause", "http_status", "detail"),
		csvRow: func(e ledger.Entry) []string {
			in, event := e.Instruction, e.Event.Event
			return []string{
				exact(in.CreatedAt), exact(e.Event.RecordedAt), in.SettlementID, e.Movement.AccountID, e.Amount().Major, e.Amount().Minor, e.Movement.Currency, fmt.Sprint(in.Sends),
				in.BankStatus, event.Cause, number(event.HTTPStatus), event.Detail,
			}
		},
		nothing: "No manual bank instructions.",
	}
}

func quarantineList() listing[ledger.Entry] {
	var reasons []string
	for _, reason := range ledger.Reasons() {
		reasons = append(reasons, string(reason))
	}
	return listing[ledger.Entry]{
		name: "quarantine", short: "List messages that cannot be a payout",
		long: `quarantine lists the messages that cannot be a payout and are kept whole. The
data itself is not listed. Those that were released are found by a search of the
table.`,
		example: `  settlectl list quarantine
  settlectl list quarantine --reason missing_field --since 7d
  settlectl list quarantine --state all --csv`,
		time: "they came first", states: []string{ledger.StateOpen, ledger.StateReleased, ledger.StateAll}, stateWords: "of the case",
		reasons: reasons, reasonWord: "`code` of why",
		read: func(r ledger.Reader, ctx context.Context, f ledger.Filter) iter.Seq2[ledger.Entry, error] {
			return r.Quarantine(ctx, f)
		},
		columns: []column{
			{name: "quarantined", fixed: true}, {name: "message"}, {name: "reason", fixed: true}, {name: "detail", prose: true},
		},
		row: func(e ledger.Entry) []string {
			q, message := e.Quarantined, e.Quarantined.MessageID
			if message == "" {
				message = e.MessageKey
			}
			detail := q.Detail
			if again := times(q.Deliveries); again != "" {
				detail += "; " + again
			}
			if q.ReleasedBy != "" {
				detail += "; released by " + q.ReleasedBy
			}
			return []string{clock(q.QuarantinedAt), message, string(q.Reason), detail}
		},
		csvColumns: named("quarantined_at", "message_id", "message_key", "subscription", "reason", "member", "detail", "data_bytes", "publish_time", "deliveries", "released_at", "released_by", "note"),
		csvRow: func(e ledger.Entry) []string {
			q := e.Quarantined
			return []string{
				exact(q.QuarantinedAt), q.MessageID, e.MessageKey, q.Subscription, string(q.Reason), q.Member, q.Detail, fmt.Sprint(e.DataBytes),
				exactOr(q.PublishTime), fmt.Sprint(q.Deliveries), exactOr(q.ReleasedAt), q.ReleasedBy, q.Note,
			}
		},
		nothing: "No quarantined messages.",
	}
}

func movementList() listing[ledger.Entry] {
	var states []string
	for _, state := range ledger.InstructionStates() {
		states = append(states, string(state))
	}
	return listing[ledger.Entry]{
		name: "movements", short: "List movements on the ledger",
		long: `movements lists what was settled. The ledger has no index by time, so that
settling stays fast: the list is a search through what was recorded since
--since, 5000 movements at a time. --since "" searches the whole ledger.`,
		example: `  settlectl list movements --since 1h
  settlectl list movements --account reserve-claims --since 2026-11-01 \
    --until 2026-12-01 --csv
  settlectl list movements --state returned --since 30d`,
		since: "24h", time: "they were recorded", account: true, states: append(states, ledger.StateNone), stateWords: "of the bank instruction",
		read: func(r ledger.Reader, ctx context.Context, f ledger.Filter) iter.Seq2[ledger.Entry, error] {
			return r.Movements(ctx, f)
		},
		columns: []column{
			{name: "recorded", fixed: true}, {name: "settlement"}, {name: "account"}, {name: "amount", right: true, fixed: true}, {name: "bank", fixed: true, colors: stateColors}, {name: "rev.", fixed: true},
		},
		row: func(e ledger.Entry) []string {
			m := e.Movement
			return []string{clock(m.RecordedAt), m.SettlementID, m.AccountID, e.Amount().String(), orNone(string(e.Instruction.State)), reversedWord(e)}
		},
		csvColumns: named("recorded_at", "settlement_id", "account_id", "amount", "amount_minor", "currency", "creditor_account", "state", "reversed"),
		csvRow: func(e ledger.Entry) []string {
			m := e.Movement
			return []string{
				exact(m.RecordedAt), m.SettlementID, m.AccountID, e.Amount().Major, e.Amount().Minor, m.Currency, m.CreditorAccount, orNone(string(e.Instruction.State)), e.Reversal.Reason,
			}
		},
		nothing: "No movements.",
	}
}

func reversedWord(e ledger.Entry) string {
	if e.Reversal.Reason == "" {
		return ""
	}
	return "yes"
}
