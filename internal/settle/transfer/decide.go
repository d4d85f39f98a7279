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

// Decision is what people decide about an instruction in state manual. The zero
// value decides nothing.
type Decision string

const (
	// DecideConfirmed says that the bank executed the transfer, once and as it was
	// instructed.
	DecideConfirmed Decision = "confirmed"
	// DecideRejected says that the bank did not execute the transfer and never will,
	// or that it was sent back: the movement is reversed.
	DecideRejected Decision = "rejected"
	// DecideResend says that the transfer is to be sent again under a new
	// idempotency key. The key it had stays watched.
	DecideResend Decision = "resend-new-key"
)

// CauseDecided is the cause of the event that records a decision.
const CauseDecided = "decided"

const (
	// maxPersonBytes bounds the name of a person, maxNoteBytes the proof.
	maxPersonBytes = 128
	maxNoteBytes   = 1000
	// maxSuperseded bounds the keys that an instruction can have had. Each of them
	// is asked about in every step.
	maxSuperseded = 3
)

// Ruling is a decision of two people about one instruction, with what they knew.
type Ruling struct {
	// ID is unique to the ruling: by it the ruling recognises its own commit.
	ID string
	// Decision is what they decided.
	Decision Decision
	// By and Second are the two people.
	By, Second string
	// Note is the proof: how they know. It holds no payload.
	Note string
	// Version is the version of the instruction that they decided about.
	Version int64
	// Reversed says that the movement had its reversal at that version.
	Reversed bool
	// Said is what the bank's status API said just before, and Took when it was
	// asked, by [AskAllStatuses].
	Said Statuses
	Took Interval
	// WithoutBank says that they decide although the bank's status could not be
	// learnt. What was learnt counts all the same.
	WithoutBank bool
	// Remark is what else the event is to say; usually empty.
	Remark string
	// Body is the request body under the new key; for DecideResend alone.
	Body []byte
}

// Refused says why a decision is not made.
type Refused struct {
	// Why says in words what stands against it, Do what to do instead.
	Why, Do string
}

// Error gives both, in one line.
func (o *Refused) Error() string { return o.Why + "; " + o.Do }

// NextKey is the idempotency key that [DecideResend] gives to the instruction.
func (in Instruction) NextKey() uuid.UUID {
	return KeyOfGeneration(in.SettlementID, len(in.Superseded)+2)
}

// Decide works out the change that a ruling makes. A ruling to which there is an
// objection fails with an *[Refused] and changes nothing. A store can run Decide
// again after its own commit: it recognises the ruling and changes nothing more.
func (p Policy) Decide(in Instruction, r Ruling) (Change, error) {
	if in.Owner == r.ID && in.Version == r.Version+1 {
		return Change{Next: in}, nil
	}
	if o := p.objection(in, r); o != nil {
		return Change{}, o
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
		// What they decided in spite of would be found again every day.
		next.NextCheckAt = time.Time{}
	}
	if r.Decision == DecideResend {
		was := in
		change.Supersedes = &was
		next.supersede(in, r)
	}
	return change, nil
}

// supersede makes next an instruction that was never sent, under its next key.
func (in *Instruction) supersede(was Instruction, r Ruling) {
	in.Transfer.Key, in.Body = was.NextKey(), r.Body
	in.Superseded = append(was.Superseded[:len(was.Superseded):len(was.Superseded)], SupersededKey{Key: was.Transfer.Key, At: r.Took.Ended})
	in.Sends, in.SendDeferred, in.Checks = 0, false, 0
	in.FirstSentAt, in.LastSentAt, in.ResendNotAfter = time.Time{}, time.Time{}, time.Time{}
	in.NotFoundSince, in.AcceptedAt = time.Time{}, time.Time{}
	in.TransferID, in.BankStatus = "", ""
	in.NextCheckAt = r.Took.Ended
}

// observation is what the table has a row for.
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
	return sawUnknown // which the state manual has no row for
}

