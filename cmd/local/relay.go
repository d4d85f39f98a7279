package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle"
)

// answer is SettlePayout's answer to a delivery.
type answer struct {
	settle.Result `json:",embed"`

	Error string `json:"error"`
}

// detail returns the members of a conflict, or the reason and member of a refusal.
func (a answer) detail() string {
	if a.Refusal != nil {
		return detail(nil, a.Refusal.Reason, a.Refusal.Member)
	}
	return detail(a.Fields, "", "")
}

// publication is one publication of a message of the sample. It is published as
// attributes of the message, so that the relay recognises the deliveries.
type publication struct {
	Message int `json:"sample_message,string"` // index in the sample
	Number  int `json:"sample_number,string"`  // of the message's publications, from 0
}

func (p publication) attributes() map[string]string {
	return map[string]string{"sample_message": strconv.Itoa(p.Message), "sample_number": strconv.Itoa(p.Number)}
}

// delivery is one delivery of a publication.
type delivery struct {
	publication

	messageID string
	attempt   int // of the publication, from 0
	status    int // HTTP, of the function
	answer    answer
	took      time.Duration // by the function
}

// relay forwards deliveries to the function, records the answers, and drops the
// first answers of chosen messages.
type relay struct {
	target   string // the function's URL
	messages []sampleMessage

	mu         sync.Mutex
	progress   map[publication]*progress
	deliveries []delivery
}

// progress is the state of a publication.
type progress struct {
	attempts     int
	acknowledged chan struct{} // closed by the first 2xx to Pub/Sub
	last         string        // last answer to Pub/Sub, for errors
}

func newRelay(target string, messages []sampleMessage) *relay {
	return &relay{target: target, messages: messages, progress: map[publication]*progress{}}
}

// of returns the state of a publication. The caller holds r.mu.
func (r *relay) of(p publication) *progress {
	if r.progress[p] == nil {
		r.progress[p] = &progress{acknowledged: make(chan struct{}), last: "no delivery"}
	}
	return r.progress[p]
}

// awaitAcknowledged returns when the publication is acknowledged.
func (r *relay) awaitAcknowledged(ctx context.Context, p publication) error {
	r.mu.Lock()
	state := r.of(p)
	r.mu.Unlock()
	select {
	case <-state.acknowledged:
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Errorf("not acknowledged (last answer: %s): %w", state.last, context.Cause(ctx))
	}
}

// inOrder returns the recorded deliveries in the order of the sample.
func (r *relay) inOrder() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(r.deliveries), func(a, b delivery) int {
		return cmp.Or(cmp.Compare(a.Message, b.Message), cmp.Compare(a.Number, b.Number))
	})
}

// ServeHTTP relays one delivery.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, event.MaxBodyBytes))
	var push struct {
		Message struct {
			ID         string      `json:"messageId"`
			Attributes publication `json:"attributes"`
		} `json:"message"`
	}
	if err == nil {
		err = json.Unmarshal(body, &push)
	}
	d := delivery{publication: push.Message.Attributes, messageID: push.Message.ID}
	if err != nil || d.Message >= len(r.messages) {
		http.Error(w, "not a delivery of the sample", http.StatusBadRequest)
		return
	}
	began := time.Now()
	status, text, err := r.forward(req, body)
	if err != nil { // the function may have settled it; Pub/Sub delivers the message again
		r.mu.Lock()
		r.of(d.publication).last = err.Error()
		r.mu.Unlock()
		http.Error(w, "the function did not answer", http.StatusBadGateway)
		return
	}
	d.status, d.took = status, time.Since(began)
	if err := json.Unmarshal(text, &d.answer); err != nil {
		d.answer.Error = "the answer is not JSON"
	}
	if r.record(d) {
		status, text = http.StatusInternalServerError, []byte(`{"error":"answer dropped"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) //nolint:gosec // JSON, and Pub/Sub ignores it
}

// record keeps a delivery, and reports whether its answer is to be dropped.
func (r *relay) record(d delivery) (drop bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.of(d.publication)
	state.last = fmt.Sprintf("%d %s", d.status, d.answer.Error)
	d.attempt = state.attempts
	state.attempts++
	r.deliveries = append(r.deliveries, d)
	acknowledge := d.status/100 == 2
	if acknowledge && d.attempt < r.messages[d.Message].DropAnswers {
		return true
	}
	if acknowledge {
		select {
		case <-state.acknowledged: // Pub/Sub may deliver an acknowledged message again
		default:
			close(state.acknowledged)
		}
	}
	return false
}

// forward sends the request to the function.
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
