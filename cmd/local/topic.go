package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"
	admin "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/settleonce/settleonce/emulator"
)

const (
	topicPayouts   = "payouts"
	topicReconcile = "reconcile"
	pushSuffix     = "-push"
	deadSuffix     = "-dead-letter"

	// ackMargin is what an ack deadline has over the budget of one delivery.
	ackMargin = 10 * time.Second
	ackLeast  = 60 * time.Second

	// envPubSubHost names a Pub/Sub emulator that is running already. It is also what its Source then says.
	envPubSubHost = "PUBSUB_EMULATOR_HOST"
)

// topic is where messages are published.
type topic interface {
	// Publish returns the message's ID when the topic has taken it.
	Publish(ctx context.Context, data []byte) (messageID string, err error)
}

// retries are the terms of redelivery.
type retries struct {
	minBackoff, maxBackoff time.Duration
	attempts               int // then the message goes to the dead letters
}

// startPubSub starts the Pub/Sub emulator.
func (sys *system) startPubSub(ctx context.Context) error {
	started, err := emulator.StartPubSub(ctx)
	if err != nil {
		return err
	}
	if inContainer(started) && runtime.GOOS == "linux" {
		err := fmt.Errorf("%w that can push to 127.0.0.1: one in a container on Linux cannot; "+
			"install the Google Cloud CLI with its component pubsub-emulator", emulator.ErrNotFound)
		return errors.Join(err, started.Close()) //nolint:contextcheck // it has a limit of its own
	}
	sys.pubsub = started
	sys.onClose(func(context.Context) error { return started.Close() }) //nolint:contextcheck // it has a limit of its own
	return nil
}

func inContainer(p *emulator.PubSub) bool { return strings.HasPrefix(p.Source, "docker image ") }

// seenFrom returns url as the Pub/Sub emulator has to call it.
func seenFrom(p *emulator.PubSub, url string) string {
	if inContainer(p) {
		return strings.Replace(url, "127.0.0.1", "host.docker.internal", 1)
	}
	return url
}

func (sys *system) topicName(id string) string { return "projects/" + sys.project + "/topics/" + id }

func (sys *system) subscriptionName(id string) string {
	return "projects/" + sys.project + "/subscriptions/" + id
}

// subscribe creates the topic id with its push subscription and dead-letter
// topic.
func (sys *system) subscribe(ctx context.Context, id, endpoint string, r retries) error {
	if sys.pubsub.Source == envPubSubHost { // it is not ours and goes on
		sys.onClose(func(ctx context.Context) error { return sys.unsubscribe(ctx, id) })
	}
	return sys.pubsub.CreatePushSubscription(ctx, emulator.Subscription{
		Topic: sys.topicName(id), Name: sys.subscriptionName(id + pushSuffix), PushEndpoint: seenFrom(sys.pubsub, endpoint),
		AckDeadline: sys.ackDeadline(), MinBackoff: r.minBackoff, MaxBackoff: r.maxBackoff,
		DeadLetterTopic: sys.topicName(id + deadSuffix), MaxDeliveryAttempts: r.attempts,
	})
}

// ackDeadline is in whole seconds, longer than the functions work on a delivery.
func (sys *system) ackDeadline() time.Duration {
	return max(ackLeast, (sys.cfg.SettleTimeout + ackMargin).Round(time.Second))
}

// unsubscribe deletes what subscribe created.
func (sys *system) unsubscribe(ctx context.Context, id string) error {
	subscriptions, err := admin.NewSubscriptionAdminClient(ctx, sys.pubsub.ClientOptions()...)
	if err != nil {
		return fmt.Errorf("delete the subscriptions of %s: %w", id, err)
	}
	defer subscriptions.Close()
	for _, name := range []string{id + pushSuffix, id + deadSuffix} {
		request := &pubsubpb.DeleteSubscriptionRequest{Subscription: sys.subscriptionName(name)}
		if err := subscriptions.DeleteSubscription(ctx, request); err != nil {
			return fmt.Errorf("delete subscription %s: %w", name, err)
		}
	}
	topics, err := admin.NewTopicAdminClient(ctx, sys.pubsub.ClientOptions()...)
	if err != nil {
		return fmt.Errorf("delete topic %s: %w", id, err)
	}
	defer topics.Close()
	for _, name := range []string{id, id + deadSuffix} {
		if err := topics.DeleteTopic(ctx, &pubsubpb.DeleteTopicRequest{Topic: sys.topicName(name)}); err != nil {
			return fmt.Errorf("delete topic %s: %w", name, err)
		}
	}
	return nil
}

// pubsubTopic is a topic of the Pub/Sub emulator.
type pubsubTopic struct{ publisher *pubsub.Publisher }

func (sys *system) openTopic(ctx context.Context, id string) (pubsubTopic, error) {
	client, err := pubsub.NewClient(ctx, sys.project, sys.pubsub.ClientOptions()...)
	if err != nil {
		return pubsubTopic{}, fmt.Errorf("open topic %s: %w", id, err)
	}
	publisher := client.Publisher(sys.topicName(id))
	publisher.PublishSettings.CountThreshold = 1 // one at a time; there is nothing to gather
	sys.onClose(func(context.Context) error {
		publisher.Stop()
		return client.Close()
	})
	return pubsubTopic{publisher}, nil
}

func (t pubsubTopic) Publish(ctx context.Context, data []byte) (string, error) {
	id, err := t.publisher.Publish(ctx, &pubsub.Message{Data: data}).Get(ctx)
	if err != nil {
		return "", fmt.Errorf("publish to %s: %w", t.publisher.ID(), err)
	}
	return id, nil
}
