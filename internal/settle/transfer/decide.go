package transfer

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Decision is people's decision about a manual instruction. The zero value is none.
type Decision string

const (
	// DecideConfirmed means that the bank executed the transfer once, as instructed.
	DecideConfirmed Decision = "confirmed"
	// DecideRejected means that the bank never executes the transfer, or has sent it back.
	// The movement is reversed.
	DecideRejected Decision = "rejected"
	// DecideResend sends the transfer again under a new idempotency key. The superseded
	// key stays watched.
	DecideResend Decision = "resend-new-key"
)

// CauseDecided is the cause of the event that records a decision.
const CauseDecided = "decided"

const (
	// maxPersonBytes bounds the name of a person, maxNoteBytes the note.
	maxPersonBytes = 128
	maxNoteBytes   = 1000
	// maxSuperseded bounds the superseded keys of an instruction, because every status
	// check asks about each of them.
	maxSuperseded = 3
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
	// Said is the result of [AskAllStatuses] just before the decision, Took its time.
	Said Statuses
	Took Interval
	// WithoutBank allows a decision while the bank's status is unknown. Known results in
	// Said still count.
	WithoutBank bool
	// Remark is a further text for the event; usually empty.
	Remark string
	// Body is the request body under the new key; for DecideResend only.
	Body []byte
}

// Refused is the error of a decision that is not made.
type Refused struct {
	// Why is the reason, Do the next step for people.
	Why, Do string
}

// Error returns both in one line.
func (o *Refused) Error() string { return o.Why + "; " + o.Do }

// NextKey is the idempotency key that [DecideResend] would give the instruction.
func (in Instruction) NextKey() uuid.UUID {
	return KeyOfGeneration(in.SettlementID, len(in.Superseded)+2)
}

// Decide returns the change of a ruling, or a *[Refused]. A store can run Decide again
// after its own commit; Decide then recognises the ruling and writes nothing.
func (p Policy) Decide(in Instruction, r Ruling) (Change, error) {
	if in.Owner == r.ID && in.Version == r.Version+1 {
		return Change{Next: in}, nil
	}
	if refused := p.refuse(in, r); refused != nil {
		return Change{}, refused
	}
	change, err := p.apply(in, r.observation(), CauseDecided, string(r.Decision), r.Said.Current.Answer, r.Took)
	if err != nil {
		return Change{}, err
	}
	change.Reverse = change.Reverse && !r.Reversed
	change.Level = max(change.Level, slog.LevelWarn)
	change.Event.Detail = joinDetail(r.Proof(), r.evidence(), r.Remark)
	next := &change.Next
	next.Owner = r.ID
	next.NextCheckAt = r.Took.Ended.Add(jitter(24*time.Hour, *next))
	if r.Decision == DecideConfirmed && r.Said.needsReview() {
		// Otherwise the daily check would make the instruction manual again.
		next.NextCheckAt = time.Time{}
	}
	if r.Decision == DecideResend {
		was := in
		change.Supersedes = &was
		next.supersede(in, r)
	}
	return change, nil
}

// supersede gives the instruction its next key and resets it to never sent.
func (in *Instruction) supersede(was Instruction, r Ruling) {
	in.Transfer.Key, in.Body = was.NextKey(), r.Body
	in.Superseded = append(was.Superseded[:len(was.Superseded):len(was.Superseded)], SupersededKey{Key: was.Transfer.Key, At: r.Took.Ended})
	in.Sends, in.SendDeferred, in.Checks = 0, false, 0
	in.FirstSentAt, in.LastSentAt, in.ResendNotAfter = time.Time{}, time.Time{}, time.Time{}
	in.NotFoundSince, in.AcceptedAt = time.Time{}, time.Time{}
	in.TransferID, in.BankStatus = "", ""
	in.NextCheckAt = r.Took.Ended
}

func (r Ruling) observation() observation {
	switch r.Decision {
	case DecideConfirmed:
		return sawDecidedConfirmed
	case DecideRejected:
		if r.Said.Current.Reading == StatusReturned && !r.Reversed {
			return sawDecidedReturned
		}
		return sawDecidedRejected
	case DecideResend:
		return sawDecidedResend
	}
	return sawUnknown // has no transition from manual
}

// Proof is the beginning of the event's detail: the decision, both people and the note.
// It identifies the ruling in the history.
func (r Ruling) Proof() string {
	return fmt.Sprintf("%s, decided by %q and %q: %q", r.Decision, r.By, r.Second, r.Note)
}

// evidence describes the bank's statuses.
func (r Ruling) evidence() string {
	text := "the bank's status: " + r.Said.Current.Reading.String()
	for i, old := range r.Said.Superseded {
		text += fmt.Sprintf("; of key %d: %s", i+1, old.Reading)
	}
	for i, later := range r.Said.Later {
		if later.Reading != StatusNotFound && later.Reading != StatusUnknown {
			text += fmt.Sprintf("; of key %d, unused by the database's rows: %s", len(r.Said.Superseded)+2+i, later.Reading)
		}
	}
	return text
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
	case !r.Said.known(in) && (!r.WithoutBank || r.Decision == DecideResend):
		return &Refused{"the bank's status is unknown: " + r.Said.Unknown(in), "ask again, and decide when the bank answers"}
	}
	switch r.Decision {
	case DecideConfirmed:
		return againstConfirmed(r)
	case DecideRejected:
		return p.againstRejected(in, r)
	case DecideResend:
		return p.againstResend(in, r)
	}
	return nil
}

