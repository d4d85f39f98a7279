package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/term"
)

func newShow(s streams) *cobra.Command {
	o := operation{streams: s}
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a settlement, and its next step",
		Long: `show prints all rows of a settlement ID as of one moment, and the next step with
its time. Times are UTC. "resend deadline" is 0.8 of the key lifetime after the
first send. The output contains personal data. show changes nothing.

Exit codes: 0, 2 usage error or unreadable database, 3 no such settlement, 130
interrupted.`,
		Example: `  settlectl show stl-8472 --json | jq -r '.bank_instruction.state'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.read(cmd.Context(), nil, func(ctx context.Context, r ledger.Reader) error { return o.show(ctx, r, args[0]) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.register(cmd, outputTable, outputJSON)
	o.database.registerStale(cmd)
	return cmd
}

func (o *operation) show(ctx context.Context, r ledger.Reader, id string) error {
	found, err := r.Settlement(ctx, id)
	switch {
	case errors.Is(err, ledger.ErrNoSettlement):
		return noSettlement(id, o.database)
	case err != nil:
		return o.database.explain(err)
	case o.output.form == outputJSON:
		return printJSON(o.Out, found)
	}
	return page{o.streams}.print(found)
}

// noSettlement reports an unknown settlement ID, with the possible reasons.
func noSettlement(id string, database databaseFlags) error {
	return &term.CodedError{Code: term.ExitNotFound, Err: fmt.Errorf(
		"no settlement %s in %s: letter case matters, the message may not be delivered yet, or it is quarantined; run settlectl list quarantine", visible(id), database.name)}
}

// page prints a settlement for a person.
type page struct{ s streams }

func (p page) print(found ledger.Settlement) error {
	var b strings.Builder
	b.WriteString(p.section("Settlement", p.movement(found)))
	b.WriteString(p.section("Receipt", p.receipt(found)))
	if found.Instruction != nil {
		b.WriteString(p.section("Bank instruction", p.instruction(*found.Instruction)))
		if old := found.Superseded; len(old) > 0 {
			b.WriteString(p.heading("Superseded keys") + p.superseded(old))
		}
		b.WriteString(p.heading("History") + p.history(found.Events))
	}
	if found.Reversal != nil {
		b.WriteString(p.section("Reversal", p.reversal(found)))
	}
	for i, c := range found.Conflicts {
		b.WriteString(p.section(fmt.Sprintf("Conflict %d of %d", i+1, len(found.Conflicts)), p.conflict(c)))
		b.WriteString(p.sideBySide(c))
	}
	if found.MoreConflicts {
		b.WriteString("More conflicts exist. settlectl list conflicts shows all.\n")
	}
	b.WriteString(p.section("Next", p.next(found.Next)))
	return write(p.s.Out, strings.TrimPrefix(b.String(), "\n"))
}

// pair is a label and its value.
type pair struct {
	label, value string
	colors       text.Colors
}

func (p page) heading(title string) string {
	return "\n" + p.s.paint(text.Colors{text.Bold}, title) + "\n"
}

// labelColumns is the width of labels: the values of all sections stand below each other.
const labelColumns = 17

func (p page) section(title string, lines []pair) string {
	var rows [][]string
	colors := map[string]text.Colors{}
	for _, l := range lines {
		value := visible(l.value)
		if l.colors != nil {
			colors[value] = l.colors
		}
		rows = append(rows, []string{fmt.Sprintf("  %-*s", labelColumns-2, l.label), value})
	}
	columns := []column{{}, {text: true, colors: func(value string) text.Colors { return colors[value] }}}
	return p.heading(title) + layOut(p.s, columns, rows, false) + "\n"
}

func (page) movement(found ledger.Settlement) []pair {
	m := found.Movement
	amount := found.Amount().String()
	if found.CurrencyDefaulted {
		amount += " (the message had no currency; DEFAULT_CURRENCY applied)"
	}
	lines := []pair{
		{label: "settlement", value: m.SettlementID},
		{label: "account", value: m.AccountID},
		{label: "amount", value: amount},
		{label: "creditor", value: orNone(m.CreditorAccount)},
		{label: "reference", value: orNone(m.Reference)},
		{label: "payload hash", value: string(m.PayloadHash)},
		{label: "source", value: cmp.Or(m.Source, "unknown")},
		{label: "recorded", value: clock(m.RecordedAt)},
	}
	if !found.Intact {
		lines = append(lines, pair{label: "warning", value: "the payload hash does not fit these members; run settlectl verify", colors: text.Colors{text.FgRed}})
	}
	return lines
}

// orElse returns an optional value, or the text for its absence.
func orElse(value *string, absent string) string {
	if value == nil {
		return absent
	}
	return *value
}

func orNone(value string) string { return cmp.Or(value, "none") }

func (page) receipt(found ledger.Settlement) []pair {
	r := found.Receipt
	if r == nil {
		return []pair{{label: "state", value: "expired; the movement still recognises redeliveries and conflicts"}}
	}
	lines := []pair{
		{label: "outcome", value: r.ResultStatus + " " + clock(r.AppliedAt)},
		{label: "message", value: cmp.Or(r.MessageID, "unknown")},
		{label: "published", value: clockOr(r.PublishTime, "unknown")},
		{label: "delivery", value: r.DeliveryID},
	}
	if r.Metadata != "" {
		lines = append(lines, pair{label: "metadata", value: r.Metadata})
	}
	if r.PayloadHash != found.Movement.PayloadHash {
		lines = append(lines, pair{label: "warning", value: "the receipt has another payload hash: " + string(r.PayloadHash), colors: text.Colors{text.FgRed}})
	}
	return lines
}

func (page) instruction(in transfer.Instruction) []pair {
	lines := []pair{
		{label: "state", value: string(in.State), colors: stateColors(string(in.State))},
		{label: "key", value: in.Transfer.Key.String()},
		{label: "sends", value: sendWords(in)},
	}
	optional := func(label, value string) {
		if value != "" {
			lines = append(lines, pair{label: label, value: value})
		}
	}
	optional("bank's transfer", in.TransferID)
	optional("bank's status", in.BankStatus)
	optional("first not-found", clockOr(orNil(in.NotFoundSince), ""))
	if in.State == transfer.StateUncertain {
		optional("resend deadline", clockOr(orNil(in.ResendNotAfter), ""))
	}
	optional("accepted", clockOr(orNil(in.AcceptedAt), ""))
	optional("final", clockOr(orNil(in.FinalAt), ""))
	return lines
}

func sendWords(in transfer.Instruction) string {
	switch {
	case in.Sends == 0:
		return "0"
	case in.Sends == 1 && !in.FirstSentAt.IsZero():
		return "1, " + clock(in.FirstSentAt)
	case !in.FirstSentAt.IsZero() && !in.LastSentAt.IsZero():
		return fmt.Sprintf("%d, %s to %s", in.Sends, clock(in.FirstSentAt), clock(in.LastSentAt))
	}
	return fmt.Sprint(in.Sends)
}

// stateColors returns the colours of an instruction's state.
func stateColors(state string) text.Colors {
	switch transfer.State(state) {
	case transfer.StateConfirmed:
		return text.Colors{text.FgGreen}
	case transfer.StateManual:
		return text.Colors{text.FgRed}
	case transfer.StateUncertain, transfer.StateAccepted:
		return text.Colors{text.FgYellow}
	case transfer.StateNone, transfer.StateRejected, transfer.StateReturned:
	}
	return nil
}

func (p page) superseded(keys []spannerstore.SupersededRow) string {
	columns := []column{{name: "  key"}, {name: "superseded"}, {name: "sends", right: true}, {name: "status", text: true}}
	var rows [][]string
	for _, k := range keys {
		rows = append(rows, []string{"  " + visible(k.IdempotencyKey), clock(k.SupersededAt), fmt.Sprint(k.Sends), visible(cmp.Or(k.BankStatus, "unknown"))})
	}
	return layOut(p.s, columns, rows, true) + "\n"
}

func (p page) history(events []spannerstore.EventRow) string {
	columns := []column{{name: "  #", right: true}, {name: "recorded"}, {name: "state", colors: stateColors}, {name: "cause"}, {name: "HTTP", right: true}, {name: "detail", text: true}}
	var rows [][]string
	for _, e := range events {
		rows = append(rows, []string{fmt.Sprint(e.Version), clock(e.RecordedAt), visible(string(e.Event.To)), visible(e.Event.Cause), optionalInt(e.Event.HTTPStatus), visible(e.Event.Detail)})
	}
	return layOut(p.s, columns, rows, true) + "\n"
}

func (page) reversal(found ledger.Settlement) []pair {
	r := found.Reversal
	return []pair{
		{label: "amount", value: ledger.Cents(r.AmountCents, found.Movement.Currency).String()},
		{label: "reason", value: r.Reason},
		{label: "recorded", value: clock(r.RecordedAt)},
	}
}

func (page) conflict(c ledger.Conflict) []pair {
	state := closedBy(c.ResolvedBy, "resolved "+clockOr(c.ResolvedAt, "")+" by ")
	lines := []pair{
		{label: "state", value: state, colors: openColors(state)},
		{label: "differs in", value: strings.Join(c.Fields, ", ")},
		{label: "payload hash", value: string(c.PayloadHash)},
		{label: "message", value: cmp.Or(c.MessageID, "unknown")},
		{label: "source", value: cmp.Or(c.Source, "unknown")},
		{label: "seen", value: clock(c.SeenAt)},
	}
	if c.Note != "" {
		lines = append(lines, pair{label: "note", value: c.Note})
	}
	if c.Fault != "" {
		lines = append(lines, pair{label: "warning", value: "the stored message is not a payout: " + c.Fault, colors: text.Colors{text.FgRed}})
	}
	return lines
}

// sideBySide prints the members of both payouts, and marks the differing ones.
func (p page) sideBySide(c ledger.Conflict) string {
	if c.Fault != "" {
		return ""
	}
	columns := []column{{name: "  "}, {name: "settled", text: true}, {name: "this message", text: true}}
	var rows [][]string
	for _, m := range c.Members {
		mark := "    "
		if m.Differs {
			mark = "  ≠ "
		}
		rows = append(rows, []string{mark + m.Name, visible(orElse(m.Settled, "(absent)")), visible(orElse(m.Message, "(absent)"))})
	}
	return layOut(p.s, columns, rows, true) + "\n"
}

func (p page) next(all []ledger.Next) []pair {
	var lines []pair
	for _, n := range all {
		first := pair{label: n.By, value: n.Text}
		if n.By == ledger.ByPerson {
			first.colors = text.Colors{text.FgRed}
		}
		lines = append(lines, first)
		if n.At != nil {
			lines = append(lines, pair{value: fmt.Sprintf("%s, %s", clock(*n.At), awayFrom(p.s.now(), *n.At))})
		}
		if n.Command != "" {
			lines = append(lines, pair{value: n.Command})
		}
	}
	return lines
}
