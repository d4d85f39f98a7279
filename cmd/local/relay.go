package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle/payout"
	"github.com/settleonce/settleonce/internal/settle/transfer"
)

// answer is SettlePayout's answer to a delivery.
type answer struct {
	Outcome      string         `json:"outcome"`
	SettlementID string         `json:"settlement_id"`
	PayloadHash  payout.Hash    `json:"payload_hash"`
	AppliedAt    time.Time      `json:"applied_at"`
	Instruction  transfer.State `json:"instruction"`
	Fields       []string       `json:"fields"`
	Reason       payout.Reason  `json:"reason"`
	Member       string         `json:"member"`
	Error        string         `json:"error"`
}

// delivery is one attempt of a topic to deliver a message of the demo.
type delivery struct {
	row         int // of the sample, or of the ticks, from 0
	publication int // of the row, from 0
	messageID   string
	attempt     int // of the message, from 0
	// lost: the function answered, and the topic was told otherwise.
	lost   bool
	status int
	text   []byte // the answer as it came
	answer answer
	took   time.Duration // the function's time
}

// relay stands between the topic and the function. It hands deliveries on,
// records the answers, and loses those it is told to lose.
type relay struct {
	target string // the function's URL

	mu       sync.Mutex
	messages map[string]*relayed // by message ID
	log      []delivery
}

// plan says what a message is.
type plan struct {
	row, publication int // as in delivery
	loseAnswers      int // how many of its answers get lost
}

// relayed is a message as the relay knows it. A delivery may come before the
// publisher knows the message's ID, and waits for it.
type relayed struct {
	expected     chan struct{} // closed by expect, which sets plan before
	plan         plan
	attempts     int
	acknowledged chan struct{} // closed when the topic was told 2xx
	last         string        // what the topic was told last, for errors
}

func newRelay(target string) *relay { return &relay{target: target, messages: map[string]*relayed{}} }

func (r *relay) message(id string) *relayed {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, known := r.messages[id]
	if !known {
		m = &relayed{expected: make(chan struct{}), acknowledged: make(chan struct{}), last: "nothing was delivered"}
		r.messages[id] = m
	}
	return m
}

// expect says what message id is.
func (r *relay) expect(id string, what plan) {
	m := r.message(id)
	m.plan = what
	close(m.expected)
}

// awaitAcknowledged returns when the topic has been told that message id is done.
func (r *relay) awaitAcknowledged(ctx context.Context, id string) error {
	m := r.message(id)
	select {
	case <-m.acknowledged:
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Errorf("message %s was not acknowledged (last answer: %s): %w", id, m.last, context.Cause(ctx))
	}
}

// deliveries returns what was recorded, in the order of the sample.
func (r *relay) deliveries() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Deliveries of one message are recorded in their order already.
	return slices.SortedStableFunc(slices.Values(r.log), func(a, b delivery) int {
		if a.row != b.row {
			return a.row - b.row
		}
		return a.publication - b.publication
	})
}

// ServeHTTP relays one delivery.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, event.MaxBodyBytes))
	if err != nil {
		http.Error(w, "the body broke off or is too large", http.StatusBadRequest)
		return
	}
	id, err := messageID(body)
	if err != nil {
		http.Error(w, "not a push body", http.StatusBadRequest)
		return
	}
	m := r.message(id)
	select {
	case <-m.expected:
	case <-req.Context().Done():
		return
	}
	began := time.Now()
	status, text, err := r.forward(req, body)
	if err != nil {
		http.Error(w, "the function did not answer", http.StatusBadGateway)
		r.note(m, fmt.Sprintf("none; %v", err))
		return
	}
	d := delivery{messageID: id, status: status, text: text, took: time.Since(began)}
	if err := json.Unmarshal(text, &d.answer); err != nil {
		d.answer.Error = "the answer is not JSON"
	}
	status, text = r.record(m, d, text)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) //nolint:gosec // JSON, and the topic looks at the status only
}

func (r *relay) note(m *relayed, last string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.last = last
}

// record keeps a delivery, and returns what to tell the topic.
func (r *relay) record(m *relayed, d delivery, text []byte) (status int, tell []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d.row, d.publication, d.attempt = m.plan.row, m.plan.publication, m.attempts
	m.attempts++
	acknowledge := d.status/100 == 2
	d.lost = acknowledge && m.plan.loseAnswers > 0
	r.log = append(r.log, d)
	if d.lost {
		m.plan.loseAnswers--
		m.last = "lost on purpose"
		return http.StatusInternalServerError, []byte(`{"relay":"the answer is lost, on purpose"}`)
	}
	m.last = fmt.Sprintf("%d %s", d.status, d.answer.Error)
	if acknowledge {
		select {
		case <-m.acknowledged: // delivered again all the same, as topics may
		default:
			close(m.acknowledged)
		}
	}
	return d.status, text
}

// forward hands the request to the function.
func (r *relay) forward(req *http.Request, body []byte) (status int, text []byte, err error) {
	out, err := http.NewRequestWithContext(req.Context(), http.MethodPost, r.target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	maps.Copy(out.Header, req.Header)
	resp, err := loopback.Do(out)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, event.MaxBodyBytes))
	return resp.StatusCode, text, err
}

// messageID reads the message's ID out of a push body.
func messageID(body []byte) (string, error) {
	var push struct {
		Message struct {
			ID string `json:"messageId"`
		} `json:"message"`
	}
	err := json.Unmarshal(body, &push)
	return push.Message.ID, err
}