// validate refuses an incomplete ruling.
func (r Ruling) validate() *Refused {
	switch {
	case r.Decision != DecideConfirmed && r.Decision != DecideRejected && r.Decision != DecideResend:
		return &Refused{fmt.Sprintf("unknown decision %q", string(r.Decision)), "decide confirmed, rejected or resend-new-key"}
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
	current := r.Said.Current.Reading
	switch {
	case r.Reversed:
		return &Refused{
			"the movement is reversed, and a reversal is never undone",
			"book the difference in another system; decide rejected when the bank has sent the money back",
		}
	case r.Said.count(StatusConfirmed) > 1:
		return &Refused{
			"the bank's status is executed for more than one key: it paid more than once",
			"ask the bank to send back all but one, and wait for its status",
		}
	case r.Said.count(StatusConfirmed)+r.Said.count(StatusPending) > 1:
		return &Refused{"the bank's status is pending for another key: it can still pay twice", "wait for the bank's final status"}
	case r.Said.any(StatusConfirmed):
		return nil
	case current == StatusRejected || current == StatusReturned:
		return &Refused{
			"the bank's status is " + current.String(),
			"decide rejected, or ask the bank to correct its status",
		}
	}
	return nil
}

func (p Policy) againstRejected(in Instruction, r Ruling) *Refused {
	if refused := againstLaterKeys(in, r); refused != nil {
		return refused
	}
	switch {
	case r.Said.any(StatusConfirmed):
		return &Refused{"the bank's status is executed", "decide confirmed, or ask the bank to send it back and wait for its status"}
	case r.Said.any(StatusManual):
		return &Refused{
			"the bank has another transfer under the key, or more than one: money may have moved",
			"ask the bank to correct its records first",
		}
	case r.Said.Current.Reading == StatusPending:
		return &Refused{
			"the bank's status is pending: it can still execute the transfer",
			"ask the bank to reject it, and decide when its status is rejected",
		}
	case r.Said.supersededAlive() != "":
		return &Refused{"the bank has a transfer under a superseded key: " + r.Said.supersededAlive(), "wait for the bank's final status"}
	case !p.sendIsOver(in, r.Took.Began):
		return &Refused{"the latest send may be in progress", "decide after " + in.LastSentAt.Add(p.SendTimeout+p.lag()).Format(time.RFC3339)}
	}
	return nil
}

// againstResend needs proof that the bank never executes a transfer under any earlier
// key. While the bank may remember a key, a resend under the same key is safe and one
// under a new key can pay twice.
func (p Policy) againstResend(in Instruction, r Ruling) *Refused {
	const instead = "the producer publishes it under a new settlement ID"
	switch {
	case r.Reversed || !in.FinalAt.IsZero():
		return &Refused{"its outcome was final once: its receipt may expire, and its movement may be reversed", "if it still has to be paid, " + instead}
	case len(in.Superseded) >= maxSuperseded:
		return &Refused{fmt.Sprintf("the instruction has had %d keys", 1+len(in.Superseded)), "decide rejected when the bank confirms that it will never execute it; then " + instead}
	case len(r.Body) == 0:
		return &Refused{"the request body under the new key is missing", "use the function's bank configuration"}
	}
	if refused := againstLaterKeys(in, r); refused != nil {
		return refused
	}
	for i, said := range r.Said.Superseded {
		if said.Reading != StatusNotFound && said.Reading != StatusRejected {
			return &Refused{fmt.Sprintf("the bank's status of key %d is %s", i+1, said.Reading), finalFirst}
		}
	}
	return p.againstNewKey(in, r)
}

const finalFirst = "decide confirmed or rejected when the bank has a final status"

// againstLaterKeys refuses while the bank may know a key that the row never used: the
// database may have been restored to a time before its use.
func againstLaterKeys(in Instruction, r Ruling) *Refused {
	for i := range in.LaterKeys() {
		n, reading := len(in.Superseded)+2+i, StatusUnknown
		if i < len(r.Said.Later) {
			reading = r.Said.Later[i].Reading
		}
		switch {
		case reading == StatusNotFound:
		case r.Decision == DecideRejected && (reading == StatusRejected || reading == StatusUnknown && r.WithoutBank):
		case reading == StatusUnknown:
			return &Refused{fmt.Sprintf("the bank's status is unknown: no clear answer about key %d, which may have been used before a restore", n), "ask again, and decide when the bank answers"}
		default:
			return &Refused{
				fmt.Sprintf("the bank's status of key %d is %s, but the row never used it: the database was restored to an earlier time", n, reading),
				"follow the runbook's page about restores; decide confirmed when the bank has executed one key and cannot execute another",
			}
		}
	}
	return nil
}

func (p Policy) againstNewKey(in Instruction, r Ruling) *Refused {
	forgotten := in.LastSentAt.Add(max(p.KeyLifetime, in.keyLifetime()) + p.lag())
	switch reading := r.Said.Current.Reading; {
	case reading == StatusRejected:
		return nil
	case reading != StatusNotFound:
		return &Refused{"the bank's status is " + reading.String(), finalFirst}
	case !in.AcceptedAt.IsZero():
		return &Refused{"the bank had accepted the transfer: not found does not prove that it will not execute it", "ask the bank; decide resend-new-key only when its status is rejected"}
	case in.Sends > 0 && r.Took.Began.Before(forgotten):
		return &Refused{"the bank may still remember the key, and execute under it", "decide after " + forgotten.Format(time.RFC3339)}
	}
	return nil
}
