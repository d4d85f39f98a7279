package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// report writes the tables and the result of all checks.
func report(out io.Writer, sys *system, messages []sampleMessage, seen result) error {
	stored := seen.books.Snapshot
	var b strings.Builder
	fmt.Fprintf(&b, "ledger: Spanner emulator (%s)\ntopic:  Pub/Sub emulator (%s)\nbank:   fake, in this process\n\n",
		sys.spanner.Source, sys.pubsub.Source)
	for _, t := range []table.Writer{
		deliveriesTable(messages, seen.deliveries),
		movementsTable(stored), runsTable(seen.runs), instructionsTable(stored), transfersTable(seen.books.Ledger),
	} {
		b.WriteString(t.Render() + "\n\n")
	}
	faults := check(messages, seen)
	if len(faults) == 0 {
		writeSummary(&b, messages, seen)
	}
	for _, fault := range faults {
		fmt.Fprintf(&b, "wrong: %s\n", fault)
	}
	_, err := io.WriteString(out, b.String())
	if err != nil {
		err = fmt.Errorf("write to standard output: %w", err)
	}
	if len(faults) > 0 {
		return errors.Join(err, errDisagree)
	}
	return err
}

// newTable returns a table whose columns with the given numbers, from 1, are aligned
// to the right.
func newTable(title string, right []int, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Options = table.Options{SeparateHeader: true}
	t.Style().Format.Header = text.FormatDefault
	t.Style().Box.PaddingLeft, t.Style().Box.PaddingRight = "", "  "
	t.SuppressTrailingSpaces()
	t.SetTitle(title)
	t.AppendHeader(header)
	var columns []table.ColumnConfig
	for _, number := range right {
		columns = append(columns, table.ColumnConfig{Number: number, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}

func deliveriesTable(messages []sampleMessage, deliveries []delivery) table.Writer {
	t := newTable("Deliveries", []int{4}, "message", "outcome", "members, reason or bank state", "ms")
	for i, d := range deliveries {
		name := messages[d.Message].Name
		switch {
		case i == 0 || deliveries[i-1].Message != d.Message:
		case d.attempt > 0:
			name = "  delivered again, same message ID"
		default:
			name = "  published again, new message ID"
		}
		more := d.answer.detail()
		if more == "" && d.answer.Instruction != transfer.StateNone {
			more = "bank: " + string(d.answer.Instruction)
		}
		if d.answer.Known {
			more += "; known"
		}
		t.AppendRow(table.Row{name, d.answer.Outcome, more, fmt.Sprintf("%.1f", float64(d.took.Microseconds())/1000)})
	}
	return t
}

func movementsTable(stored audit.Snapshot) table.Writer {
	t := newTable("Ledger: movements", []int{3}, "settlement", "account", "amount", "recorded at")
	for _, m := range stored.Movements {
		t.AppendRow(table.Row{
			m.SettlementID, m.AccountID, ledger.Cents(m.AmountCents, m.Currency), m.RecordedAt.UTC().Format("2006-01-02 15:04:05.000000Z"),
		})
	}
	return t
}

func runsTable(runs []reconciliation) table.Writer {
	t := newTable("Reconciler, after each advance of the clock", []int{1, 2}, "clock", "due", "new states")
	for _, r := range runs {
		var counts []string
		for _, state := range slices.Sorted(maps.Keys(r.States)) {
			counts = append(counts, fmt.Sprintf("%d %s", r.States[state], state))
		}
		t.AppendRow(table.Row{"+" + duration(r.after), r.Due, strings.Join(counts, ", ")})
	}
	return t
}

// duration returns a duration in whole days or seconds.
func duration(d time.Duration) string {
	if days := d / (24 * time.Hour); days > 0 {
		return fmt.Sprintf("%d days", days)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

func instructionsTable(stored audit.Snapshot) table.Writer {
	t := newTable("Ledger: bank instructions", []int{3, 4}, "settlement", "states", "sends", "reversal")
	for _, in := range stored.Instructions {
		reversal := ""
		for _, r := range stored.Reversals {
			if r.SettlementID == in.SettlementID {
				reversal = ledger.Cents(-r.AmountCents, in.Transfer.Currency).String()
			}
		}
		t.AppendRow(table.Row{in.SettlementID, arrows(states(stored, in.SettlementID)), in.Sends, reversal})
	}
	return t
}

func transfersTable(transfers []fakebank.Transfer) table.Writer {
	t := newTable("Bank: executed transfers", []int{3}, "settlement", "creditor", "amount", "status")
	for _, r := range slices.SortedFunc(slices.Values(transfers), func(a, b fakebank.Transfer) int {
		return cmp.Compare(a.Settlement, b.Settlement)
	}) {
		t.AppendRow(table.Row{r.Settlement, r.CreditorAccount, ledger.Cents(r.AmountMinor, r.Currency), r.Status})
	}
	return t
}

// writeSummary writes the counts of a demo without faults.
func writeSummary(b *strings.Builder, messages []sampleMessage, seen result) {
	stored := seen.books.Snapshot
	for _, in := range stored.Instructions {
		if in.State == transfer.StateManual {
			fmt.Fprintf(b, "%s needs a decision: %s\n", in.SettlementID, lastDetail(stored, in.SettlementID))
		}
	}
	outcomes := map[settle.Outcome]int{}
	for _, d := range seen.deliveries {
		outcomes[d.answer.Outcome]++
	}
	fmt.Fprintf(b, "ok: %d messages, %d deliveries: %d applied, %d duplicate, %d conflict, %d quarantined\n",
		publications(messages), len(seen.deliveries), outcomes[settle.OutcomeApplied], outcomes[settle.OutcomeDuplicate],
		outcomes[settle.OutcomeConflict], outcomes[settle.OutcomeQuarantined])
	fmt.Fprintf(b, "ok: %d movements, %d receipts, %d conflicts, %d in quarantine: answers, ledger and sample agree\n",
		len(stored.Movements), len(stored.Receipts), len(stored.Conflicts), len(stored.Quarantined))
	fmt.Fprintf(b, "ok: %d rows verified, %d status checks: no violation\n", seen.verified.Rows, seen.verified.Asked)
	fmt.Fprintf(b, "ok: %d bank instructions, %d reversals, %d transfers at the bank: they agree, transfer by transfer\n",
		len(stored.Instructions), len(stored.Reversals), len(seen.books.Ledger))
}

// lastDetail returns the text of the instruction's last event.
func lastDetail(stored audit.Snapshot, settlementID string) string {
	for _, e := range slices.Backward(stored.Events) {
		if e.SettlementID == settlementID {
			return e.Event.Detail
		}
	}
	return ""
}
