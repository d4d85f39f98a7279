package linear

import (
	"strings"
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle"
)

// History records what was asked of a system, and what it answered when. It is
// safe for concurrent use. See [NewHistory].
type History struct {
	now func() time.Time

	mu         sync.Mutex
	began      time.Time
	clock      int64
	operations map[string][]*Operation // by settlement ID
}

// NewHistory returns an empty history. The order of operations is counted and
// not taken from now, which only tells readers when something was.
func NewHistory(now func() time.Time) *History {
	return &History{now: now, began: now(), operations: map[string][]*Operation{}}
}

// Operation is one operation of a history: a delivery, or a look at the database.
// It has begun; one that is never ended has an unknown outcome.
type Operation struct {
	history      *History
	settlementID string
	messageID    string // of a delivery
	request      request

	// Guarded by history.mu.
	by          string // who answered
	why         string // an outcome is unknown
	response    response
	call, end   int64 // in counts of the history's clock; end is 0 while there is none
	called, got time.Duration
}

// Answer is what is known about a delivery afterwards. The zero value is an
// unknown outcome.
type Answer struct {
	// By names who was asked, for readers.
	By string
	// Outcome is the outcome; [settle.OutcomeUnknown] allows everything.
	Outcome settle.Outcome
	// AppliedAt and Fields are those of [settle.Result].
	AppliedAt time.Time
	Fields    []string
	// Err says why the outcome is unknown, for readers.
	Err string
}

// AnswerOf returns what [settle.Service] has answered.
func AnswerOf(result settle.Result, err error) Answer {
	if err != nil {
		return Answer{Err: err.Error()}
	}
	return Answer{Outcome: result.Outcome, AppliedAt: result.AppliedAt, Fields: result.Fields}
}

// Deliver records that the delivery of a message begins.
func (h *History) Deliver(m Message) *Operation {
	return h.begin(m.SettlementID, m.ID, request{delivered: m.Payload})
}

// End records the answer to a delivery.
func (o *Operation) End(a Answer) {
	r := response{known: a.Outcome != settle.OutcomeUnknown, outcome: a.Outcome, fields: strings.Join(a.Fields, ",")}
	if !a.AppliedAt.IsZero() {
		r.appliedAt = a.AppliedAt.UnixNano()
	}
	if !r.known {
		r = response{}
	}
	o.finish(a.By, a.Err, r)
}

// Look records a look at the whole database, as one operation of each settlement
// ID that the history knows. read has to read everything as of one moment; what
// it returns is returned.
func (h *History) Look(by string, read func() (audit.Snapshot, error)) (audit.Snapshot, error) {
	var looks []*Operation
	for _, id := range h.settlementIDs() {
		looks = append(looks, h.begin(id, "", request{}))
	}
	all, err := read()
	if err != nil {
		return all, err // looks that never end have seen nothing
	}
	for _, look := range looks {
		look.finish(by, "", response{known: true, seen: seenOf(all, look.settlementID)})
	}
	return all, nil
}

// seenOf is what a snapshot tells about a settlement ID.
func seenOf(all audit.Snapshot, settlementID string) state {
	var seen state
	if m := all.Movement(settlementID); m != nil {
		seen.settled, seen.appliedAt = payloadOf(*m), m.RecordedAt.UnixNano()
	}
	for _, c := range all.Conflicts {
		for _, p := range Payloads {
			if c.SettlementID == settlementID && string(c.Payload) == p.Message(settlementID) {
				seen.conflicts = seen.conflicts.with(p)
			}
		}
	}
	return seen
}

func (h *History) begin(settlementID, messageID string, req request) *Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	o := &Operation{
		history: h, settlementID: settlementID, messageID: messageID, request: req,
		call: h.clock, called: h.now().Sub(h.began),
	}
	h.operations[settlementID] = append(h.operations[settlementID], o)
	return o
}

func (o *Operation) finish(by, why string, r response) {
	h := o.history
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	o.by, o.why, o.response, o.end, o.got = by, why, r, h.clock, h.now().Sub(h.began)
}
