package doctor

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/schema"
)

func got[T any](value T) Reading[T] { return Reading[T]{Value: value, Read: true} }

// asDeployed is everything as deploy/ makes it, with its own figures.
func asDeployed(t *testing.T) State {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	// As Spanner prints them.
	statements = append(statements,
		"ALTER DATABASE d SET OPTIONS (\n  version_retention_period = '7d'\n)",
		"CREATE ROLE settleonce_function",
		"GRANT SELECT, INSERT ON TABLE ledger_movements TO ROLE settleonce_function",
		"GRANT SELECT, INSERT, UPDATE ON TABLE settlement_receipts TO ROLE settleonce_function",
		"GRANT SELECT, INSERT, UPDATE ON TABLE settlement_conflicts TO ROLE settleonce_function",
		"GRANT SELECT, INSERT, UPDATE ON TABLE quarantined_messages TO ROLE settleonce_function",
	)
	parsed, err := parseSchema(statements)
	if err != nil {
		t.Fatal(err)
	}
	const (
		topic = "projects/p/topics/payouts"
		dead  = "projects/p/topics/payouts-dead-letters"
		agent = "serviceAccount:service-1@gcp-sa-pubsub.iam.gserviceaccount.com"
	)
	return State{
		Database: "projects/p/instances/i/databases/d", SubscriptionName: "projects/p/subscriptions/s", Rights: true,
		Schema: got(parsed),
		Subscription: got(Subscription{
			Name: "projects/p/subscriptions/s", Topic: topic, PushEndpoint: "https://example.com", AckDeadline: 120 * time.Second,
			Retention: 7 * day, Retry: true, MinBackoff: 10 * time.Second, MaxBackoff: 600 * time.Second, DeadLetterTopic: dead, MaxAttempts: 100,
		}),
		Topic: got(Topic{Name: topic, Retention: 7 * day, Schema: "projects/p/schemas/payout-v1", Encoding: "JSON"}),
		DeadLetters: got(DeadLetters{
			Topic:         Topic{Name: dead, Retention: 31 * day},
			Subscriptions: []Subscription{{Name: "projects/p/subscriptions/payouts-dead-letters", Retention: 31 * day}},
		}),
		PublisherPolicy:  got(map[string][]string{"roles/pubsub.publisher": {agent}}),
		SubscriberPolicy: got(map[string][]string{"roles/pubsub.subscriber": {agent}}),
		Function: got(Function{
			Deployed: true, Timeout: 90 * time.Second, Database: "projects/p/instances/i/databases/d", DatabaseRole: "settleonce_function",
			Limits:  Limits{Settle: 25 * time.Second, BankSend: 20 * time.Second, BankStatus: 10 * time.Second, Bank: true, KeyLifetime: 24 * time.Hour},
			Trigger: Trigger{Topic: topic, Retries: true},
		}),
	}
}

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

func TestEverythingAsDeployedIsOK(t *testing.T) {
	t.Parallel()
	findings := Examine(asDeployed(t))
	for _, f := range findings {
		if f.Status != OK || f.Remedy != "" {
			t.Errorf("%+v", f)
		}
	}
	if worst := Worst(findings); worst != OK {
		t.Errorf("the whole is %v", worst)
	}
}