// Proof is how the event of the ruling begins: the decision, both people and the
// note. It tells whether a ruling that was made is this one.
func (r Ruling) Proof() string {
	return fmt.Sprintf("%s, decided by %q and %q: %q", r.Decision, r.By, r.Second, r.Note)
}

// evidence says in words what the bank said.
func (r Ruling) evidence() string {
	text := "the bank's status: " + r.Said.Current.Reading.String()
	if r.Said.Current.Reading == StatusUnknown && r.WithoutBank {
		text = "the bank's status could not be learnt"
	}
	for i, old := range r.Said.Superseded {
		text += fmt.Sprintf("; of key %d: %s", i+1, old.Reading)
	}
	for i, later := range r.Said.Later {
		if later.Reading != StatusNotFound && later.Reading != StatusUnknown {
			text += fmt.Sprintf("; of key %d, which the database does not know to be used: %s", len(r.Said.Superseded)+2+i, later.Reading)
		}
	}
	return text
}

// objection returns what stands against the ruling; nil for nothing.
func (p Policy) objection(in Instruction, r Ruling) *Refused {
	if o := r.formal(); o != nil {
		return o
	}
	if _, ok := p.transition(in, r.observation(), r.Took); !ok {
		return &Refused{
			fmt.Sprintf("the instruction is %s, and people decide only about one that is manual", in.State),
			"look at its history; what is not manual goes on by itself",
		}
	}
	switch {
	case in.Version != r.Version:
		return &Refused{fmt.Sprintf("the instruction was changed meanwhile: version %d, not %d", in.Version, r.Version), "look at it again"}
	case r.Took.Ended.Before(in.LeaseUntil):
		return &Refused{"another step is working on the instruction until " + in.LeaseUntil.Format(time.RFC3339), "decide after that"}
	case !r.Said.known(in) && (!r.WithoutBank || r.Decision == DecideResend):
		return &Refused{"the bank's status could not be learnt: " + r.Said.Unknown(in), "ask again, and decide when it answers"}
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

// formal returns what is wrong with the ruling whatever it is about.
func (r Ruling) formal() *Refused {
	switch {
	case r.Decision != DecideConfirmed && r.Decision != DecideRejected && r.Decision != DecideResend:
		return &Refused{fmt.Sprintf("%q is no decision", string(r.Decision)), "decide confirmed, rejected or resend-new-key"}
	case !ValidName(r.By) || !ValidName(r.Second):
		return &Refused{"a name is missing, too long or has characters that cannot be seen", fmt.Sprintf("name two people, each in up to %d bytes", maxPersonBytes)}
	case samePerson(r.By, r.Second):
		return &Refused{fmt.Sprintf("%q and %q are one person", r.By, r.Second), "have somebody else look at it too"}
	case !ValidNote(r.Note):
		return &Refused{"the note is missing, too long or has characters that cannot be seen", fmt.Sprintf("say how you know, in up to %d bytes and one line", maxNoteBytes)}
	}
	return nil
}

// ValidName reports whether text can stand for a person in a record.
func ValidName(person string) bool { return printable(person, maxPersonBytes) }

// ValidNote reports whether text can be a record's note.
func ValidNote(note string) bool { return printable(note, maxNoteBytes) }

// printable allows nothing that hides: two names must not differ by what nobody
// sees.
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
			"book the difference outside; when the bank has sent the money back, decide rejected",
		}
	case r.Said.count(StatusConfirmed) > 1:
		return &Refused{
			"the bank's status says executed of more than one key: it was paid more than once",
			"have the bank send back all but one, and wait until its status says so",
		}
	case r.Said.count(StatusConfirmed)+r.Said.count(StatusPending) > 1:
		return &Refused{"the bank's status says pending of another key: it can still be paid twice", "wait until the bank says what became of it"}
	case r.Said.any(StatusConfirmed):
		return nil
	case current == StatusRejected || current == StatusReturned:
		return &Refused{
			"the bank's status says " + current.String(),
			"decide rejected, or have the bank correct its status first",
		}
	}
	return nil
}

