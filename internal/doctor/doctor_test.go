package doctor

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/settleonce/settleonce/schema"
)

func got[T any](value T) Reading[T] { return Reading[T]{Value: value, Read: true} }

const testAgent = "serviceAccount:service-1@gcp-sa-pubsub.iam.gserviceaccount.com"

// asDeployed has the figures of a deployment by deploy/ with its default settings.
func asDeployed(t *testing.T) State {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	// In the format in which Spanner prints them.
	statements = append(statements,
		"ALTER DATABASE d SET OPTIONS (\n  version_retention_period = '7d'\n)",
		"CREATE ROLE settleonce_function",
		"GRANT SELECT, INSERT ON TABLE ledger_movements TO ROLE settleonce_function",
		"GRANT SELECT, INSERT ON TABLE settlement_receipts TO ROLE settleonce_function",
		"GRANT SELECT, INSERT ON TABLE settlement_conflicts TO ROLE settleonce_function",
		"GRANT SELECT, INSERT ON TABLE quarantined_messages TO ROLE settleonce_function",
	)
	parsed, err := parseSchema(statements)
	if err != nil {
		t.Fatal(err)
	}
	const (
		topic = "projects/p/topics/payouts"
		dead  = "projects/p/topics/payouts-dead-letters"
	)
	return State{
		Database: "projects/p/instances/i/databases/d", SubscriptionName: "projects/p/subscriptions/s", Rights: true,
		Schema: got(parsed),
		Subscription: got(&pubsubpb.Subscription{
			Name: "projects/p/subscriptions/s", Topic: topic, PushConfig: &pubsubpb.PushConfig{PushEndpoint: "https://example.com"},
			AckDeadlineSeconds: 120, MessageRetentionDuration: inDays(7), ExpirationPolicy: &pubsubpb.ExpirationPolicy{},
			RetryPolicy:      &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(10 * time.Second), MaximumBackoff: durationpb.New(600 * time.Second)},
			DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: 100},
		}),
		Topic: got(&pubsubpb.Topic{
			Name: topic, MessageRetentionDuration: inDays(7),
			SchemaSettings: &pubsubpb.SchemaSettings{Schema: "projects/p/schemas/payout-v1", Encoding: pubsubpb.Encoding_JSON},
		}),
		DeadLetters: got(DeadLetters{
			Topic: &pubsubpb.Topic{Name: dead, MessageRetentionDuration: inDays(31)},
			Subscriptions: []*pubsubpb.Subscription{{
				Name: "projects/p/subscriptions/payouts-dead-letters", MessageRetentionDuration: inDays(31), ExpirationPolicy: &pubsubpb.ExpirationPolicy{},
			}},
		}),
		PublisherPolicy:  got(&iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/pubsub.publisher", Members: []string{testAgent}}}}),
		SubscriberPolicy: got(&iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/pubsub.subscriber", Members: []string{testAgent}}}}),
		Function: got(Function{
			Deployed: true, Timeout: 90 * time.Second, Database: "projects/p/instances/i/databases/d", DatabaseRole: "settleonce_function",
			Settle: 25 * time.Second, BankSend: 20 * time.Second, Bank: true, KeyLifetime: 24 * time.Hour,
			TriggerTopic: topic, Retries: true,
		}),
	}
}

func inDays(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * day) }

