package linear

import (
	"fmt"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/settleonce/settleonce/internal/settle"
)

// state is what is known under one settlement ID. The zero value is an ID that
// nothing was delivered under.
type state struct {
	settled Payload
	// appliedAt is the commit timestamp in Unix nanoseconds; 0 while no answer has
	// told it.
	appliedAt int64
	conflicts conflicts
}

// conflicts is a set of payloads that are on record as conflicts.
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

// request is the input of an operation: a delivery of a payload, or, with None,
// a look at the database.
type request struct{ delivered Payload }

// response is the output of an operation. The zero value is an outcome that
// nobody knows.
type response struct {
	known     bool
	outcome   settle.Outcome // of a delivery
	fields    string         // of a conflict
	seen      state          // of a look
	appliedAt int64
}

// model is the sequential model of one settlement ID. The table in the package
// comment says the same.
var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, in, out any) (bool, any) {
		s, req, resp := before.(state), in.(request), out.(response) //nolint:forcetypeassert // porcupine hands back what it was given
		if req.delivered == None {
			return s.look(resp)
		}
		return s.deliver(req.delivered, resp)
	},
	DescribeOperation: func(in, out any) string { return describe(in.(request), out.(response)) }, //nolint:forcetypeassert // as above
	DescribeState:     func(s any) string { return s.(state).String() },                           //nolint:forcetypeassert // as above
}

// deliver delivers p. It returns whether resp can be the answer, and the state
// after it.
func (s state) deliver(p Payload, resp response) (bool, state) {
	outcome, fields, after := s.settle(p)
	if !resp.known {
		return true, after
	}
	ok := resp.outcome == outcome && resp.fields == fields
	return ok && after.agree(resp.appliedAt), after.told(resp.appliedAt)
}

// settle returns what a delivery of p has to be answered, and the state after it.
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

// look looks at the database.
func (s state) look(resp response) (bool, state) {
	seen := resp.seen
	if !resp.known {
		return true, s
	}
	if s.settled == None {
		return seen == state{}, s
	}
	ok := seen.settled == s.settled && seen.conflicts == s.conflicts
	return ok && s.agree(seen.appliedAt), s.told(seen.appliedAt)
}

// agree reports whether the settlement can have the commit timestamp.
func (s state) agree(appliedAt int64) bool {
	return appliedAt != 0 && (s.appliedAt == 0 || s.appliedAt == appliedAt)
}

func (s state) told(appliedAt int64) state {
	s.appliedAt = appliedAt
	return s
}

func (s state) String() string {
	if s == (state{}) {
		return "nothing settled"
	}
	return fmt.Sprintf("%s settled%s, conflicts on record: %s", s.settled, at(s.appliedAt), s.conflicts)
}

func describe(req request, resp response) string {
	if req.delivered == None {
		return "look: " + resp.String()
	}
	return fmt.Sprintf("deliver %s: %s", req.delivered, resp)
}

func (r response) String() string {
	switch {
	case !r.known:
		return "unknown"
	case r.outcome == settle.OutcomeUnknown:
		return r.seen.String()
	case r.fields == "":
		return r.outcome.String() + at(r.appliedAt)
	}
	return fmt.Sprintf("%s in %s%s", r.outcome, r.fields, at(r.appliedAt))
}

// at tells a commit timestamp; nothing for 0.
func at(nanoseconds int64) string {
	if nanoseconds == 0 {
		return ""
	}
	return " at " + time.Unix(0, nanoseconds).UTC().Format("15:04:05.000000")
}
