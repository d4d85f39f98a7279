package doctor

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/api/cloudfunctions/v2"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// requestLimit bounds one question to a service.
	requestLimit = 20 * time.Second
	// defaultExpiry is after how long an unused subscription is deleted that says
	// nothing about it.
	defaultExpiry = 31 * day
	// maxDeadLetterSubscriptions bounds how many are looked at.
	maxDeadLetterSubscriptions = 100
)

// Target is what Gather reads.
type Target struct {
	// Database is projects/P/instances/I/databases/D. Required.
	Database string
	// Subscription is projects/P/subscriptions/S, the one of the function's trigger. Required.
	Subscription string
	// Function is projects/P/locations/L/functions/F. Empty: it is not read, and
	// Timeout and Env stand for it.
	Function string
	// Timeout is the function's timeout where Function is empty; zero: not known.
	Timeout time.Duration
	// Env looks the function's variables up where Function is empty.
	Env func(string) string
	// WithoutRights leaves out who may do what.
	WithoutRights bool
	// SpannerOptions, PubSubOptions and FunctionsOptions are given to the clients.
	SpannerOptions, PubSubOptions, FunctionsOptions []option.ClientOption
}

// Gather reads everything that Examine judges. What cannot be read is in the
// State, with the reason; there is no other error.
func Gather(ctx context.Context, t Target) State {
	s := State{Database: t.Database, SubscriptionName: t.Subscription, FunctionName: t.Function, Rights: !t.WithoutRights}
	s.Schema = read(ctx, func(ctx context.Context) (Schema, error) { return readSchema(ctx, t) })
	s.Function = readFunction(ctx, t)
	readPubSub(ctx, t, &s)
	return s
}

// read asks a question within requestLimit.
func read[T any](ctx context.Context, ask func(context.Context) (T, error)) Reading[T] {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	value, err := ask(ctx)
	return Reading[T]{Value: value, Err: err, Read: err == nil}
}

func readSchema(ctx context.Context, t Target) (Schema, error) {
	admin, err := database.NewDatabaseAdminClient(ctx, t.SpannerOptions...)
	if err != nil {
		return Schema{}, fmt.Errorf("connect to Spanner: %w", err)
	}
	defer admin.Close()
	ddl, err := admin.GetDatabaseDdl(ctx, &databasepb.GetDatabaseDdlRequest{Database: t.Database})
	if err != nil {
		return Schema{}, fmt.Errorf("read the schema of %s: %w", t.Database, err)
	}
	s, err := parseSchema(ddl.GetStatements())
	if err != nil || s.VersionRetention != 0 {
		return s, err
	}
	// The default does not stand in the schema.
	db, err := admin.GetDatabase(ctx, &databasepb.GetDatabaseRequest{Name: t.Database})
	if err != nil {
		return Schema{}, fmt.Errorf("read database %s: %w", t.Database, err)
	}
	s.VersionRetention, err = period(db.GetVersionRetentionPeriod())
	return s, err
}

// readPubSub reads the subscription and what it leads to.
func readPubSub(ctx context.Context, t Target, s *State) {
	subscriptions, err := pubsub.NewSubscriptionAdminClient(ctx, t.PubSubOptions...)
	if err != nil {
		s.Subscription.Err = fmt.Errorf("connect to Pub/Sub: %w", err)
		return
	}
	defer subscriptions.Close()
	topics, err := pubsub.NewTopicAdminClient(ctx, t.PubSubOptions...)
	if err != nil {
		s.Subscription.Err = fmt.Errorf("connect to Pub/Sub: %w", err)
		return
	}
	defer topics.Close()
	p := pubsubReader{subscriptions: subscriptions, topics: topics}

	s.Subscription = read(ctx, func(ctx context.Context) (Subscription, error) { return p.subscription(ctx, t.Subscription) })
	if !s.Subscription.Read {
		return
	}
	sub := s.Subscription.Value
	if sub.Topic != deletedTopic {
		s.Topic = read(ctx, func(ctx context.Context) (Topic, error) { return p.topic(ctx, sub.Topic) })
	}
	if sub.DeadLetterTopic != "" {
		s.DeadLetters = read(ctx, func(ctx context.Context) (DeadLetters, error) { return p.deadLetters(ctx, sub.DeadLetterTopic) })
	}
	if t.WithoutRights {
		return
	}
	s.SubscriberPolicy = read(ctx, func(ctx context.Context) (map[string][]string, error) {
		return members(subscriptions.GetIamPolicy(ctx, &iampb.GetIamPolicyRequest{Resource: sub.Name}))
	})
	if sub.DeadLetterTopic != "" {
		s.PublisherPolicy = read(ctx, func(ctx context.Context) (map[string][]string, error) {
			return members(topics.GetIamPolicy(ctx, &iampb.GetIamPolicyRequest{Resource: sub.DeadLetterTopic}))
		})
	}
}

// pubsubReader reads Pub/Sub.
type pubsubReader struct {
	subscriptions *pubsub.SubscriptionAdminClient
	topics        *pubsub.TopicAdminClient
}

