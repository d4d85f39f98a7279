package linear

import (
	"fmt"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/settleonce/settleonce/internal/settle"
)

// state is the state of one settlement ID. The zero value has nothing settled.
type state struct {
	settled Payload
	// appliedAt is the commit timestamp in Unix nanoseconds. 0 means that no operation
	// has returned it yet.
	appliedAt int64
	conflicts conflicts
}

// conflicts is the set of payloads that are recorded as conflicts.
type conflicts uint8

func (c conflicts) with(p Payload) conflicts { return c | 1<<p }

func (c conflicts) String() string {
	var letters []string
	for _, p := range Payloads {
		if c&(1<<p) != 0 {
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
type request struct{ delivered Payload }

func (r request) String() string {
	if r.delivered == None {
		return "read"
	}
	return "deliver " + r.delivered.String()
}

// response is the output of an operation. The zero value is an unknown outcome.
type response struct {
	known     bool
	outcome   settle.Outcome // of a delivery
	fields    string         // of a conflict
	appliedAt int64          // of a delivery, in Unix nanoseconds
	read      state          // of a read
}

func (r response) String() string {
	switch {
	case !r.known:
		return "unknown"
	case r.outcome == settle.OutcomeUnknown:
		return r.read.String()
	case r.fields == "":
		return r.outcome.String() + at(r.appliedAt)
	}
	return fmt.Sprintf("%s in %s%s", r.outcome, r.fields, at(r.appliedAt))
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
	outcome, fields, after := s.settle(p)
	if !resp.known {
		return true, after
	}
	ok := resp.outcome == outcome && resp.fields == fields
	return ok && after.agrees(resp.appliedAt), after.withTimestamp(resp.appliedAt)
}

// settle returns the correct answer to a delivery of p, and the state after it.
func (s state) settle(p Payload) (outcome settle.Outcome, fields string, after state) {
	if s.settled == None {
		s.settled = p
		return settle.OutcomeApplied, "", s
	}
	if s.settled == p {
		return settle.OutcomeDuplicate, "", s
	}
	s.conflicts = s.conflicts.with(p)
	return settle.OutcomeConflict, p.differing(s.settled), s
}

// read returns whether a read can return resp, and the state after it.
func (s state) read(resp response) (bool, state) {
	if !resp.known {
		return true, s
	}
	if s.settled == None {
		return resp.read == state{}, s
	}
	ok := resp.read.settled == s.settled && resp.read.conflicts == s.conflicts
	return ok && s.agrees(resp.read.appliedAt), s.withTimestamp(resp.read.appliedAt)
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
	if s == (state{}) {
		return "nothing settled"
	}
	return fmt.Sprintf("%s settled%s, recorded conflicts: %s", s.settled, at(s.appliedAt), s.conflicts)
}

// at formats a commit timestamp; 0 gives an empty text.
func at(nanoseconds int64) string {
	if nanoseconds == 0 {
		return ""
	}
	return " at " + time.Unix(0, nanoseconds).UTC().Format("15:04:05.000000")
}
