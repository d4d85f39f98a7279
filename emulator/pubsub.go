package emulator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/settleonce/settleonce/internal/config"
)

var pubsubKind = kind{
	name:             "pubsub",
	hostEnv:          config.EnvPubSubEmulatorHost,
	component:        "pubsub-emulator",
	file:             "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*.jar",
	program:          pubsubProgram,
	image:            "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators",
	containerPorts:   []int{8085},
	containerCommand: []string{"gcloud", "beta", "emulators", "pubsub", "start", "--host-port=0.0.0.0:8085"},
	answers:          pubsubAnswers,
}

// PubSub is a running Pub/Sub emulator, as [StartPubSub] returns it. Its methods may
// be called from several goroutines. The zero value is not valid.
type PubSub struct {
	*Process
	// Host is the host:port for clients; it serves gRPC and REST.
	Host string
}

// ClientOptions returns the options with which a client connects to Host, the only
// field that they need. They take precedence over PUBSUB_EMULATOR_HOST.
func (p *PubSub) ClientOptions() []option.ClientOption { return clientOptions(p.Host) }

// StartPubSub returns a Pub/Sub emulator that answers requests. ctx and errors are
// as in [StartSpanner].
func StartPubSub(ctx context.Context, opts ...Option) (*PubSub, error) {
	p, err := pubsubKind.start(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &PubSub{Process: p, Host: p.hosts[0]}, nil
}

func pubsubProgram(jar string) (name string, args func(ports []int) []string, err error) {
	java, err := javaCommand()
	return java, func(ports []int) []string {
		// The simple compiler and collector start faster, and the heap stays small.
		return []string{
			"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
			"-jar", jar, "--host=" + loopback, "--port=" + strconv.Itoa(ports[0]),
		}
	}, err
}

func pubsubAnswers(ctx context.Context, hosts []string) error {
	return probe(ctx, hosts[0], func(ctx context.Context, conn *grpc.ClientConn) error {
		request := &pubsubpb.ListTopicsRequest{Project: defaultProject}
		if _, err := pubsubpb.NewPublisherClient(conn).ListTopics(ctx, request); err != nil {
			return fmt.Errorf("list topics: %w", err)
		}
		return nil
	})
}

// Subscription is a push subscription for [PubSub.CreatePushSubscription].
type Subscription struct {
	// Topic is projects/P/topics/T. Required; created if absent.
	Topic string
	// Name is projects/P/subscriptions/S. Required.
	Name string
	// PushEndpoint is the URL to which the emulator posts messages. Required. An
	// emulator in a container reaches the host as host.docker.internal, and on Linux
	// only servers that do not listen on 127.0.0.1 alone.
	PushEndpoint string
	// AckDeadline is the time limit of a push, in whole seconds from 10 to 600.
	// Defaults to 10s.
	AckDeadline time.Duration
	// MinBackoff and MaxBackoff bound the delay before a redelivery, 0 to 600s. If both
	// are 0, the redelivery is immediate.
	MinBackoff, MaxBackoff time.Duration
	// DeadLetterTopic is projects/P/topics/T, for messages after MaxDeliveryAttempts.
	// Created if absent, with a pull subscription of the same project and ID, because a
	// topic without subscriptions drops its messages. Empty: Pub/Sub redelivers a
	// message until the endpoint acknowledges it or its retention ends.
	DeadLetterTopic string
	// MaxDeliveryAttempts is 5 to 100. Defaults to 5. Only with DeadLetterTopic.
	MaxDeliveryAttempts int
}

// CreateTopic creates the topic projects/P/topics/T unless it exists.
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

// CreatePushSubscription creates the subscription, its topic, and its dead-letter
// topic with a subscription, if they are absent. It updates an existing subscription
// to s, but fails if that has another topic, which Pub/Sub cannot change.
func (p *PubSub) CreatePushSubscription(ctx context.Context, s Subscription) error {
	if err := p.createPushSubscription(ctx, s); err != nil {
		return fmt.Errorf("create push subscription %q: %w", s.Name, err)
	}
	return nil
}

func (p *PubSub) createPushSubscription(ctx context.Context, s Subscription) error {
	client, err := pubsub.NewSubscriptionAdminClient(ctx, p.ClientOptions()...)
	if err != nil {
		return fmt.Errorf("open client: %w", err)
	}
	defer client.Close()
	push := s.proto()
	subscriptions := []*pubsubpb.Subscription{push}
	if s.DeadLetterTopic != "" {
		name := strings.Replace(s.DeadLetterTopic, "/topics/", "/subscriptions/", 1)
		if name == s.Name {
			return errors.New("the dead-letter topic needs another ID than the subscription")
		}
		subscriptions = append(subscriptions, &pubsubpb.Subscription{Name: name, Topic: s.DeadLetterTopic})
	}
	for _, sub := range subscriptions {
		if err := p.CreateTopic(ctx, sub.GetTopic()); err != nil {
			return err
		}
	}
	for _, sub := range subscriptions {
		if err := ensureSubscription(ctx, client, sub); err != nil {
			return err
		}
	}
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

// ensureSubscription creates a subscription, or checks the topic of the existing one.
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
		return fmt.Errorf("%s exists on topic %q, not %q: delete it or take another name", want.GetName(), got.GetTopic(), want.GetTopic())
	}
	return nil
}

// proto converts the subscription to the API's type.
func (s Subscription) proto() *pubsubpb.Subscription {
	sub := &pubsubpb.Subscription{
		Name:               s.Name,
		Topic:              s.Topic,
		PushConfig:         &pubsubpb.PushConfig{PushEndpoint: s.PushEndpoint},
		AckDeadlineSeconds: int32(s.AckDeadline / time.Second), //nolint:gosec // at most 600
	}
	if s.MinBackoff != 0 || s.MaxBackoff != 0 {
		sub.RetryPolicy = &pubsubpb.RetryPolicy{
			MinimumBackoff: durationpb.New(s.MinBackoff), MaximumBackoff: durationpb.New(s.MaxBackoff),
		}
	}
	if s.DeadLetterTopic != "" {
		sub.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{
			DeadLetterTopic: s.DeadLetterTopic, MaxDeliveryAttempts: int32(s.MaxDeliveryAttempts), //nolint:gosec // at most 100
		}
	}
	return sub
}
