package ledger

import (
	"fmt"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// Who does what comes next.
const (
	// ByNobody: nothing comes.
	ByNobody = "nobody"
	// ByReconciler: the function does it by itself.
	ByReconciler = "reconciler"
	// ByPerson: it waits until a person does it.
	ByPerson = "person"
)

// Next is something that happens to a settlement next.
type Next struct {
	By string `json:"by"`
	// What says it in words.
	What string `json:"what"`
	// At is when; nil: at no time of its own.
	At *time.Time `json:"at"`
	// Command is what a person runs, with words in capitals to be filled in and
	// alternatives between bars; empty: nothing.
	Command string `json:"command,omitzero"`
}

// next says what happens next to a settlement, whose instruction is in; nil: it
// has none.
func next(s Settlement, in *transfer.Instruction) []Next {
	id := s.Movement.SettlementID
	var all []Next
	if !s.Movement.Intact {
		all = append(all, Next{
			By: ByPerson, What: "the movement does not hash to its own payload hash: somebody has changed the ledger by hand, or a newer version has written it",
			Command: "settlectl verify",
		})
	}
	if in != nil && in.State == transfer.StateManual {
		all = append(all, Next{
			By: ByPerson, What: "two people decide what became of the transfer: ask the bank",
			Command: "settlectl decide " + id + " --confirmed|--rejected|--resend-new-key --by WHO --second WHO --note HOW",
		})
	}
	if open := s.openConflicts(); len(open) > 0 {
		command := "settlectl resolve conflict " + id
		if len(s.Conflicts) > 1 || s.MoreConflicts { // closed ones count
			command += " --hash " + beginning(open[0].PayloadHash)
		}
		all = append(all, Next{By: ByPerson, What: openConflictWords(len(open), s.MoreConflicts), Command: command + " --by WHO --note WHAT"})
	}
	if in != nil {
		if n, comes := nextAtTheBank(*in, s.Events, s.ReadAt); comes {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		all = append(all, Next{By: ByNobody, What: "nothing: final"})
	}
	return all
}

func (s Settlement) openConflicts() (open []Conflict) {
	for _, c := range s.Conflicts {
		if c.ResolvedAt == nil && c.ResolvedBy == nil {
			open = append(open, c)
		}
	}
	return open
}

// beginning is as much of a payload hash as tells it from others: its version and
// 12 digits.
func beginning(hash string) string { return hash[:min(len(hash), len("v1:")+12)] }

func openConflictWords(open int, more bool) string {
	words := fmt.Sprintf("a person looks into %d open conflicts and closes them", open)
	if open == 1 {
		words = "a person looks into the open conflict and closes it"
	}
	if more {
		words += "; there are more than are shown"
	}
	return words
}

// nextAtTheBank is what the next step of the instruction does.
func nextAtTheBank(in transfer.Instruction, history []Event, now time.Time) (n Next, comes bool) {
	plan, at := in.Next()
	switch plan {
	case transfer.PlanNothing:
		return Next{}, false
	case transfer.PlanSend:
		n.What = "the transfer is sent to the bank"
		if in.Sends > 0 {
			n.What = "the transfer is sent again, with the same key and bytes"
		}
	case transfer.PlanAsk:
		n.What = askWords(in, history)
	}
	if now.Before(in.LeaseUntil) {
		n.What = "a step is at work; if it dies, " + n.What
	}
	n.By, n.At = ByReconciler, &at
	return n, true
}

func askWords(in transfer.Instruction, history []Event) string {
	switch in.State {
	case transfer.StateConfirmed:
		return "final; once a day the bank is asked whether the money came back, until " + in.WatchedUntil().UTC().Format(time.DateOnly)
	case transfer.StateRejected:
		return "final; once a day the bank is asked whether it executed it after all, until " + in.WatchedUntil().UTC().Format(time.DateOnly)
	case transfer.StateAccepted:
		return "the bank, which has the transfer, is asked whether it is final"
	case transfer.StateUncertain:
		if foundTooEarly(in, history) {
			return "the bank is asked again what became of the transfer; not found came too early to count: the send could still arrive, or not be shown yet"
		}
	case transfer.StateReturned, transfer.StateManual, transfer.StateNone:
	}
	return "the bank is asked again what became of the transfer"
}

// foundTooEarly reports whether the latest that happened is that the bank did not
// know the transfer, and that does not count.
func foundTooEarly(in transfer.Instruction, history []Event) bool {
	if len(history) == 0 || !in.NotFoundSince.IsZero() {
		return false
	}
	last := history[len(history)-1]
	return last.Cause == transfer.CauseStatus && last.Detail != nil && strings.HasPrefix(*last.Detail, transfer.StatusNotFound.String())
}
