package main

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/settleonce/settleonce/internal/event"
	"github.com/settleonce/settleonce/internal/settle"
)

// testTopic returns a topic that delivers to handler.
func testTopic(t *testing.T, r retries, handler http.HandlerFunc) *memoryTopic {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	sys := &system{project: "local"}
	t.Cleanup(func() { _ = sys.close(t.Context()) })
	return sys.openMemoryTopic(t.Context(), topicPayouts, server.URL, r, slog.New(slog.DiscardHandler))
}

func TestMemoryTopicDeliversUntilAcknowledged(t *testing.T) {
	t.Parallel()
	deliveries := make(chan settle.Delivery, 10)
	var failures atomic.Int32
	failures.Store(2)
	topic := testTopic(t, retries{time.Millisecond, 2 * time.Millisecond, 5}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if got := r.Header.Get("Ce-Type"); got != event.TypeMessagePublished {
			t.Errorf("the delivery is no CloudEvent: ce-type %q", got)
		}
		deliveries <- event.Read(r.Header, body) //nolint:contextcheck // it reads from memory
		if failures.Add(-1) >= 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	id, err := topic.Publish(t.Context(), []byte("\x00 any bytes"))
	if err != nil {
		t.Fatal(err)
	}
	for attempt := 1; attempt <= 3; attempt++ {
		got := <-deliveries
		want := settle.Delivery{
			Attempt: attempt,
			Message: settle.Message{ID: id, Subscription: "projects/local/subscriptions/payouts-push", Data: []byte("\x00 any bytes")},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(settle.Message{}, "PublishTime")); diff != "" || got.Message.PublishTime.IsZero() {
			t.Errorf("delivery %d (-want +got):\n%s", attempt, diff)
		}
	}
	topic.working.Wait()
	if len(deliveries) > 0 || len(topic.deadLetters()) > 0 {
		t.Errorf("%d deliveries after the acknowledgement, dead letters %v", len(deliveries), topic.deadLetters())
	}
}

func TestMemoryTopicKeepsDeadLetters(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int32
	topic := testTopic(t, retries{time.Millisecond, time.Millisecond, 3}, func(w http.ResponseWriter, _ *http.Request) {
		attempts.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	id, err := topic.Publish(t.Context(), []byte("never"))
	if err != nil {
		t.Fatal(err)
	}
	topic.working.Wait()
	dead := topic.deadLetters()
	if len(dead) != 1 || dead[0].messageID != id || string(dead[0].data) != "never" || dead[0].attempts != 3 || attempts.Load() != 3 {
		t.Errorf("dead letters %+v after %d attempts", dead, attempts.Load())
	}
	if err := topic.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := topic.Publish(t.Context(), nil); err == nil {
		t.Error("a closed topic takes messages")
	}
}

func TestRelayLosesAnswersAndWaitsToBeTold(t *testing.T) {
	t.Parallel()
	function := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"outcome":"applied","settlement_id":"stl-1"}`)
	}))
	t.Cleanup(function.Close)
	r := newRelay(function.URL)
	relay := httptest.NewServer(r)
	t.Cleanup(relay.Close)
	first := make(chan int, 1)
	go func() {
		code, _ := post(t, relay.URL, `{"message":{"messageId":"7"}}`)
		first <- code
	}()
	eventually(t, "the delivery", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.messages) == 1
	})
	r.expect("7", plan{row: 3, publication: 1, loseAnswers: 1})
	if code := <-first; code != http.StatusInternalServerError {
		t.Errorf("the first delivery was answered %d; its answer is to be lost", code)
	}
	if code, text := post(t, relay.URL, `{"message":{"messageId":"7"}}`); code != http.StatusOK || text == "" {
		t.Errorf("the second delivery was answered %d %q", code, text)
	}
	if err := r.awaitAcknowledged(t.Context(), "7"); err != nil {
		t.Error(err)
	}
	got := r.deliveries()
	if len(got) != 2 || !got[0].lost || got[1].lost || got[1].row != 3 || got[1].publication != 1 || got[1].attempt != 1 || got[0].status != http.StatusOK {
		t.Errorf("recorded %+v", got)
	}
}
