package doctor_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/settleonce/settleonce/internal/doctor"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/schema"
)

const (
	testProject  = "doctor-test"
	day          = 24 * time.Hour
	serviceAgent = "serviceAccount:service-12345@gcp-sa-pubsub.iam.gserviceaccount.com"
)

// policies serves IAM policies, which the Pub/Sub emulator lacks.
type policies struct {
	iampb.UnimplementedIAMPolicyServer
	byResource map[string]*iampb.Policy
}

func (p *policies) GetIamPolicy(_ context.Context, request *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	if policy := p.byResource[request.GetResource()]; policy != nil {
		return policy, nil
	}
	return &iampb.Policy{}, nil
}

// iamOption sends the client's IAM requests to p and all others to the emulator.
func iamOption(t *testing.T, p *policies) option.ClientOption {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	iampb.RegisterIAMPolicyServer(server, p)
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if strings.HasPrefix(method, "/google.iam.v1.IAMPolicy/") {
				return conn.Invoke(ctx, method, req, reply)
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
}

// deployment is a deployment on the emulators with the default settings of deploy/.
// The Pub/Sub emulator limits the retention of a subscription to 7 days, so only the
// dead-letter topic has 31.
type deployment struct {
	target        doctor.Target
	ddl           func(statement string)
	topics        *pubsub.TopicAdminClient
	subscriptions *pubsub.SubscriptionAdminClient
	policies      *policies
	topic, dead   string // topics
	deadSub       string
	// function is the answer of the Cloud Functions API.
	function string
}

func deploy(t *testing.T) *deployment {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	id := "d-" + strings.ToLower(rand.Text())
	d := &deployment{
		topic: "projects/" + testProject + "/topics/" + id, dead: "projects/" + testProject + "/topics/dead-" + id,
		deadSub: "projects/" + testProject + "/subscriptions/dead-" + id,
	}
	name := emulatortest.Database(t, statements)
	d.target = doctor.Target{
		Database: name, Subscription: "projects/" + testProject + "/subscriptions/" + id,
		Function:       "projects/" + testProject + "/locations/europe-west1/functions/settle-payout",
		SpannerOptions: emulatortest.Spanner(t).ClientOptions(),
	}
	d.openSpanner(t)
	d.ddl("ALTER DATABASE `" + name[strings.LastIndex(name, "/")+1:] + "` SET OPTIONS (version_retention_period = '7d')")
	d.openPubSub(t)
	d.policies = &policies{byResource: map[string]*iampb.Policy{
		d.dead:                {Bindings: []*iampb.Binding{{Role: "roles/pubsub.publisher", Members: []string{serviceAgent}}}},
		d.target.Subscription: {Bindings: []*iampb.Binding{{Role: "roles/pubsub.subscriber", Members: []string{serviceAgent}}}},
	}}
	d.target.PubSubOptions = append(emulatortest.PubSub(t).ClientOptions(), iamOption(t, d.policies))
	d.serveFunction(t)
	return d
}

func (d *deployment) openSpanner(t *testing.T) {
	t.Helper()
	admin, err := database.NewDatabaseAdminClient(t.Context(), d.target.SpannerOptions...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	d.ddl = func(statement string) {
		t.Helper()
		operation, err := admin.UpdateDatabaseDdl(t.Context(), &databasepb.UpdateDatabaseDdlRequest{Database: d.target.Database, Statements: []string{statement}})
		if err == nil {
			err = operation.Wait(t.Context())
		}
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func (d *deployment) openPubSub(t *testing.T) {
	t.Helper()
	options := emulatortest.PubSub(t).ClientOptions()
	topics, err := pubsub.NewTopicAdminClient(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = topics.Close() })
	subscriptions, err := pubsub.NewSubscriptionAdminClient(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = subscriptions.Close() })
	d.topics, d.subscriptions = topics, subscriptions

	for name, retention := range map[string]time.Duration{d.topic: 7 * day, d.dead: 31 * day} {
		if _, err := topics.CreateTopic(t.Context(), &pubsubpb.Topic{Name: name, MessageRetentionDuration: durationpb.New(retention)}); err != nil {
			t.Fatal(err)
		}
	}
	d.subscribe(t, &pubsubpb.Subscription{
		Name: d.deadSub, Topic: d.dead, AckDeadlineSeconds: 60,
		MessageRetentionDuration: durationpb.New(7 * day), ExpirationPolicy: &pubsubpb.ExpirationPolicy{},
	})
	d.subscribe(t, &pubsubpb.Subscription{
		Name: d.target.Subscription, Topic: d.topic, PushConfig: &pubsubpb.PushConfig{PushEndpoint: "http://127.0.0.1:1/"},
		AckDeadlineSeconds: 120, MessageRetentionDuration: durationpb.New(7 * day), ExpirationPolicy: &pubsubpb.ExpirationPolicy{},
		RetryPolicy:      &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(10 * time.Second), MaximumBackoff: durationpb.New(600 * time.Second)},
		DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: d.dead, MaxDeliveryAttempts: 100},
	})
}

