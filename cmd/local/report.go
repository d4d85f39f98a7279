package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// replacement says what runs instead of what is missing. The zero value is
// nothing missing.
type replacement struct {
	words string
	cause error
}

const (
	insteadOfSpanner = "no Spanner emulator: this demo runs in memory, without Spanner and Pub/Sub"
	insteadOfPubSub  = "no Pub/Sub emulator: this demo's topic is in this process, its ledger in Spanner"
)

// wrapColumns is where long text is wrapped.
const wrapColumns = 88

// printer prints the demo's report and remembers the first error of doing so.
type printer struct {
	out io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if _, err := fmt.Fprintf(p.out, format+"\n", args...); err != nil && p.err == nil {
		p.err = fmt.Errorf("write to standard output: %w", err)
	}
}

// intro says what the sample runs on. It comes before anything else.
func (p *printer) intro(sys *system, instead replacement) {
	if instead.words != "" {
		p.line("%s\n\n%s\n", instead.words, trimLines(text.WrapSoft(instead.cause.Error(), wrapColumns)))
	}
	ledger, topic := "in memory", "in this process"
	if sys.spanner != nil {
		ledger = "Spanner emulator (" + sys.spanner.Source + ")"
	}
	if sys.pubsub != nil {
		topic = "Pub/Sub emulator (" + sys.pubsub.Source + ")"
	}
	p.line("ledger: %s\ntopic:  %s\nbank:   fake, in this process\n", ledger, topic)
}

// trimLines removes what fills lines up to their width.
func trimLines(s string) string {
	var trimmed []string
	for line := range strings.SplitSeq(s, "\n") {
		trimmed = append(trimmed, strings.TrimRight(line, " "))
	}
	return strings.Join(trimmed, "\n")
}

// outro repeats what the reader must not overlook. It comes last.
func (p *printer) outro(instead replacement) {
	if instead.words != "" {
		p.line("\n%s", instead.words)
	}
}

func newTable(title string, header table.Row, columns ...table.ColumnConfig) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Title.Align = text.AlignLeft
	t.SetTitle(title)
	t.AppendHeader(header)
	t.SetColumnConfigs(columns)
	return t
}

// right aligns a column of numbers.
func right(column int) table.ColumnConfig {
	return table.ColumnConfig{Number: column, Align: text.AlignRight, AlignHeader: text.AlignRight}
}

// deliveries prints a row for each delivery.
func (p *printer) deliveries(rows []row, deliveries []delivery) {
	t := newTable("Deliveries", table.Row{"message", "outcome", "reason, members or bank", "ms"}, right(4))
	for i, d := range deliveries {
		name := rows[d.row].Name
		if i > 0 && deliveries[i-1].row == d.row {
			name = "  published again, new message ID"
			if d.attempt > 0 {
				name = "  delivered again, same message ID"
			}
		}
		t.AppendRow(table.Row{
			name, d.answer.Outcome, noted(d.answer),
			fmt.Sprintf("%.1f", float64(d.took.Microseconds())/1000),
		})
	}
	p.line("%s\n", t.Render())
}

// noted is what is to be said about an answer beside its outcome.
func noted(a answer) string {
	if a.Instruction != transfer.StateNone && len(a.Fields) == 0 {
		return "bank: " + string(a.Instruction)
	}
	return why(a.Fields, a.Reason, a.Member)
}

// why is a conflict's members, or a refusal's reason with its member.
func why(fields []string, reason payout.Reason, member string) string {
	if len(fields) > 0 {
		return strings.Join(fields, ", ")
	}
	return strings.TrimSpace(string(reason) + " " + member)
}

// ledger prints what is stored.
func (p *printer) ledger(stored audit.Snapshot) {
	movements := newTable("Ledger: movements",
		table.Row{"settlement", "account", "minor units", "currency", "recorded at"}, right(3))
	for _, m := range stored.Movements {
		movements.AppendRow(table.Row{
			m.SettlementID, m.AccountID, m.AmountCents, m.Currency, m.RecordedAt.UTC().Format("2006-01-02 15:04:05.000000Z"),
		})
	}
	p.line("%s\n", movements.Render())

	conflicts := newTable("Conflicts: nothing moved", table.Row{"settlement", "members that differ", "deliveries"}, right(3))
	for _, c := range stored.Conflicts {
		conflicts.AppendRow(table.Row{c.SettlementID, strings.Join(c.Fields, ", "), c.Deliveries})
	}
	p.line("%s\n", conflicts.Render())

	quarantine := newTable("Quarantine: nothing moved", table.Row{"message ID", "reason", "deliveries"}, right(1), right(3))
	for _, q := range byArrival(stored.Quarantined) {
		quarantine.AppendRow(table.Row{q.MessageID, why(nil, q.Reason, q.Member), q.Deliveries})
	}
	p.line("%s\n", quarantine.Render())
}

// verdict prints the line that says whether all agree, or else every fault.
func (p *printer) verdict(rows []row, happened saw, faults []string) {
	deliveries, stored := happened.deliveries, happened.stored

	for _, fault := range faults {
		p.line("wrong: %s", fault)
	}
	if len(faults) > 0 {
		p.line("%d of the checks failed", len(faults))
		return
	}
	outcomes := map[string]int{}
	for _, d := range deliveries {
		outcomes[d.answer.Outcome]++
	}
	p.line("ok: %d messages, %d deliveries: %d applied, %d duplicate, %d conflict, %d quarantined;",
		publications(rows), len(deliveries), outcomes["applied"], outcomes["duplicate"], outcomes["conflict"], outcomes["quarantined"])
	p.line("    %d movements and %d receipts, %d conflicts, %d in quarantine: answers, ledger and sample agree;",
		len(stored.Movements), len(stored.Receipts), len(stored.Conflicts), len(stored.Quarantined))
	p.line("    %d bank instructions, %d reversals, %d transfers at the bank: transfer by transfer they agree",
		len(stored.Instructions), len(stored.Reversals), len(happened.atBank))
}

// byArrival sorts quarantined messages by when they first came.
func byArrival(messages []spannerstore.QuarantineRow) []spannerstore.QuarantineRow {
	return slices.SortedFunc(slices.Values(messages), func(a, b spannerstore.QuarantineRow) int {
		return a.QuarantinedAt.Compare(b.QuarantinedAt)
	})
}