func find(t *testing.T, findings []Finding, check string) Finding {
	t.Helper()
	for _, f := range findings {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("no check %q", check)
	return Finding{}
}

func TestDefaultDeploymentPasses(t *testing.T) {
	t.Parallel()
	findings := Examine(asDeployed(t))
	for _, f := range findings {
		if f.Status != OK || f.Remedy != "" {
			t.Errorf("%+v", f)
		}
	}
	if worst := Worst(findings); worst != OK {
		t.Errorf("Worst = %v, want OK", worst)
	}
}

// TestFaultsWithoutEmulator changes one figure at a time to a value that the emulators
// do not accept or have.
func TestFaultsWithoutEmulator(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		change  func(s *State)
		check   string
		status  Status
		figures string
	}{
		{
			"longest retentions of Pub/Sub", func(s *State) {
				s.Subscription.Value.MessageRetentionDuration, s.Topic.Value.MessageRetentionDuration = inDays(31), inDays(31)
			}, "receipt retention", OK, "receipts 100d >= 31d + 31d + 31d + 72h = 96d",
		},
		{
			"least policy for a shorter subscription", func(s *State) {
				s.Subscription.Value.MessageRetentionDuration, s.Schema.Value.PolicyDays = inDays(6), 47
			}, "receipt retention", OK, "receipts 47d >= 6d + 31d + 7d + 72h = 47d",
		},
		{
			"seek to acknowledged messages", func(s *State) {
				s.Topic.Value.MessageRetentionDuration = nil
				s.Subscription.Value.MessageRetentionDuration, s.Subscription.Value.RetainAckedMessages = inDays(31), true
				s.Schema.Value.PolicyDays = 95
			}, "receipt retention", Fail, "receipts 95d < 31d + 31d + 31d + 72h = 96d",
		},
		{
			"no dead letters", func(s *State) {
				s.Subscription.Value.DeadLetterPolicy, s.DeadLetters = nil, Reading[DeadLetters]{}
			}, "receipt retention", OK, "7d + 0s + 7d + 72h = 17d",
		},
		{
			"dead-letter subscription expires", func(s *State) { s.DeadLetters.Value.Subscriptions[0].ExpirationPolicy = nil },
			"dead-letter retention", Fail, "after 31d without a pull",
		},
		{
			"dead-letter retention of a day", func(s *State) {
				s.DeadLetters.Value.Subscriptions[0].MessageRetentionDuration = inDays(1)
			}, "dead-letter retention", Warn, "1d < 7d",
		},
		{
			"dead-letter subscription detached", func(s *State) { s.DeadLetters.Value.Subscriptions[0].Detached = true },
			"dead-letter subscription", Fail, "drops the dead letters",
		},
		{
			"subscription expires", func(s *State) { s.Subscription.Value.ExpirationPolicy = nil },
			"subscription expiry", Warn, "deleted after 31d",
		},
		{
			"subscription detached", func(s *State) { s.Subscription.Value.Detached = true },
			"subscription", Fail, "detached",
		},
		{
			"topic deleted", func(s *State) { s.Subscription.Value.Topic = deletedTopic },
			"subscription", Fail, "deleted",
		},
		{
			"topic without retention", func(s *State) { s.Topic.Value.MessageRetentionDuration = nil },
			"topic retention", Warn, "topic 0s < subscription 7d",
		},
		{
			"binary messages", func(s *State) { s.Topic.Value.SchemaSettings.Encoding = pubsubpb.Encoding_BINARY },
			"message schema", Fail, "reads JSON",
		},
		{
			"conditional grant", func(s *State) {
				policy := `{"bindings": [{"role": "roles/pubsub.publisher", "members": ["` + testAgent + `"], "condition": {"title": "t"}}]}`
				s.PublisherPolicy.Err = protojson.Unmarshal([]byte(policy), s.PublisherPolicy.Value)
				s.PublisherPolicy.Read = s.PublisherPolicy.Err == nil
			}, "dead-letter right to publish", Fail, "lacks roles/pubsub.publisher",
		},
		{
			"no role", func(s *State) { s.Function.Value.DatabaseRole = "" },
			"database role", Warn, "all rights of its service account",
		},
		{
			"unknown role", func(s *State) { s.Function.Value.DatabaseRole = "other" },
			"database role", Fail, "no role other",
		},
		{
			"database without roles", func(s *State) { s.Schema.Value.Roles = nil },
			"database role", Fail, "the Spanner emulator has none",
		},
		{
			"role cannot settle", func(s *State) {
				s.Schema.Value.Roles = map[string][]string{"settleonce_function": {"SELECT ledger_movements"}}
			}, "database role", Fail, "lacks INSERT ledger_movements",
		},
		{
			"role can delete", func(s *State) {
				s.Schema.Value.Roles["settleonce_function"] = append(s.Schema.Value.Roles["settleonce_function"], "DELETE settlement_receipts")
			}, "database role", Warn, "has DELETE settlement_receipts",
		},
		{
			"function not named", func(s *State) { s.Function = Reading[Function]{Err: errNoFunction} },
			"bank key lifetime", Unknown, "--function",
		},
		{
			"function not named, second check", func(s *State) { s.Function = Reading[Function]{Err: errNoFunction} },
			"ack deadline", Unknown, `see "bank key lifetime"`,
		},
		{
			"profile without a lifetime", func(s *State) { s.Function.Value.KeyLifetime = 0 },
			"bank key lifetime", Unknown, "profile",
		},
		{
			"trigger on another topic", func(s *State) { s.Function.Value.TriggerTopic = "projects/p/topics/old" },
			"function", Fail, "projects/p/topics/old",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := asDeployed(t)
			tt.change(&s)
			f := find(t, Examine(s), tt.check)
			if f.Status != tt.status || !strings.Contains(f.Figures, tt.figures) {
				t.Errorf("%v %q, want %v %q", f.Status, f.Figures, tt.status, tt.figures)
			}
		})
	}
}