func (d *deployment) subscribe(t *testing.T, subscription *pubsubpb.Subscription) {
	t.Helper()
	if _, err := d.subscriptions.CreateSubscription(t.Context(), subscription); err != nil {
		t.Fatalf("%s: %v", subscription.GetName(), err)
	}
}

// change updates the function's subscription.
func (d *deployment) change(t *testing.T, path string, subscription *pubsubpb.Subscription) {
	t.Helper()
	subscription.Name = d.target.Subscription
	_, err := d.subscriptions.UpdateSubscription(t.Context(), &pubsubpb.UpdateSubscriptionRequest{
		Subscription: subscription, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{path}},
	})
	if err != nil {
		t.Fatalf("update %s: %v", path, err)
	}
}

// serveFunction serves projects.locations.functions.get of the Cloud Functions API.
func (d *deployment) serveFunction(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("testdata/function.json")
	if err != nil {
		t.Fatal(err)
	}
	d.function = strings.NewReplacer("DATABASE_NAME", d.target.Database, "FUNCTION_NAME", d.target.Function, "TOPIC_NAME", d.topic).Replace(string(text))
	path := "/v2/" + d.target.Function
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"error": {"code": 404, "message": "Resource was not found", "status": "NOT_FOUND"}}`)
			return
		}
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		_, _ = fmt.Fprint(w, d.function)
	}))
	t.Cleanup(server.Close)
	d.target.FunctionsOptions = []option.ClientOption{option.WithEndpoint(server.URL), option.WithoutAuthentication()}
}

// faults examines a deployment and returns the findings that are not ok, by check.
func (d *deployment) faults(t *testing.T) map[string]doctor.Finding {
	t.Helper()
	faults := map[string]doctor.Finding{}
	for _, f := range doctor.Examine(doctor.Gather(t.Context(), d.target)) {
		if f.Figures == "" {
			t.Errorf("%s has no figures", f.Check)
		}
		if f.Status != doctor.OK {
			faults[f.Check] = f
		}
	}
	return faults
}

func TestDefaultDeploymentOnEmulatorsPasses(t *testing.T) {
	t.Parallel()
	faults := deploy(t).faults(t)
	const role = "database role" // the emulator rejects CREATE ROLE
	if f := faults[role]; f.Status != doctor.Fail || !strings.Contains(f.Figures, "settleonce_function") {
		t.Errorf("%s: %+v", role, f)
	}
	delete(faults, role)
	if len(faults) != 0 {
		t.Errorf("not ok: %+v", faults)
	}
}

// TestFaultsOnEmulators plants one fault at a time in a default deployment.
func TestFaultsOnEmulators(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		plant   func(t *testing.T, d *deployment)
		check   string
		status  doctor.Status
		figures string
		remedy  string
	}{
		{
			"policy too short", func(_ *testing.T, d *deployment) {
				d.ddl("ALTER TABLE settlement_receipts REPLACE ROW DELETION POLICY (OLDER_THAN(applied_at, INTERVAL 47 DAY))")
			},
			"receipt retention", doctor.Fail, "receipts 47d < 7d + 31d + 7d + 72h = 48d", "INTERVAL 48 DAY",
		},
		{
			"policy on another column", func(_ *testing.T, d *deployment) {
				d.ddl("ALTER TABLE settlement_receipts REPLACE ROW DELETION POLICY (OLDER_THAN(publish_time, INTERVAL 100 DAY))")
			},
			"receipt retention", doctor.Fail, "counts from publish_time, not from applied_at", "OLDER_THAN(applied_at, INTERVAL 100 DAY)",
		},
		{
			"no policy", func(_ *testing.T, d *deployment) {
				d.ddl("ALTER TABLE settlement_receipts DROP ROW DELETION POLICY")
			},
			"receipt retention", doctor.Warn, "kept for ever", "ADD ROW DELETION POLICY",
		},
		{
			"index missing", func(_ *testing.T, d *deployment) { d.ddl("DROP INDEX bank_instructions_due") },
			"schema", doctor.Fail, "index bank_instructions_due", "schema/",
		},
		{
			"column missing", func(_ *testing.T, d *deployment) { d.ddl("ALTER TABLE settlement_receipts DROP COLUMN metadata") },
			"schema", doctor.Fail, "column settlement_receipts.metadata", "schema/",
		},
		{
			"column of a later file missing", func(_ *testing.T, d *deployment) {
				d.ddl("DROP INDEX bank_instructions_manual")
				d.ddl("ALTER TABLE bank_instructions DROP COLUMN manual_shard")
			},
			"schema", doctor.Fail, "column bank_instructions.manual_shard", "schema/",
		},
		{
			"version retention of an hour", func(_ *testing.T, d *deployment) {
				d.ddl("ALTER DATABASE `" + d.target.Database[strings.LastIndex(d.target.Database, "/")+1:] + "` SET OPTIONS (version_retention_period = '1h')")
			},
			"point-in-time recovery", doctor.Warn, "1h back < 1d", "version_retention_period = '7d'",
		},
		{
			"ack deadline below the function's timeout", func(t *testing.T, d *deployment) {
				d.change(t, "ack_deadline_seconds", &pubsubpb.Subscription{AckDeadlineSeconds: 90})
			},
			"ack deadline", doctor.Fail, "function 1m30s >= ack deadline 1m30s", "--ack-deadline=120",
		},
		{
			"function's timeout below a delivery", func(_ *testing.T, d *deployment) {
				d.function = strings.Replace(d.function, `"timeoutSeconds": 90`, `"timeoutSeconds": 55`, 1)
			},
			"function timeout", doctor.Fail, "function 55s <= 25s + 20s + 10s = 55s", "--timeout=65s",
		},
		{
			"bank remembers keys for longer", func(_ *testing.T, d *deployment) {
				d.function = strings.Replace(d.function, `"BANK_KEY_LIFETIME": "24h"`, `"BANK_KEY_LIFETIME": "2424h"`, 1)
			},
			"bank key lifetime", doctor.Fail, "receipts 100d < key 101d", "INTERVAL 101 DAY",
		},
		{
			"trigger without retries", func(_ *testing.T, d *deployment) {
				d.function = strings.Replace(d.function, "RETRY_POLICY_RETRY", "RETRY_POLICY_DO_NOT_RETRY", 1)
			},
			"function", doctor.Fail, "does not retry", "--retry",
		},
		{
			"function on another database", func(_ *testing.T, d *deployment) {
				d.function = strings.Replace(d.function, d.target.Database, d.target.Database+"-old", 1)
			},
			"function", doctor.Fail, "-old", "SPANNER_DATABASE",
		},
		{
			"dead-letter subscription missing", func(t *testing.T, d *deployment) {
				if err := d.subscriptions.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: d.deadSub}); err != nil {
					t.Fatal(err)
				}
			},
			"dead-letter subscription", doctor.Fail, "drops the dead letters", "gcloud pubsub subscriptions create dead-",
		},
		{
			"dead-letter topic missing", func(t *testing.T, d *deployment) {
				if err := d.topics.DeleteTopic(t.Context(), &pubsubpb.DeleteTopicRequest{Topic: d.dead}); err != nil {
					t.Fatal(err)
				}
			},
			"dead-letter subscription", doctor.Fail, "does not exist", "gcloud pubsub topics create dead-",
		},
		{
			"no dead-letter policy", func(t *testing.T, d *deployment) {
				d.change(t, "dead_letter_policy", &pubsubpb.Subscription{})
			},
			"dead-letter policy", doctor.Fail, "not settled within 7d is lost", "--dead-letter-topic",
		},
		{
			"retention too short to dead-letter", func(t *testing.T, d *deployment) {
				d.change(t, "message_retention_duration", &pubsubpb.Subscription{MessageRetentionDuration: durationpb.New(12 * time.Hour)})
			},
			"dead-letter policy", doctor.Fail, "16h40m to 20h with the deliveries >= retention 12h", "--message-retention-duration=7d",
		},
		{
			"few attempts", func(t *testing.T, d *deployment) {
				d.change(t, "dead_letter_policy", &pubsubpb.Subscription{DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: d.dead, MaxDeliveryAttempts: 5}})
			},
			"dead-letter policy", doctor.Warn, "an outage of 50m dead-letters every message", "--max-delivery-attempts=100",
		},
		{
			"no retry policy", func(t *testing.T, d *deployment) { d.change(t, "retry_policy", &pubsubpb.Subscription{}) },
			"retry policy", doctor.Warn, "redelivered at once", "--min-retry-delay=10s",
		},
		{
			"a pull subscription", func(t *testing.T, d *deployment) {
				d.change(t, "push_config", &pubsubpb.Subscription{PushConfig: &pubsubpb.PushConfig{}})
			},
			"subscription", doctor.Fail, "a pull subscription", "eventarc triggers list",
		},
		{
			"agent cannot publish dead letters", func(_ *testing.T, d *deployment) { delete(d.policies.byResource, d.dead) },
			"dead-letter right to publish", doctor.Fail, "lacks roles/pubsub.publisher", "add-iam-policy-binding dead-",
		},
		{
			"agent cannot acknowledge", func(_ *testing.T, d *deployment) {
				d.policies.byResource[d.target.Subscription].Bindings[0].Members = []string{"serviceAccount:other@example.com"}
			},
			"dead-letter right to acknowledge", doctor.Fail, "lacks roles/pubsub.subscriber", "--role=roles/pubsub.subscriber",
		},
		{
			"function does not exist", func(_ *testing.T, d *deployment) { d.target.Function += "-old" },
			"bank key lifetime", doctor.Unknown, "Resource was not found", "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t)
			tt.plant(t, d)
			f := d.faults(t)[tt.check]
			if f.Check != tt.check || f.Status != tt.status || !strings.Contains(f.Figures, tt.figures) || !strings.Contains(f.Remedy, tt.remedy) {
				t.Errorf("%v %q, remedy %q; want %v %q, remedy %q", f.Status, f.Figures, f.Remedy, tt.status, tt.figures, tt.remedy)
			}
		})
	}
}

func TestFailedReadingsAreUnknown(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.target.PubSubOptions = emulatortest.PubSub(t).ClientOptions()
	faults := d.faults(t)
	for check, figures := range map[string]string{
		"dead-letter right to publish":     "the Pub/Sub emulator keeps no policies",
		"dead-letter right to acknowledge": `see "dead-letter right to publish"`,
	} {
		if f := faults[check]; f.Status != doctor.Unknown || !strings.Contains(f.Figures, figures) || strings.Contains(f.Figures, "rpc error") {
			t.Errorf("%s on the emulator: %+v", check, f)
		}
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("not today"))
	findings := doctor.Examine(doctor.Gather(ctx, d.target))
	for _, f := range findings {
		if f.Status != doctor.Unknown || f.Figures == "" {
			t.Errorf("no service answers: %+v", f)
		}
	}
	if worst := doctor.Worst(findings); worst != doctor.Unknown {
		t.Errorf("no service answers: Worst = %v, want unknown", worst)
	}
}
