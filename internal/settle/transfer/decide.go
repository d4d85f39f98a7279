package transfer

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Decision is people's decision about a manual instruction. The zero value is none.
type Decision string

const (
	// DecideConfirmed means that the bank executed the transfer once, as instructed.
	DecideConfirmed Decision = "confirmed"
	// DecideRejected means that the bank never executes the transfer, or has sent it back.
	// The movement is reversed.
	DecideRejected Decision = "rejected"
)

// CauseDecided is the cause of the event that records a decision.
const CauseDecided = "decided"

const (
	// maxPersonBytes bounds the name of a person, maxNoteBytes the note.
	maxPersonBytes = 128
	maxNoteBytes   = 1000
)

// Ruling is a decision of two people about one instruction, with its evidence.
type Ruling struct {
	// ID is unique to the ruling. By it the ruling recognises its own commit.
	ID       string
	Decision Decision
	// By and Second are the two people.
	By, Second string
	// Note is the people's proof. It holds no payload.
	Note string
	// Version is the version of the instruction that they have seen.
	Version int64
	// Reversed means that the movement was reversed at that version.
	Reversed bool
	// Said is the bank's status just before the decision, Took the time of the request.
	Said StatusResult
	Took Interval
	// WithoutBank allows a decision while the bank's status is unknown. A known one still
	// counts.
	WithoutBank bool
	// Remark is a further text for the event; usually empty.
	Remark string
}

// Refused is the error of a decision that is not made.
type Refused struct {
	// Why is the reason, Do the next step for people.
	Why, Do string
}

// Error returns both in one line.
func (o *Refused) Error() string { return o.Why + "; " + o.Do }

// Decide returns the change of a ruling, or a *[Refused]. A store can run Decide again
// after its own commit; Decide then recognises the ruling and writes nothing.
func (p Policy) Decide(in Instruction, r Ruling) (Change, error) {
	if in.Owner == r.ID && in.Version == r.Version+1 {
		return Change{Next: in}, nil
	}
	if refused := p.refuse(in, r); refused != nil {
		return Change{}, refused
	}
	change, err := p.apply(in, r.observation(), CauseDecided, string(r.Decision), r.Said.Answer, r.Took)
	if err != nil {
		return Change{}, err
	}
	change.Reverse = change.Reverse && !r.Reversed
	change.Level = max(change.Level, slog.LevelWarn)
	change.Event.Detail = joinDetail(r.Proof(), "the bank's status: "+r.Said.Reading.String(), r.Remark)
	next := &change.Next
	next.Owner = r.ID
	next.NextCheckAt = r.Took.Ended.Add(jitter(24*time.Hour, *next))
	if r.Decision == DecideConfirmed && (r.Said.Reading == StatusManual || r.Said.Reading == StatusAttention) {
		// Otherwise the daily check would make the instruction manual again.
		next.NextCheckAt = time.Time{}
	}
	return change, nil
}

func (r Ruling) observation() observation {
	switch r.Decision {
	case DecideConfirmed:
		return sawDecidedConfirmed
	case DecideRejected:
		if r.Said.Reading == StatusReturned && !r.Reversed {
			return sawDecidedReturned
		}
		return sawDecidedRejected
	}
	return sawUnknown // has no transition from manual
}

// Proof is the beginning of the event's detail: the decision, both people and the note.
// It identifies the ruling in the history.
func (r Ruling) Proof() string {
	return fmt.Sprintf("%s, decided by %q and %q: %q", r.Decision, r.By, r.Second, r.Note)
}

// refuse returns the reason against the ruling; nil for none.
func (p Policy) refuse(in Instruction, r Ruling) *Refused {
	if refused := r.validate(); refused != nil {
		return refused
	}
	if _, ok := p.transition(in, r.observation(), r.Took); !ok {
		return &Refused{
			fmt.Sprintf("the instruction is %s, and people decide only about a manual one", in.State),
			"read its history; the reconciler continues an instruction that is not manual",
		}
	}
	switch {
	case in.Version != r.Version:
		return &Refused{fmt.Sprintf("the instruction has changed: version %d, not %d", in.Version, r.Version), "read it again"}
	case r.Took.Ended.Before(in.LeaseUntil):
		return &Refused{"another step holds the instruction until " + in.LeaseUntil.Format(time.RFC3339), "decide later"}
	case r.Said.Unknown() != "" && !r.WithoutBank:
		return &Refused{"the bank's status is unknown: " + r.Said.Unknown(), "ask again, and decide when the bank answers"}
	}
	switch r.Decision {
	case DecideConfirmed:
		return againstConfirmed(r)
	case DecideRejected:
		return p.againstRejected(in, r)
	}
	return nil
}

// validate refuses an incomplete ruling.
func (r Ruling) validate() *Refused {
	switch {
	case r.Decision != DecideConfirmed && r.Decision != DecideRejected:
		return &Refused{fmt.Sprintf("unknown decision %q", string(r.Decision)), "decide confirmed or rejected"}
	case !ValidName(r.By) || !ValidName(r.Second):
		return &Refused{"a name is missing, too long or has invisible characters", fmt.Sprintf("name two people, each in up to %d bytes", maxPersonBytes)}
	case samePerson(r.By, r.Second):
		return &Refused{fmt.Sprintf("%q and %q are one person", r.By, r.Second), "ask a second person to decide too"}
	case !ValidNote(r.Note):
		return &Refused{"the note is missing, too long or has invisible characters", fmt.Sprintf("write the proof in one line of up to %d bytes", maxNoteBytes)}
	}
	return nil
}

// ValidName reports whether text is valid as a person's name.
func ValidName(person string) bool { return printable(person, maxPersonBytes) }

// ValidNote reports whether text is valid as a note.
func ValidNote(note string) bool { return printable(note, maxNoteBytes) }

// printable refuses invisible characters, because two names must not differ by them.
func printable(text string, most int) bool {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	return strings.TrimSpace(text) != "" && len(text) <= most && utf8.ValidString(text) && !strings.ContainsFunc(text, hidden)
}

func samePerson(a, b string) bool {
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
	return strings.EqualFold(squeeze(a), squeeze(b))
}

func againstConfirmed(r Ruling) *Refused {
	switch {
	case r.Reversed:
		return &Refused{
			"the movement is reversed, and a reversal is never undone",
			"book the difference in another system; decide rejected when the bank has sent the money back",
		}
	case r.Said.Reading == StatusRejected || r.Said.Reading == StatusReturned:
		return &Refused{
			"the bank's status is " + r.Said.Reading.String(),
			"decide rejected, or ask the bank to correct its status",
		}
	}
	return nil
}

func (p Policy) againstRejected(in Instruction, r Ruling) *Refused {
	switch {
	case r.Said.Reading == StatusConfirmed:
		return &Refused{"the bank's status is executed", "decide confirmed, or ask the bank to send it back and wait for its status"}
	case r.Said.Reading == StatusManual:
		return &Refused{
			"the bank has another transfer under the key, or more than one: money may have moved",
			"ask the bank to correct its records first",
		}
	case r.Said.Reading == StatusPending:
		return &Refused{
			"the bank's status is pending: it can still execute the transfer",
			"ask the bank to reject it, and decide when its status is rejected",
		}
	case !p.sendIsOver(in, r.Took.Began):
		return &Refused{"the latest send may be in progress", "decide after " + in.LastSentAt.Add(p.SendTimeout+p.lag()).Format(time.RFC3339)}
	}
	return nil
}
