package ledger

import (
	"fmt"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

// Actors of a next action.
const (
	// ByNobody: there is no next action.
	ByNobody = "nobody"
	// ByReconciler: the function acts without help.
	ByReconciler = "reconciler"
	// ByPerson: the settlement waits until a person acts.
	ByPerson = "person"
)

// Next is a next action on a settlement.
type Next struct {
	By string `json:"by"`
	// Text describes the action.
	Text string `json:"what"`
	// At is the time of the action; nil: it has none.
	At *time.Time `json:"at"`
	// Command is for a person to run: words in capitals stand for values, bars
	// separate alternatives. Empty: none.
	Command string `json:"command,omitzero"`
}

func (s Settlement) next() []Next {
	var (
		id  = s.Movement.SettlementID
		in  = s.Instruction
		all []Next
	)
	if !s.Intact {
		all = append(all, Next{
			By: ByPerson, Text: "the movement does not hash to its payload hash: it was changed by hand, or a newer version has written it",
			Command: "settlectl verify",
		})
	}
	if in != nil && in.State == transfer.StateManual {
		all = append(all, Next{
			By: ByPerson, Text: "ask the bank about the transfer; two people decide",
			Command: "settlectl decide " + id + " --confirmed|--rejected --by WHO --second WHO --note HOW",
		})
	}
	if open := s.openConflicts(); len(open) > 0 {
		command := "settlectl resolve conflict " + id
		if len(s.Conflicts) > 1 || s.MoreConflicts { // closed ones count
			command += " --hash " + hashPrefix(open[0].PayloadHash)
		}
		all = append(all, Next{By: ByPerson, Text: openConflictText(len(open), s.MoreConflicts), Command: command + " --by WHO --note FINDING"})
	}
	if in != nil {
		if n, due := nextStep(*in, s.Events, s.ReadAt); due {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		all = append(all, Next{By: ByNobody, Text: "nothing: final"})
	}
	return all
}

func (s Settlement) openConflicts() (open []Conflict) {
	for _, c := range s.Conflicts {
		if c.ResolvedAt == nil && c.ResolvedBy == "" {
			open = append(open, c)
		}
	}
	return open
}

// hashPrefix is enough of a payload hash to tell it from others: its version and 12
// digits.
func hashPrefix(hash payout.Hash) string { return string(hash[:min(len(hash), len("v1:")+12)]) }

func openConflictText(open int, more bool) string {
	text := fmt.Sprintf("investigate and close %d open conflicts", open)
	if open == 1 {
		text = "investigate and close the open conflict"
	}
	if more {
		text += "; more conflicts exist than are shown"
	}
	return text
}

// nextStep is the next step of an instruction.
func nextStep(in transfer.Instruction, history []spannerstore.EventRow, now time.Time) (n Next, due bool) {
	plan, at := in.Next()
	switch plan {
	case transfer.PlanNothing:
		return Next{}, false
	case transfer.PlanSend:
		n.Text = "send the transfer to the bank"
		if in.Sends > 0 {
			n.Text = "send the transfer again, with the same key and bytes"
		}
	case transfer.PlanAsk:
		n.Text = askText(in, history)
	}
	if now.Before(in.LeaseUntil) {
		n.Text = "a step is running; if it crashes: " + n.Text
	}
	n.By, n.At = ByReconciler, &at
	return n, true
}

func askText(in transfer.Instruction, history []spannerstore.EventRow) string {
	switch in.State {
	case transfer.StateConfirmed:
		return "final; the daily check asks the bank whether the money came back, until " + in.WatchedUntil().UTC().Format(time.DateOnly)
	case transfer.StateRejected:
		return "final; the daily check asks the bank whether it executed the transfer after all, until " + in.WatchedUntil().UTC().Format(time.DateOnly)
	case transfer.StateAccepted:
		return "ask the bank, which has the transfer, whether it is final"
	case transfer.StateUncertain:
		if foundTooEarly(in, history) {
			return "ask the bank again for the transfer's status; its not-found came too early to count: the send could still arrive, or not be visible yet"
		}
	case transfer.StateReturned, transfer.StateManual, transfer.StateNone:
	}
	return "ask the bank again for the transfer's status"
}

// foundTooEarly reports whether the latest event is a not-found that does not count.
func foundTooEarly(in transfer.Instruction, history []spannerstore.EventRow) bool {
	if len(history) == 0 || !in.NotFoundSince.IsZero() {
		return false
	}
	last := history[len(history)-1].Event
	return last.Cause == transfer.CauseStatus && strings.HasPrefix(last.Detail, transfer.StatusNotFound.String())
}