func (p pubsubReader) subscription(ctx context.Context, name string) (Subscription, error) {
	sub, err := p.subscriptions.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: name})
	if err != nil {
		return Subscription{}, fmt.Errorf("read subscription %s: %w", name, err)
	}
	read := Subscription{
		Name: sub.GetName(), Topic: sub.GetTopic(), PushEndpoint: sub.GetPushConfig().GetPushEndpoint(), Detached: sub.GetDetached(),
		AckDeadline: time.Duration(sub.GetAckDeadlineSeconds()) * time.Second,
		Retention:   sub.GetMessageRetentionDuration().AsDuration(), RetainAcked: sub.GetRetainAckedMessages(),
		Retry:           sub.GetRetryPolicy() != nil,
		MinBackoff:      sub.GetRetryPolicy().GetMinimumBackoff().AsDuration(),
		MaxBackoff:      sub.GetRetryPolicy().GetMaximumBackoff().AsDuration(),
		DeadLetterTopic: sub.GetDeadLetterPolicy().GetDeadLetterTopic(),
		MaxAttempts:     int(sub.GetDeadLetterPolicy().GetMaxDeliveryAttempts()),
		Expires:         defaultExpiry,
	}
	// A policy without a time means never; no policy means the default.
	if policy := sub.GetExpirationPolicy(); policy != nil {
		read.Expires = policy.GetTtl().AsDuration()
	}
	return read, nil
}

func (p pubsubReader) topic(ctx context.Context, name string) (Topic, error) {
	topic, err := p.topics.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: name})
	if err != nil {
		return Topic{}, fmt.Errorf("read topic %s: %w", name, err)
	}
	return Topic{
		Name: topic.GetName(), Retention: topic.GetMessageRetentionDuration().AsDuration(),
		Schema: topic.GetSchemaSettings().GetSchema(), Encoding: topic.GetSchemaSettings().GetEncoding().String(),
	}, nil
}

// deadLetters reads a dead-letter topic. One that is not there is no error: its
// name is then empty.
func (p pubsubReader) deadLetters(ctx context.Context, name string) (d DeadLetters, err error) {
	d.Topic, err = p.topic(ctx, name)
	if status.Code(err) == codes.NotFound || name == deletedTopic {
		return DeadLetters{}, nil
	}
	if err != nil {
		return DeadLetters{}, err
	}
	names := p.topics.ListTopicSubscriptions(ctx, &pubsubpb.ListTopicSubscriptionsRequest{Topic: name})
	for len(d.Subscriptions) < maxDeadLetterSubscriptions {
		subscription, err := names.Next()
		if err == iterator.Done { //nolint:errorlint // the iterator's end, which it returns as it is
			break
		}
		if err != nil {
			return DeadLetters{}, fmt.Errorf("list the subscriptions of %s: %w", name, err)
		}
		sub, err := p.subscription(ctx, subscription)
		if err != nil {
			return DeadLetters{}, err
		}
		d.Subscriptions = append(d.Subscriptions, sub)
	}
	return d, nil
}

// members returns the members of a policy by role. A binding with a condition may
// not hold at this moment and is left out.
func members(policy *iampb.Policy, err error) (map[string][]string, error) {
	if status.Code(err) == codes.Unimplemented {
		return nil, errNoPolicies
	}
	if err != nil {
		return nil, fmt.Errorf("read who has which role: %w", err)
	}
	byRole := map[string][]string{}
	for _, binding := range policy.GetBindings() {
		if binding.GetCondition() == nil {
			byRole[binding.GetRole()] = append(byRole[binding.GetRole()], binding.GetMembers()...)
		}
	}
	return byRole, nil
}

// readFunction reads the function through the Cloud Functions API, or takes what
// the target says of it.
func readFunction(ctx context.Context, t Target) Reading[Function] {
	if t.Function == "" {
		if t.Timeout == 0 {
			return Reading[Function]{Err: errNoFunction}
		}
		function, err := newFunction(t.Env)
		function.Timeout = t.Timeout
		return Reading[Function]{Value: function, Err: err, Read: err == nil}
	}
	return read(ctx, func(ctx context.Context) (Function, error) {
		deployed, err := getFunction(ctx, t.Function, t.FunctionsOptions)
		if err != nil {
			return Function{}, err
		}
		return describe(deployed)
	})
}

// Variables reads the environment variables of a deployed function, named
// projects/P/locations/L/functions/F. Secrets are not among them.
func Variables(ctx context.Context, function string, options ...option.ClientOption) (map[string]string, error) {
	variables := read(ctx, func(ctx context.Context) (map[string]string, error) {
		deployed, err := getFunction(ctx, function, options)
		if err != nil {
			return nil, err
		}
		if deployed.ServiceConfig == nil {
			return nil, fmt.Errorf("read function %s: it says nothing about its environment", function)
		}
		return deployed.ServiceConfig.EnvironmentVariables, nil
	})
	return variables.Value, variables.Err
}

func getFunction(ctx context.Context, name string, options []option.ClientOption) (*cloudfunctions.Function, error) {
	service, err := cloudfunctions.NewService(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to Cloud Functions: %w", err)
	}
	deployed, err := service.Projects.Locations.Functions.Get(name).Context(ctx).Do()
	if err != nil {
		return nil, fmt.Errorf("read function %s: %w", name, err)
	}
	return deployed, nil
}

func describe(deployed *cloudfunctions.Function) (Function, error) {
	if deployed.ServiceConfig == nil || deployed.ServiceConfig.TimeoutSeconds == 0 {
		return Function{}, fmt.Errorf("read function %s: it says nothing about its timeout", deployed.Name)
	}
	env := deployed.ServiceConfig.EnvironmentVariables
	function, err := newFunction(func(name string) string { return env[name] })
	if err != nil {
		return Function{}, fmt.Errorf("read function %s: %w", deployed.Name, err)
	}
	function.Deployed = true
	function.Timeout = time.Duration(deployed.ServiceConfig.TimeoutSeconds) * time.Second
	if trigger := deployed.EventTrigger; trigger != nil {
		function.Trigger = Trigger{Topic: trigger.PubsubTopic, Retries: trigger.RetryPolicy == "RETRY_POLICY_RETRY"}
	}
	return function, nil
}
