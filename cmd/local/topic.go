package main

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"
	admin "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/config"
)

const (
	topicPayouts   = "payouts"
	topicReconcile = "reconcile"
	pushSuffix     = "-push"
	deadSuffix     = "-dead-letter"

	// ackMargin is added to the longest delivery.
	ackMargin = 10 * time.Second
	// ackLeast is the least ack deadline.
	ackLeast = 60 * time.Second
)

// topicForm is a part of Pub/Sub's rule for names; the suffixes have to fit too.
var topicForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9.-]{2,199}$`)

// retries are the terms of redelivery.
type retries struct {
	minBackoff, maxBackoff time.Duration
	attempts               int // before the message goes to the dead-letter topic
}

// startPubSub starts the Pub/Sub emulator.
func (sys *system) startPubSub(ctx context.Context) (err error) {
	if sys.pubsub, err = emulator.StartPubSub(ctx); err != nil {
		return err
	}
	sys.onClose(func(context.Context) error { return sys.pubsub.Close() }) //nolint:contextcheck // Close has its own limit
	if inContainer(sys.pubsub) && runtime.GOOS == "linux" {
		return fmt.Errorf("%w that can push to 127.0.0.1: on Linux a container cannot; "+
			"install the Google Cloud CLI with its component pubsub-emulator", emulator.ErrNotFound)
	}
	return nil
}

func inContainer(p *emulator.PubSub) bool { return strings.HasPrefix(p.Source, "docker image ") }

// seenFrom returns the URL by which the Pub/Sub emulator reaches url.
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

// subscribe creates the topic id, its push subscription and its dead-letter topic.
func (sys *system) subscribe(ctx context.Context, id, endpoint string, r retries) error {
	if sys.pubsub.Source == config.EnvPubSubEmulatorHost { // this emulator outlives the program
		sys.onClose(func(ctx context.Context) error { return sys.unsubscribe(ctx, id) })
	}
	return sys.pubsub.CreatePushSubscription(ctx, emulator.Subscription{
		Topic: sys.topicName(id), Name: sys.subscriptionName(id + pushSuffix), PushEndpoint: seenFrom(sys.pubsub, endpoint),
		AckDeadline: sys.ackDeadline(), MinBackoff: r.minBackoff, MaxBackoff: r.maxBackoff,
		DeadLetterTopic: sys.topicName(id + deadSuffix), MaxDeliveryAttempts: r.attempts,
	})
}

// ackDeadline is longer than a delivery. Pub/Sub takes whole seconds.
func (sys *system) ackDeadline() time.Duration {
	longest := config.LongestDelivery(sys.cfg.SettleTimeout, sys.cfg.Bank.SendTimeout)
	return max(ackLeast, (longest + ackMargin).Round(time.Second))
}

// unsubscribe deletes the topics and subscriptions of subscribe.
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

// topic is an open topic of the Pub/Sub emulator.
type topic struct{ publisher *pubsub.Publisher }

func (sys *system) openTopic(ctx context.Context, id string) (topic, error) {
	client, err := pubsub.NewClient(ctx, sys.project, sys.pubsub.ClientOptions()...)
	if err != nil {
		return topic{}, fmt.Errorf("open topic %s: %w", id, err)
	}
	publisher := client.Publisher(sys.topicName(id))
	publisher.PublishSettings.CountThreshold = 1 // without a wait for more messages
	sys.onClose(func(context.Context) error {
		publisher.Stop()
		return client.Close()
	})
	return topic{publisher}, nil
}

// publish returns when Pub/Sub has stored the message.
func (t topic) publish(ctx context.Context, data []byte, attributes map[string]string) error {
	if _, err := t.publisher.Publish(ctx, &pubsub.Message{Data: data, Attributes: attributes}).Get(ctx); err != nil {
		return fmt.Errorf("publish to %s: %w", t.publisher.ID(), err)
	}
	return nil
}