// TestWhatNoEmulatorHas changes one thing at a time that the emulators cannot be
// brought to.
func TestWhatNoEmulatorHas(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		change  func(s *State)
		check   string
		status  Status
		figures string
	}{
		{
			"the longest that Pub/Sub keeps", func(s *State) {
				s.Subscription.Value.Retention, s.Topic.Value.Retention = 31*day, 31*day
			}, "receipt retention", OK, "receipts 100d >= 31d + 31d + 31d + 72h = 96d",
		},
		{
			"seek within what is acknowledged", func(s *State) {
				s.Topic.Value.Retention, s.Subscription.Value.Retention, s.Subscription.Value.RetainAcked = 0, 31*day, true
				s.Schema.Value.PolicyDays = 95
			}, "receipt retention", Fail, "receipts 95d < 31d + 31d + 31d + 72h = 96d",
		},
		{
			"no dead letters", func(s *State) {
				s.Subscription.Value.DeadLetterTopic, s.DeadLetters = "", Reading[DeadLetters]{}
			}, "receipt retention", OK, "7d + 0s + 7d + 72h = 17d",
		},
		{
			"dead letters' subscription expires", func(s *State) {
				s.DeadLetters.Value.Subscriptions[0].Expires = 31 * day
			}, "dead-letter retention", Fail, "after 31d in which nobody pulls",
		},
		{
			"dead letters for a day", func(s *State) {
				s.DeadLetters.Value.Subscriptions[0].Retention = day
			}, "dead-letter retention", Warn, "1d < 7d",
		},
		{
			"dead letters' subscription detached", func(s *State) {
				s.DeadLetters.Value.Subscriptions[0].Detached = true
			}, "dead-letter subscription", Fail, "dropped",
		},
		{
			"subscription expires", func(s *State) { s.Subscription.Value.Expires = 31 * day },
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
			"topic keeps nothing", func(s *State) { s.Topic.Value.Retention = 0 },
			"topic retention", Warn, "topic 0s < subscription 7d",
		},
		{
			"messages in binary", func(s *State) { s.Topic.Value.Encoding = "BINARY" },
			"message schema", Fail, "reads JSON",
		},
		{
			"no role", func(s *State) { s.Function.Value.DatabaseRole = "" },
			"database role", Warn, "whatever its account may",
		},
		{
			"role not there", func(s *State) { s.Function.Value.DatabaseRole = "other" },
			"database role", Fail, "no role other",
		},
		{
			"no roles at all", func(s *State) { s.Schema.Value.Roles = nil },
			"database role", Fail, "the Spanner emulator knows none",
		},
		{
			"role may not settle", func(s *State) {
				s.Schema.Value.Roles = map[string][]string{"settleonce_function": {"SELECT ledger_movements"}}
			}, "database role", Fail, "may not INSERT ledger_movements",
		},
		{
			"role may delete", func(s *State) {
				s.Schema.Value.Roles["settleonce_function"] = append(s.Schema.Value.Roles["settleonce_function"], "DELETE settlement_receipts")
			}, "database role", Warn, "may DELETE settlement_receipts",
		},
		{
			"function not read", func(s *State) { s.Function = Reading[Function]{Err: errNoFunction} },
			"ack deadline", Unknown, "--function",
		},
		{
			"profile without a lifetime", func(s *State) { s.Function.Value.Limits.KeyLifetime = 0 },
			"bank key lifetime", Unknown, "profile",
		},
		{
			"another topic's trigger", func(s *State) { s.Function.Value.Trigger.Topic = "projects/p/topics/old" },
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

// TestAShellPassesStatementsOn: what stands between grave accents is not to be run.
func TestAShellPassesStatementsOn(t *testing.T) {
	t.Parallel()
	s := asDeployed(t)
	s.Schema.Value.VersionRetention = time.Hour
	remedy := find(t, Examine(s), "point-in-time recovery").Remedy
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `gcloud() { for word; do last=$word; done; printf %s "$last"; }; `+remedy)
	said, err := cmd.Output()
	if want := "--ddl=ALTER DATABASE `d` SET OPTIONS (version_retention_period = '7d')"; err != nil || string(said) != want {
		t.Errorf("%s\npasses %q, %v; want %q", remedy, said, err, want)
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

func TestFunctionWithoutItsDefaults(t *testing.T) {
	t.Parallel()
	f, err := newFunction(func(name string) string {
		return map[string]string{"SETTLE_TIMEOUT": "9m", "BANK_URL": "https://bank.example", "BANK_PROFILE": "/profile.json"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Limits{Settle: 9 * time.Minute, BankSend: 20 * time.Second, BankStatus: 10 * time.Second, Bank: true}
	if f.Limits != want {
		t.Errorf("%+v, want %+v", f.Limits, want)
	}
	if _, err := newFunction(func(string) string { return "soon" }); err == nil {
		t.Error("a time limit of soon is taken")
	}
}