func (p Policy) againstRejected(in Instruction, r Ruling) *Refused {
	if o := againstLaterKeys(in, r); o != nil {
		return o
	}
	switch {
	case r.Said.any(StatusConfirmed):
		return &Refused{"the bank's status says executed", "decide confirmed, or have the bank send it back and wait until its status says so"}
	case r.Said.any(StatusManual):
		return &Refused{
			"the bank has another transfer under the key, or more than one: money may have moved",
			"have the bank put its records right first",
		}
	case r.Said.Current.Reading == StatusPending:
		return &Refused{
			"the bank's status says pending: it can still execute the transfer",
			"have the bank reject it, and decide when its status says so",
		}
	case r.Said.supersededAlive() != "":
		return &Refused{"the bank has a transfer under a superseded key: " + r.Said.supersededAlive(), "wait until the bank says what became of it"}
	case !p.sendIsOver(in, r.Took.Began):
		return &Refused{"the latest send may still be under way", "decide after " + in.LastSentAt.Add(p.SendTimeout+p.lag()).Format(time.RFC3339)}
	}
	return nil
}

// againstResend wants proof that nothing will come of any key that there was. A
// key that the bank may still remember needs no successor: the same key again is
// harmless, and a new one is not.
func (p Policy) againstResend(in Instruction, r Ruling) *Refused {
	const instead = "the producer publishes it under a new settlement ID"
	switch {
	case r.Reversed || !in.FinalAt.IsZero():
		return &Refused{"its outcome was final once: its receipt may expire, and its movement may be reversed", "if it is still to be paid, " + instead}
	case len(in.Superseded) >= maxSuperseded:
		return &Refused{fmt.Sprintf("it has had %d keys", 1+len(in.Superseded)), "decide rejected when the bank says that it never will be executed; then " + instead}
	case len(r.Body) == 0:
		return &Refused{"there is no request body under the new key", "configure the bank as the function has it"}
	}
	if o := againstLaterKeys(in, r); o != nil {
		return o
	}
	for i, said := range r.Said.Superseded {
		if said.Reading != StatusNotFound && said.Reading != StatusRejected {
			return &Refused{fmt.Sprintf("the bank's status of key %d says %s", i+1, said.Reading), "decide confirmed or rejected when the bank says what became of it"}
		}
	}
	return p.againstANewKey(in, r)
}

// againstLaterKeys objects where the bank knows a key that the row says was never
// used: the database was restored to a time before it was.
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
			return &Refused{fmt.Sprintf("the bank's status could not be learnt: no clear answer about key %d, which it may have from before a restore", n), "ask again, and decide when it answers"}
		default:
			return &Refused{
				fmt.Sprintf("the bank's status of key %d says %s, and the database does not know that it was used: it was restored to an earlier time", n, reading),
				"follow what the runbook says of a restore; decide confirmed when the bank has executed one key and no other can be",
			}
		}
	}
	return nil
}

func (p Policy) againstANewKey(in Instruction, r Ruling) *Refused {
	forgotten := in.LastSentAt.Add(max(p.KeyLifetime, in.keyLifetime()) + p.lag())
	switch reading := r.Said.Current.Reading; {
	case reading == StatusRejected:
		return nil // dead, and the bank says so
	case reading != StatusNotFound:
		return &Refused{"the bank's status says " + reading.String(), "decide confirmed or rejected when the bank says what became of it"}
	case !in.AcceptedAt.IsZero():
		return &Refused{"the bank had accepted the transfer: not found does not say that it is dead", "ask the bank; decide resend-new-key only when its status says rejected"}
	case in.Sends > 0 && r.Took.Began.Before(forgotten):
		return &Refused{"the bank may still remember the key, and execute under it", "decide after " + forgotten.Format(time.RFC3339)}
	}
	return nil
}