// TestRemedySurvivesShell: a shell runs text between unescaped grave accents.
func TestRemedySurvivesShell(t *testing.T) {
	t.Parallel()
	s := asDeployed(t)
	s.Schema.Value.VersionRetention = time.Hour
	remedy := find(t, Examine(s), "point-in-time recovery").Remedy
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `gcloud() { for word; do last=$word; done; printf %s "$last"; }; `+remedy)
	out, err := cmd.Output()
	if want := "--ddl=ALTER DATABASE `d` SET OPTIONS (version_retention_period = '7d')"; err != nil || string(out) != want {
		t.Errorf("%s\npasses %q, %v; want %q", remedy, out, err, want)
	}
}

func TestWorst(t *testing.T) {
	t.Parallel()
	for want, statuses := range map[Status][]Status{
		OK: {OK}, Warn: {OK, Warn, OK}, Unknown: {Unknown, Warn, OK}, Fail: {Unknown, Fail, Unknown, Warn, OK},
	} {
		var findings []Finding
		for _, status := range statuses {
			findings = append(findings, Finding{Status: status})
		}
		if got := Worst(findings); got != want {
			t.Errorf("%v: %v, want %v", statuses, got, want)
		}
	}
}

func TestMissingCredentialsAreReportedOnce(t *testing.T) {
	t.Parallel()
	noCredentials := func(client string) error {
		return fmt.Errorf("connect to %s: credentials: could not find default credentials. See https://example.com for more information", client)
	}
	s := State{Rights: true}
	s.Schema.Err, s.Subscription.Err, s.Function.Err = noCredentials("Spanner"), noCredentials("Pub/Sub"), noCredentials("Cloud Functions")
	var remedies int
	for i, f := range Examine(s) {
		if f.Status != Unknown || i > 0 && f.Figures != `see "schema"` {
			t.Errorf("%+v", f)
		}
		if strings.Contains(f.Remedy, "gcloud auth application-default login") {
			remedies++
		}
	}
	if remedies != 1 {
		t.Errorf("%d findings say how to log in, want 1", remedies)
	}
}

func TestFunctionWithProfileHasNoKeyLifetime(t *testing.T) {
	t.Parallel()
	f, err := newFunction(func(name string) string {
		return map[string]string{"SETTLE_TIMEOUT": "9m", "BANK_URL": "https://bank.example", "BANK_PROFILE": "/profile.json"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Function{Settle: 9 * time.Minute, BankSend: 20 * time.Second, Bank: true}
	if f != want {
		t.Errorf("%+v, want %+v", f, want)
	}
	if _, err := newFunction(func(string) string { return "soon" }); err == nil {
		t.Error("accepts a time limit of soon")
	}
}
