package linear

import (
	"fmt"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/settleonce/settleonce/internal/settle"
)

// state is the state of one settlement ID, or of one message that is no payout. The zero
// value has nothing stored.
type state struct {
	settled Payload
	// appliedAt is the commit timestamp in Unix nanoseconds. 0 means that no operation
	// has returned it yet.
	appliedAt int64
	conflicts [C + 1]record // by payload
	kept      record        // in quarantine
}

// record is the state of a row that is inserted once: its commit timestamp in Unix
// nanoseconds, or one of the constants.
type record int64

const (
	absent  record = 0
	unread  record = -1 // stored, and no read has returned the timestamp yet
	doubled record = -2 // two rows were read
)

// agrees reports whether a read can return the row.
func (r record) agrees(read record) bool {
	return read != doubled && (r == absent) == (read == absent) && (r == unread || r == read)
}

// stored is the state of the row after it was inserted or found.
func (r record) stored() record {
	if r == absent {
		return unread
	}
	return r
}

// recorded lists the payloads of the recorded conflicts.
func (s state) recorded() string {
	var letters []string
	for _, p := range Payloads {
		if s.conflicts[p] != absent {
			letters = append(letters, p.String())
		}
	}
	if letters == nil {
		return "none"
	}
	return strings.Join(letters, ", ")
}

// request is the input of an operation: a delivery of a payload; with None, a read of
// the database.
type request struct {
	delivered   Payload
	redelivered bool
}

func (r request) String() string {
	switch {
	case r.delivered == None:
		return "read"
	case r.redelivered:
		return "redeliver " + r.delivered.String()
	}
	return "deliver " + r.delivered.String()
}

// response is the output of an operation. The zero value is an unknown outcome.
type response struct {
	answered  bool
	outcome   settle.Outcome // of a delivery
	known     bool           // the finding was recorded before
	doubtful  bool           // known may be wrong
	fields    string         // of a conflict
	appliedAt int64          // of a delivery, in Unix nanoseconds
	read      state          // of a read
}

func (r response) String() string {
	if !r.answered {
		return "unknown"
	}
	if r.outcome == settle.OutcomeUnknown {
		return r.read.String()
	}
	text := r.outcome.String()
	if r.known {
		text = "known " + text
	}
	if r.fields != "" {
		text += " in " + r.fields
	}
	return text + at(r.appliedAt)
}

// model is the sequential model of one settlement ID, the table in the package comment.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, in, out any) (bool, any) {
		s, req, resp := before.(state), in.(request), out.(response) //nolint:forcetypeassert // forPorcupine and Init set these types
		if req.delivered == None {
			return s.read(resp)
		}
		return s.deliver(req.delivered, resp)
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%s: %s", in, out) },
	DescribeState:     func(s any) string { return fmt.Sprint(s) },
}

// deliver delivers p. It returns whether resp is a possible answer, and the state after it.
func (s state) deliver(p Payload, resp response) (bool, state) {
	correct, after := s.settle(p)
	if !resp.answered {
		return true, after
	}
	ok := resp.outcome == correct.outcome && resp.fields == correct.fields && (resp.known == correct.known || resp.doubtful)
	if p == Malformed {
		return ok && resp.appliedAt == 0, after
	}
	return ok && after.agrees(resp.appliedAt), after.withTimestamp(resp.appliedAt)
}

// settle returns the correct answer to a delivery of p, without a timestamp, and the
// state after it.
func (s state) settle(p Payload) (correct response, after state) {
	switch {
	case p == Malformed:
		correct.outcome, correct.known = settle.OutcomeQuarantined, s.kept != absent
		s.kept = s.kept.stored()
	case s.settled == None:
		correct.outcome, s.settled = settle.OutcomeApplied, p
	case s.settled == p:
		correct.outcome = settle.OutcomeDuplicate
	default:
		correct.outcome, correct.fields, correct.known = settle.OutcomeConflict, p.differing(s.settled), s.conflicts[p] != absent
		s.conflicts[p] = s.conflicts[p].stored()
	}
	return correct, s
}

// read returns whether a read can return resp, and the state after it.
func (s state) read(resp response) (bool, state) {
	if !resp.answered {
		return true, s
	}
	ok := s.kept.agrees(resp.read.kept) && resp.read.settled == s.settled
	for p, row := range s.conflicts {
		ok = ok && row.agrees(resp.read.conflicts[p])
	}
	if s.settled == None {
		return ok && resp.read.appliedAt == 0, resp.read
	}
	return ok && s.agrees(resp.read.appliedAt), resp.read
}

// agrees reports whether the settlement can have the commit timestamp.
func (s state) agrees(appliedAt int64) bool {
	return appliedAt != 0 && (s.appliedAt == 0 || s.appliedAt == appliedAt)
}

func (s state) withTimestamp(appliedAt int64) state {
	s.appliedAt = appliedAt
	return s
}

func (s state) String() string {
	switch {
	case s == (state{}):
		return "nothing stored"
	case s.settled == None:
		return "in quarantine" + at(int64(s.kept))
	}
	return fmt.Sprintf("%s settled%s, recorded conflicts: %s", s.settled, at(s.appliedAt), s.recorded())
}

// at formats a commit timestamp; an unknown one gives an empty text.
func at(nanoseconds int64) string {
	if nanoseconds <= 0 {
		return ""
	}
	return " at " + time.Unix(0, nanoseconds).UTC().Format("15:04:05.000000")
}
