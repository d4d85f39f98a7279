package emulator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// Pub/Sub's own defaults, where a subscription asks for the feature without a value.
const (
	defaultMinBackoff       = 10 * time.Second
	defaultMaxBackoff       = 600 * time.Second
	defaultDeliveryAttempts = 5
)

// Subscription is a push subscription for [PubSub.CreatePushSubscription].
type Subscription struct {
	// Topic is projects/P/topics/T. Required; created when absent.
	Topic string
	// Name is projects/P/subscriptions/S. Required.
	Name string
	// PushEndpoint is the URL that messages are posted to. Required. It is the emulator
	// that must reach it: one in a container finds the host as host.docker.internal,
	// and on Linux only servers that do not listen on 127.0.0.1 alone.
	PushEndpoint string
	// AckDeadline is how long a push may take, in whole seconds from 10 to 600.
	// Defaults to 10s.
	AckDeadline time.Duration
	// MinBackoff and MaxBackoff bound the delay before a message is delivered again,
	// 0 to 600s. Both 0: at once. One of them 0: 10s or 600s.
	MinBackoff, MaxBackoff time.Duration
	// DeadLetterTopic is projects/P/topics/T, where a message goes after
	// MaxDeliveryAttempts; created when absent. Empty: messages are delivered until
	// they are acknowledged or too old.
	DeadLetterTopic string
	// DeadLetterSubscription is projects/P/subscriptions/S, a pull subscription on the
	// dead-letter topic, which without any would lose its messages. Defaults to the
	// dead-letter topic's project and ID. Only with DeadLetterTopic.
	DeadLetterSubscription string
	// MaxDeliveryAttempts is 5 to 100, and defaults to 5. Only with DeadLetterTopic.
	MaxDeliveryAttempts int
}

// CreateTopic creates the topic projects/P/topics/T. One that exists is left as it is.
func (p *PubSub) CreateTopic(ctx context.Context, topic string) error {
	client, err := pubsub.NewTopicAdminClient(ctx, p.ClientOptions()...)
	if err != nil {
		return fmt.Errorf("create topic %q: %w", topic, err)
	}
	defer client.Close()
	_, err = client.CreateTopic(ctx, &pubsubpb.Topic{Name: topic})
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("create topic %q: %w", topic, err)
	}
	return nil
}

// CreatePushSubscription creates the subscription, and its topic, dead-letter topic
// and the subscription on that, as far as they are absent. A subscription that
// exists is changed to what s says; its topic cannot be changed, so another one is
// an error.
func (p *PubSub) CreatePushSubscription(ctx context.Context, s Subscription) error {
	if err := p.createPushSubscription(ctx, s); err != nil {
		return fmt.Errorf("create push subscription %q: %w", s.Name, err)
	}
	return nil
}

func (p *PubSub) createPushSubscription(ctx context.Context, s Subscription) error {
	if err := s.validate(); err != nil {
		return err
	}
	client, err := pubsub.NewSubscriptionAdminClient(ctx, p.ClientOptions()...)
	if err != nil {
		return fmt.Errorf("open client: %w", err)
	}
	defer client.Close()
	if err := p.CreateTopic(ctx, s.Topic); err != nil {
		return err
	}
	if s.DeadLetterTopic != "" {
		if err := p.CreateTopic(ctx, s.DeadLetterTopic); err != nil {
			return err
		}
		pull := &pubsubpb.Subscription{Name: s.deadLetterSubscription(), Topic: s.DeadLetterTopic}
		if err := ensureSubscription(ctx, client, pull); err != nil {
			return fmt.Errorf("create dead-letter subscription %q: %w", pull.GetName(), err)
		}
	}
	push := s.proto()
	if err := ensureSubscription(ctx, client, push); err != nil {
		return err
	}
	// What exists already may say something else.
	_, err = client.UpdateSubscription(ctx, &pubsubpb.UpdateSubscriptionRequest{
		Subscription: push,
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{
			"push_config", "ack_deadline_seconds", "retry_policy", "dead_letter_policy",
		}},
	})
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	return nil
}

// ensureSubscription creates a subscription, or checks the topic of the one that is there.
func ensureSubscription(ctx context.Context, client *pubsub.SubscriptionAdminClient, want *pubsubpb.Subscription) error {
	_, err := client.CreateSubscription(ctx, want)
	if status.Code(err) != codes.AlreadyExists {
		return err
	}
	got, err := client.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: want.GetName()})
	if err != nil {
		return err
	}
	if got.GetTopic() != want.GetTopic() {
		return fmt.Errorf("it exists on topic %q, not %q: delete it or take another name", got.GetTopic(), want.GetTopic())
	}
	return nil
}

// validate finds what the emulator would accept or ignore although Pub/Sub does not.
func (s Subscription) validate() error {
	switch {
	case s.Topic == "" || s.Name == "" || s.PushEndpoint == "":
		return errors.New("set Topic, Name and PushEndpoint")
	case s.AckDeadline%time.Second != 0,
		s.AckDeadline != 0 && (s.AckDeadline < 10*time.Second || s.AckDeadline > 600*time.Second):
		return fmt.Errorf("AckDeadline is %s: set whole seconds from 10s to 600s", s.AckDeadline)
	case s.DeadLetterTopic == "" && (s.DeadLetterSubscription != "" || s.MaxDeliveryAttempts != 0):
		return errors.New("set DeadLetterTopic, or leave DeadLetterSubscription and MaxDeliveryAttempts out")
	case s.MaxDeliveryAttempts != 0 && (s.MaxDeliveryAttempts < 5 || s.MaxDeliveryAttempts > 100):
		return fmt.Errorf("MaxDeliveryAttempts is %d: set 5 to 100", s.MaxDeliveryAttempts)
	case s.DeadLetterTopic != "" && s.deadLetterSubscription() == s.Name:
		return fmt.Errorf("the dead-letter subscription would be %q too: set DeadLetterSubscription", s.Name)
	default:
		return nil
	}
}

// deadLetterSubscription is the name of the subscription on the dead-letter topic.
func (s Subscription) deadLetterSubscription() string {
	return cmp.Or(s.DeadLetterSubscription, strings.Replace(s.DeadLetterTopic, "/topics/", "/subscriptions/", 1))
}

// proto is the subscription in the API's words, zero values resolved.
func (s Subscription) proto() *pubsubpb.Subscription {
	sub := &pubsubpb.Subscription{
		Name:       s.Name,
		Topic:      s.Topic,
		PushConfig: &pubsubpb.PushConfig{PushEndpoint: s.PushEndpoint},
		// 0 is Pub/Sub's default, 10.
		AckDeadlineSeconds: int32(s.AckDeadline / time.Second), //nolint:gosec // validated: at most 600
	}
	if s.MinBackoff != 0 || s.MaxBackoff != 0 {
		sub.RetryPolicy = &pubsubpb.RetryPolicy{
			MinimumBackoff: durationpb.New(cmp.Or(s.MinBackoff, defaultMinBackoff)),
			MaximumBackoff: durationpb.New(cmp.Or(s.MaxBackoff, defaultMaxBackoff)),
		}
	}
	if s.DeadLetterTopic != "" {
		sub.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{
			DeadLetterTopic:     s.DeadLetterTopic,
			MaxDeliveryAttempts: int32(cmp.Or(s.MaxDeliveryAttempts, defaultDeliveryAttempts)), //nolint:gosec // validated: at most 100
		}
	}
	return sub
}
