package linear

import (
	"strings"
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
)

// History records the operations on a system. It is safe for concurrent use. See
// [NewHistory].
type History struct {
	now func() time.Time

	mu         sync.Mutex
	start      time.Time
	clock      int64                   // counts beginnings and ends, and gives their order
	operations map[string][]*Operation // by settlement ID
}

// NewHistory returns an empty history. now gives the times that a violation prints; it
// has no influence on the check.
func NewHistory(now func() time.Time) *History {
	return &History{now: now, start: now(), operations: map[string][]*Operation{}}
}

// Operation is a delivery, or a read of the database. One that does not end has an
// unknown outcome.
type Operation struct {
	history      *History
	settlementID string
	messageID    string // of a delivery
	request      request

	// Guarded by history.mu.
	server                 string
	fault                  string // cause of an unknown outcome
	response               response
	began, ended           int64 // of history.clock; ended is 0 before the end
	beganAfter, endedAfter time.Duration
}

// Answer is a delivery's result for its caller. The zero value is an unknown outcome.
type Answer struct {
	// Server names the instance that answered, for reports.
	Server string
	// Outcome is the outcome; [settle.OutcomeUnknown] allows everything.
	Outcome settle.Outcome
	// AppliedAt, Fields and Known are those of [settle.Result].
	AppliedAt time.Time
	Fields    []string
	Known     bool
	// Doubtful says that an answer of the database may have been lost. Then the instance
	// cannot distinguish its own record of a finding from an earlier one, and Known says
	// nothing.
	Doubtful bool
	// Err is the cause of an unknown outcome, for reports.
	Err string
}

// AnswerOf converts an answer of [settle.Service].
func AnswerOf(result settle.Result, err error) Answer {
	if err != nil {
		return Answer{Err: err.Error()}
	}
	return Answer{Outcome: result.Outcome, AppliedAt: result.AppliedAt, Fields: result.Fields, Known: result.Known}
}

// Deliver records the beginning of a delivery.
func (h *History) Deliver(m Message) *Operation {
	return h.begin(m.SettlementID, m.ID, request{delivered: m.Payload, redelivered: m.Attempt > 1})
}

// End records the answer to a delivery.
func (o *Operation) End(a Answer) {
	r := response{
		answered: a.Outcome != settle.OutcomeUnknown, outcome: a.Outcome, fields: strings.Join(a.Fields, ","),
		known: a.Known, doubtful: a.Doubtful,
	}
	if !a.AppliedAt.IsZero() {
		r.appliedAt = a.AppliedAt.UnixNano()
	}
	if !r.answered {
		r = response{}
	}
	o.end(a.Server, a.Err, r)
}

// Read records a read of the whole database as one operation of each settlement ID that
// the history has. read must return all rows as of one moment; Read returns them too.
func (h *History) Read(server string, read func() (audit.Snapshot, error)) (audit.Snapshot, error) {
	var reads []*Operation
	for _, id := range h.settlementIDs() {
		reads = append(reads, h.begin(id, "", request{}))
	}
	rows, err := read()
	if err != nil {
		return rows, err // without an end the reads allow everything
	}
	for _, o := range reads {
		o.end(server, "", response{answered: true, read: stateOf(rows, o.settlementID)})
	}
	return rows, nil
}

// stateOf is the state of a settlement ID, or of the message that is no payout and is
// named so, in the database.
func stateOf(rows audit.Snapshot, settlementID string) (s state) {
	if m := rows.Movement(settlementID); m != nil {
		s.settled, s.appliedAt = payloadOf(*m), m.RecordedAt.UnixNano()
	}
	for _, c := range rows.Conflicts {
		for _, p := range Payloads {
			if c.SettlementID == settlementID && string(c.Payload) == p.Message(settlementID) {
				s.conflicts[p] = s.conflicts[p].and(c.SeenAt)
			}
		}
	}
	for _, q := range rows.Quarantined {
		if string(q.Data) == Malformed.Message(settlementID) {
			s.kept = s.kept.and(q.QuarantinedAt)
		}
	}
	return s
}

// and is the state of a row after a read has found one more.
func (r record) and(at time.Time) record {
	if r != absent {
		return doubled
	}
	return record(at.UnixNano())
}

func (h *History) begin(settlementID, messageID string, req request) *Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	o := &Operation{
		history: h, settlementID: settlementID, messageID: messageID, request: req,
		began: h.clock, beganAfter: h.sinceStart(),
	}
	h.operations[settlementID] = append(h.operations[settlementID], o)
	return o
}

func (o *Operation) end(server, fault string, r response) {
	h := o.history
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	o.server, o.fault, o.response, o.ended, o.endedAfter = server, fault, r, h.clock, h.sinceStart()
}

func (h *History) sinceStart() time.Duration {
	return h.now().Sub(h.start).Round(10 * time.Microsecond)
}
