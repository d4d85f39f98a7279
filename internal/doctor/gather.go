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
	// requestLimit bounds the requests for one reading.
	requestLimit = 20 * time.Second
	// maxDeadLetterSubscriptions bounds the subscriptions that are read.
	maxDeadLetterSubscriptions = 100
)

// Target names the resources for Gather.
type Target struct {
	// Database is projects/P/instances/I/databases/D. Required.
	Database string
	// Subscription is the trigger's, projects/P/subscriptions/S. Required.
	Subscription string
	// Function is projects/P/locations/L/functions/F. If it is empty, Gather uses Timeout
	// and Env instead.
	Function string
	// Timeout is the function's timeout if Function is empty; zero: unknown.
	Timeout time.Duration
	// Env looks up the function's variables if Function is empty.
	Env func(string) string
	// WithoutRights skips the IAM policies.
	WithoutRights bool
	// SpannerOptions, PubSubOptions and FunctionsOptions configure the clients.
	SpannerOptions, PubSubOptions, FunctionsOptions []option.ClientOption
}

// Gather reads all figures for Examine. A failed reading is in the State with its
// reason.
func Gather(ctx context.Context, t Target) State {
	s := State{Database: t.Database, SubscriptionName: t.Subscription, Rights: !t.WithoutRights}
	s.Schema = read(ctx, func(ctx context.Context) (Schema, error) { return readSchema(ctx, t) })
	s.Function = readFunction(ctx, t)
	readPubSub(ctx, t, &s)
	return s
}

// read calls ask within requestLimit.
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
	// The schema does not state the default.
	db, err := admin.GetDatabase(ctx, &databasepb.GetDatabaseRequest{Name: t.Database})
	if err != nil {
		return Schema{}, fmt.Errorf("read database %s: %w", t.Database, err)
	}
	s.VersionRetention, err = period(db.GetVersionRetentionPeriod())
	return s, err
}

// readPubSub reads the subscription, its topics and the policies.
func readPubSub(ctx context.Context, t Target, s *State) {
	p, err := newPubSubReader(ctx, t.PubSubOptions)
	if err != nil {
		s.Subscription.Err = fmt.Errorf("connect to Pub/Sub: %w", err)
		return
	}
	defer p.close()
	s.Subscription = read(ctx, func(ctx context.Context) (*pubsubpb.Subscription, error) { return p.subscription(ctx, t.Subscription) })
	if !s.Subscription.Read {
		return
	}
	if topic := s.Subscription.Value.GetTopic(); topic != deletedTopic {
		s.Topic = read(ctx, func(ctx context.Context) (*pubsubpb.Topic, error) { return p.topic(ctx, topic) })
	}
	dead := s.deadLetterTopic()
	if dead != "" {
		s.DeadLetters = read(ctx, func(ctx context.Context) (DeadLetters, error) { return p.deadLetters(ctx, dead) })
	}
	if t.WithoutRights {
		return
	}
	s.SubscriberPolicy = readPolicy(ctx, p.subscriptions.GetIamPolicy, t.Subscription)
	if dead != "" {
		s.PublisherPolicy = readPolicy(ctx, p.topics.GetIamPolicy, dead)
	}
}

type pubsubReader struct {
	subscriptions *pubsub.SubscriptionAdminClient
	topics        *pubsub.TopicAdminClient
}

func newPubSubReader(ctx context.Context, options []option.ClientOption) (p pubsubReader, err error) {
	if p.subscriptions, err = pubsub.NewSubscriptionAdminClient(ctx, options...); err != nil {
		return p, err
	}
	if p.topics, err = pubsub.NewTopicAdminClient(ctx, options...); err != nil {
		_ = p.subscriptions.Close()
	}
	return p, err
}

func (p pubsubReader) close() {
	_ = p.subscriptions.Close()
	_ = p.topics.Close()
}

func (p pubsubReader) subscription(ctx context.Context, name string) (*pubsubpb.Subscription, error) {
	sub, err := p.subscriptions.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: name})
	if err != nil {
		return nil, fmt.Errorf("read subscription %s: %w", name, err)
	}
	return sub, nil
}

func (p pubsubReader) topic(ctx context.Context, name string) (*pubsubpb.Topic, error) {
	topic, err := p.topics.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: name})
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", name, err)
	}
	return topic, nil
}

// deadLetters reads a dead-letter topic, whose absence is not an error.
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

// policyReader is the method of Pub/Sub's clients that reads a policy.
type policyReader[Option any] func(context.Context, *iampb.GetIamPolicyRequest, ...Option) (*iampb.Policy, error)

func readPolicy[Option any](ctx context.Context, get policyReader[Option], resource string) Reading[*iampb.Policy] {
	return read(ctx, func(ctx context.Context) (*iampb.Policy, error) {
		policy, err := get(ctx, &iampb.GetIamPolicyRequest{Resource: resource})
		if status.Code(err) == codes.Unimplemented {
			return nil, errNoPolicies
		}
		if err != nil {
			return nil, fmt.Errorf("read the policy of %s: %w", resource, err)
		}
		return policy, nil
	})
}

// readFunction reads the function through the Cloud Functions API, or from the target.
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
// projects/P/locations/L/functions/F, without its secrets.
func Variables(ctx context.Context, function string, options ...option.ClientOption) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	deployed, err := getFunction(ctx, function, options)
	if err != nil {
		return nil, err
	}
	return deployed.ServiceConfig.EnvironmentVariables, nil
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
	if deployed.ServiceConfig == nil {
		return nil, fmt.Errorf("read function %s: no environment in the answer", name)
	}
	return deployed, nil
}

func describe(deployed *cloudfunctions.Function) (Function, error) {
	if deployed.ServiceConfig.TimeoutSeconds == 0 {
		return Function{}, fmt.Errorf("read function %s: no timeout in the answer", deployed.Name)
	}
	env := deployed.ServiceConfig.EnvironmentVariables
	function, err := newFunction(func(name string) string { return env[name] })
	if err != nil {
		return Function{}, fmt.Errorf("read function %s: %w", deployed.Name, err)
	}
	function.Deployed = true
	function.Timeout = time.Duration(deployed.ServiceConfig.TimeoutSeconds) * time.Second
	if trigger := deployed.EventTrigger; trigger != nil {
		function.TriggerTopic, function.Retries = trigger.PubsubTopic, trigger.RetryPolicy == "RETRY_POLICY_RETRY"
	}
	return function, nil
}
