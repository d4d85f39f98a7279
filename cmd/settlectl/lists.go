package main

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/settleonce/settleonce/internal/ledger"
)

func conflictList() listing[ledger.ConflictEntry] {
	return listing[ledger.ConflictEntry]{
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
		read: func(r ledger.Reader, ctx context.Context, f ledger.Filter) iter.Seq2[ledger.ConflictEntry, error] {
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
		row: func(e ledger.ConflictEntry) []string {
			return []string{clock(e.LastSeenAt), e.SettlementID, e.AccountID, strings.Join(e.Fields, ", "), fmt.Sprint(e.Deliveries), closedBy(e.ResolvedBy, "resolved by ")}
		},
		csvColumns: named("last_seen_at", "settlement_id", "account_id", "payload_hash", "fields", "deliveries", "first_seen_at", "message_id", "resolved_at", "resolved_by", "note"),
		csvRow: func(e ledger.ConflictEntry) []string {
			return []string{
				exact(e.LastSeenAt), e.SettlementID, e.AccountID, e.PayloadHash, strings.Join(e.Fields, " "), fmt.Sprint(e.Deliveries),
				exact(e.FirstSeenAt), e.MessageID, exactOr(e.ResolvedAt), orEmpty(e.ResolvedBy), orEmpty(e.Note),
			}
		},
		nothing: "No conflicts.",
	}
}

// closedBy is the state of a case.
func closedBy(who *string, closed string) string {
	if who == nil {
		return ledger.StateOpen
	}
	return closed + *who
}

func openColors(state string) text.Colors {
	if state == ledger.StateOpen {
		return text.Colors{text.FgRed}
	}
	return nil
}

func orEmpty(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// number is a number that need not be.
func number(n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

func uncertainList(s streams) listing[ledger.UncertainEntry] {
	return listing[ledger.UncertainEntry]{
		name: "uncertain", short: "List bank instructions that the bank may or may not have",
		long: `uncertain lists the bank instructions of which nobody knows yet whether they
have reached the bank. The function finds out by itself; after 7 days, or where
it cannot, a person decides (list manual).`,
		example: `  settlectl list uncertain
  settlectl list uncertain --until 1h --limit 20`,
		time: "they became uncertain", account: true,
		read: func(r ledger.Reader, ctx context.Context, f ledger.Filter) iter.Seq2[ledger.UncertainEntry, error] {
			return r.Uncertain(ctx, f)
		},
		columns: []column{
			{name: "uncertain since", fixed: true}, {name: "settlement"}, {name: "account"}, {name: "amount", right: true, fixed: true}, {name: "sends", right: true, fixed: true, optional: true}, {name: "next step", fixed: true},
		},
		row: func(e ledger.UncertainEntry) []string {
			next := "never"
			if e.NextCheckAt != nil {
				next = awayFrom(s.now(), *e.NextCheckAt)
			}
			return []string{clock(e.UncertainSince), e.SettlementID, e.AccountID, e.Amount().String(), fmt.Sprint(e.Sends), next}
		},
		csvColumns: named("uncertain_since", "settlement_id", "account_id", "amount", "amount_minor", "currency", "sends", "checks", "last_sent_at", "not_found_since", "next_check_at"),
		csvRow: func(e ledger.UncertainEntry) []string {
			return []string{
				exact(e.UncertainSince), e.SettlementID, e.AccountID, e.Amount().Major, e.Amount().Minor, e.Currency, fmt.Sprint(e.Sends), fmt.Sprint(e.Checks),
				exactOr(e.LastSentAt), exactOr(e.NotFoundSince), exactOr(e.NextCheckAt),
			}
		},
		nothing: "No uncertain bank instructions.",
	}
}

func manualList() listing[ledger.ManualEntry] {
	return listing[ledger.ManualEntry]{
		name: "manual", short: "List bank instructions that a person decides about",
		long: `manual lists the bank instructions that nothing more happens to before a person
decides what became of them (settlectl decide). They are in the order in which
they were created, which is not that in which they became manual.`,
		example: `  settlectl list manual
  settlectl list manual --account reserve-claims --json | jq -r .settlement_id`,
		time: "they were created", account: true,
		read: func(r ledger.Reader, ctx context.Context, f ledger.Filter) iter.Seq2[ledger.ManualEntry, error] {
			return r.Manual(ctx, f)
		},
		columns: []column{
			{name: "manual since", fixed: true}, {name: "settlement"}, {name: "account"}, {name: "amount", right: true, fixed: true}, {name: "why", prose: true},
		},
		row: func(e ledger.ManualEntry) []string {
			return []string{clock(e.ManualSince), e.SettlementID, e.AccountID, e.Amount().String(), orEmpty(e.Detail)}
		},
		csvColumns: named("created_at", "manual_since", "settlement_id", "account_id", "amount", "amount_minor", "currency", "sends", "bank_status", "cause", "http_status", "detail"),
		csvRow: func(e ledger.ManualEntry) []string {
			return []string{
				exact(e.CreatedAt), exact(e.ManualSince), e.SettlementID, e.AccountID, e.Amount().Major, e.Amount().Minor, e.Currency, fmt.Sprint(e.Sends),
				orEmpty(e.BankStatus), e.Cause, number(e.HTTPStatus), orEmpty(e.Detail),
			}
		},
		nothing: "No manual bank instructions.",
	}
}

func quarantineList() listing[ledger.QuarantineEntry] {
	var reasons []string
	for _, reason := range ledger.Reasons() {
		reasons = append(reasons, string(reason))
	}
	return listing[ledger.QuarantineEntry]{
		name: "quarantine", short: "List messages that cannot be a payout",
		long: `quarantine lists the messages that cannot be a payout and are kept whole. The
data itself is not listed. Those that were released are found by a search of the
table.`,
		example: `  settlectl list quarantine
  settlectl list quarantine --reason missing_field --since 7d
  settlectl list quarantine --state all --csv`,
		time: "they came first", states: []string{ledger.StateOpen, ledger.StateReleased, ledger.StateAll}, stateWords: "of the case",
		reasons: reasons, reasonWord: "`code` of why",
		read: func(r ledger.Reader, ctx context.Context, f ledger.Filter) iter.Seq2[ledger.QuarantineEntry, error] {
			return r.Quarantine(ctx, f)
		},
		columns: []column{
			{name: "quarantined", fixed: true}, {name: "message"}, {name: "reason", fixed: true}, {name: "detail", prose: true},
		},
		row: func(e ledger.QuarantineEntry) []string {
			message := e.MessageID
			if message == "" {
				message = e.MessageKey
			}
			detail := e.Detail
			if again := times(&e.Deliveries); again != "" {
				detail += "; " + again
			}
			if e.ReleasedBy != nil {
				detail += "; released by " + *e.ReleasedBy
			}
			return []string{clock(e.QuarantinedAt), message, e.Reason, detail}
		},
		csvColumns: named("quarantined_at", "message_id", "message_key", "subscription", "reason", "member", "detail", "data_bytes", "publish_time", "deliveries", "released_at", "released_by", "note"),
		csvRow: func(e ledger.QuarantineEntry) []string {
			return []string{
				exact(e.QuarantinedAt), e.MessageID, e.MessageKey, e.Subscription, e.Reason, orEmpty(e.Member), e.Detail, fmt.Sprint(e.DataBytes),
				exactOr(e.PublishTime), fmt.Sprint(e.Deliveries), exactOr(e.ReleasedAt), orEmpty(e.ReleasedBy), orEmpty(e.Note),
			}
		},
		nothing: "No quarantined messages.",
	}
}

func movementList() listing[ledger.MovementEntry] {
	var states []string
	for _, state := range ledger.InstructionStates() {
		states = append(states, string(state))
	}
	return listing[ledger.MovementEntry]{
		name: "movements", short: "List movements on the ledger",
		long: `movements lists what was settled. The ledger has no index by time, so that
settling stays fast: the list is a search through what was recorded since
--since, 5000 movements at a time. --since "" searches the whole ledger.`,
		example: `  settlectl list movements --since 1h
  settlectl list movements --account reserve-claims --since 2026-11-01 \
    --until 2026-12-01 --csv
  settlectl list movements --state returned --since 30d`,
		since: "24h", time: "they were recorded", account: true, states: append(states, ledger.StateNone), stateWords: "of the bank instruction",
		read: func(r ledger.Reader, ctx context.Context, f ledger.Filter) iter.Seq2[ledger.MovementEntry, error] {
			return r.Movements(ctx, f)
		},
		columns: []column{
			{name: "recorded", fixed: true}, {name: "settlement"}, {name: "account"}, {name: "amount", right: true, fixed: true}, {name: "bank", fixed: true, colors: stateColors}, {name: "rev.", fixed: true},
		},
		row: func(e ledger.MovementEntry) []string {
			return []string{clock(e.RecordedAt), e.SettlementID, e.AccountID, e.Amount().String(), orNone(e.State), reversedWord(e)}
		},
		csvColumns: named("recorded_at", "settlement_id", "account_id", "amount", "amount_minor", "currency", "creditor_account", "state", "reversed"),
		csvRow: func(e ledger.MovementEntry) []string {
			return []string{
				exact(e.RecordedAt), e.SettlementID, e.AccountID, e.Amount().Major, e.Amount().Minor, e.Currency, orEmpty(e.CreditorAccount), orNone(e.State), orEmpty(e.Reversed),
			}
		},
		nothing: "No movements.",
	}
}

func reversedWord(e ledger.MovementEntry) string {
	if e.Reversed == nil {
		return ""
	}
	return "yes"
}
