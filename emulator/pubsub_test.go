package emulator

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
)

func startPubSubTest(t *testing.T) *PubSub {
	t.Helper()
	p, err := StartPubSub(t.Context(), WithPrivate())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// receiver counts the pushes of each payload and answers 500 to "poison".
type receiver struct {
	mu    sync.Mutex
	calls map[string]int
	taken chan string // acknowledged payloads
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var push struct{ Message struct{ Data []byte } }
	if err := json.NewDecoder(req.Body).Decode(&push); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	payload := string(push.Message.Data)
	r.mu.Lock()
	r.calls[payload]++
	r.mu.Unlock()
	if payload == "poison" {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	r.taken <- payload
}

func TestPubSub(t *testing.T) {
	t.Parallel()
	p := startPubSubTest(t)
	t.Run("pushes and dead-letters", func(t *testing.T) {
		t.Parallel()
		testPush(t, p)
	})
	t.Run("updates an existing subscription", func(t *testing.T) {
		t.Parallel()
		testChange(t, p)
	})
}

func testPush(t *testing.T, p *PubSub) {
	recv := &receiver{calls: map[string]int{}, taken: make(chan string, 10)}
	server := httptest.NewServer(recv)
	t.Cleanup(server.Close)
	sub := Subscription{
		Topic:           "projects/test/topics/payouts",
		Name:            "projects/test/subscriptions/settle",
		PushEndpoint:    server.URL,
		MinBackoff:      10 * time.Millisecond,
		MaxBackoff:      20 * time.Millisecond,
		DeadLetterTopic: "projects/test/topics/payouts-dead",
	}
	for range 2 { // the second changes nothing
		if err := p.CreatePushSubscription(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, p, sub.Topic, "good", "poison")

	select {
	case got := <-recv.taken:
		if got != "good" {
			t.Errorf("pushed %q, want good", got)
		}
	case <-time.After(testLimit):
		t.Fatal("nothing was pushed")
	}
	if got := pullOne(t, p, "projects/test/subscriptions/payouts-dead"); got != "poison" {
		t.Errorf("dead-lettered %q, want poison", got)
	}
	recv.mu.Lock()
	defer recv.mu.Unlock()
	if diff := cmp.Diff(map[string]int{"good": 1, "poison": 5}, recv.calls); diff != "" {
		t.Errorf("pushes (-want +got):\n%s", diff)
	}
}

func testChange(t *testing.T, p *PubSub) {
	sub := Subscription{
		Topic:        "projects/test/topics/changing",
		Name:         "projects/test/subscriptions/changing",
		PushEndpoint: "http://127.0.0.1:1/old",
	}
	if err := p.CreatePushSubscription(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	sub.PushEndpoint = "http://127.0.0.1:1/new"
	sub.AckDeadline = 30 * time.Second
	sub.MinBackoff, sub.MaxBackoff = time.Second, time.Minute
	sub.DeadLetterTopic = "projects/test/topics/changing-dead"
	sub.MaxDeliveryAttempts = 7
	if err := p.CreatePushSubscription(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	client, err := pubsub.NewSubscriptionAdminClient(t.Context(), p.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, err := client.GetSubscription(t.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: sub.Name})
	if err != nil {
		t.Fatal(err)
	}
	want := &pubsubpb.Subscription{
		Name:               sub.Name,
		Topic:              sub.Topic,
		PushConfig:         &pubsubpb.PushConfig{PushEndpoint: sub.PushEndpoint},
		AckDeadlineSeconds: 30,
		RetryPolicy: &pubsubpb.RetryPolicy{
			MinimumBackoff: durationpb.New(time.Second),
			MaximumBackoff: durationpb.New(time.Minute),
		},
		DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{
			DeadLetterTopic:     sub.DeadLetterTopic,
			MaxDeliveryAttempts: 7,
		},
	}
	// The emulator's own defaults.
	ignore := protocmp.IgnoreFields(&pubsubpb.Subscription{}, "message_retention_duration", "expiration_policy", "state")
	if diff := cmp.Diff(want, got, protocmp.Transform(), ignore); diff != "" {
		t.Errorf("subscription (-want +got):\n%s", diff)
	}
	sub.Topic = "projects/test/topics/other"
	if err := p.CreatePushSubscription(t.Context(), sub); err == nil || !strings.Contains(err.Error(), "exists on topic") {
		t.Errorf("with another topic = %v, want an error", err)
	}
}

func publish(t *testing.T, p *PubSub, topic string, payloads ...string) {
	t.Helper()
	client, err := pubsub.NewTopicAdminClient(t.Context(), p.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := &pubsubpb.PublishRequest{Topic: topic}
	for _, payload := range payloads {
		req.Messages = append(req.Messages, &pubsubpb.PubsubMessage{Data: []byte(payload)})
	}
	if _, err := client.Publish(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// pullOne waits for one message of a subscription.
func pullOne(t *testing.T, p *PubSub, subscription string) string {
	t.Helper()
	client, err := pubsub.NewSubscriptionAdminClient(t.Context(), p.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	for {
		resp, err := client.Pull(ctx, &pubsubpb.PullRequest{Subscription: subscription, MaxMessages: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range resp.GetReceivedMessages() {
			return string(m.GetMessage().GetData())
		}
	}
}

func TestPubSubRejectsFaultInjection(t *testing.T) {
	t.Parallel()
	if _, err := StartPubSub(t.Context(), WithFaultInjection()); err == nil {
		t.Error("StartPubSub = nil error")
	}
}
