package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/internal/event"
)

// errClosed is what Publish gives after close.
var errClosed = errors.New("the topic is closed")

// memoryTopic is a topic in this process. It delivers each message to its
// endpoint as Eventarc does, as a CloudEvent in binary mode, until that answers
// 2xx or the attempts are used up.
type memoryTopic struct {
	name, subscription string
	endpoint           string
	retries            retries
	answerLimit        time.Duration // for one attempt; the ack deadline
	log                *slog.Logger

	ctx     context.Context // of the deliveries, until close
	cancel  context.CancelFunc
	working sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	published int
	dead      []deadLetter
}

// deadLetter is a message that was never acknowledged.
type deadLetter struct {
	messageID string
	data      []byte
	attempts  int
	cause     error // of the last attempt
}

// memoryMessage is a message on its way.
type memoryMessage struct {
	id          string
	data        []byte
	publishTime string // RFC 3339
}

func (sys *system) openMemoryTopic(ctx context.Context, id, endpoint string, r retries, log *slog.Logger) *memoryTopic {
	t := &memoryTopic{
		name: sys.topicName(id), subscription: sys.subscriptionName(id + pushSuffix),
		endpoint: endpoint, retries: r, answerLimit: sys.ackDeadline(), log: log,
	}
	// What is published outlives the request that brought it.
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	sys.onClose(t.close)
	return t
}

// Publish implements topic. It keeps data.
func (t *memoryTopic) Publish(_ context.Context, data []byte) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return "", errClosed
	}
	t.published++
	m := memoryMessage{id: strconv.Itoa(t.published), data: data, publishTime: time.Now().UTC().Format(time.RFC3339Nano)}
	t.working.Go(func() { t.deliver(m) }) //nolint:contextcheck // what is published outlives the request that brought it
	return m.id, nil
}

// close gives up what is not yet delivered.
func (t *memoryTopic) close(context.Context) error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.working.Wait()
	return nil
}

// deadLetters returns the messages that were given up.
func (t *memoryTopic) deadLetters() []deadLetter {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.dead)
}

func (t *memoryTopic) deliver(m memoryMessage) {
	backoff := t.retries.minBackoff
	for attempt := 1; ; attempt++ {
		err := t.attempt(m, attempt)
		if err == nil || t.ctx.Err() != nil {
			return
		}
		if attempt == t.retries.attempts {
			t.giveUp(deadLetter{messageID: m.id, data: m.data, attempts: attempt, cause: err})
			return
		}
		select {
		case <-t.ctx.Done():
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, t.retries.maxBackoff)
	}
}

func (t *memoryTopic) giveUp(d deadLetter) {
	t.mu.Lock()
	t.dead = append(t.dead, d)
	t.mu.Unlock()
	t.log.LogAttrs(t.ctx, slog.LevelError, "message given up and kept as a dead letter until the program ends",
		slog.String("message_id", d.messageID), slog.Int("attempts", d.attempts), slog.String("error", d.cause.Error()))
}

// attempt makes one delivery; its error says why the message is not
// acknowledged.
func (t *memoryTopic) attempt(m memoryMessage, number int) error {
	body, err := t.body(m, number)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.ctx, t.answerLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.endpoint, bytes.NewReader(body)) //nolint:gosec // a server of this program
	if err != nil {
		return fmt.Errorf("deliver message %s: %w", m.id, err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Ce-Id": m.id, "Ce-Type": event.TypeMessagePublished,
		"Ce-Source": "//pubsub.googleapis.com/" + t.name, "Ce-Specversion": "1.0", "Ce-Time": m.publishTime,
	} {
		req.Header.Set(name, value)
	}
	resp, err := loopback.Do(req) //nolint:gosec // a server of this program
	if err != nil {
		return fmt.Errorf("deliver message %s: %w", m.id, err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // only the status says whether it is acknowledged
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("deliver message %s: %s", m.id, resp.Status)
	}
	return nil
}

// body is a Pub/Sub push body, which has some members under two names.
func (t *memoryTopic) body(m memoryMessage, attempt int) ([]byte, error) {
	type message struct {
		Data           []byte `json:"data,omitempty"` // in base64
		MessageID      string `json:"messageId"`
		MessageIDOld   string `json:"message_id"`
		PublishTime    string `json:"publishTime"`
		PublishTimeOld string `json:"publish_time"`
	}
	body, err := json.Marshal(struct {
		Message         message `json:"message"`
		Subscription    string  `json:"subscription"`
		DeliveryAttempt int     `json:"deliveryAttempt"`
	}{
		message{m.data, m.id, m.id, m.publishTime, m.publishTime},
		t.subscription, attempt,
	})
	if err != nil {
		return nil, fmt.Errorf("encode message %s: %w", m.id, err)
	}
	return body, nil
}
