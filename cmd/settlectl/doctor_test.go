package main

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	spanneradmin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/doctor"
	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/schema"
)

// examined is the JSON of doctor.
type examined struct {
	Status string `json:"status"`
	Checks []struct {
		Check   string `json:"check"`
		Status  string `json:"status"`
		Figures string `json:"figures"`
		Remedy  string `json:"remedy"`
	} `json:"checks"`
}

// testDeployment is a deployment on the emulators with warnings and without faults.
func testDeployment(t *testing.T) (env map[string]string, subscription, function, endpoint string) {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	database := emulatortest.Database(t, statements)
	pubsub := emulatortest.PubSub(t)
	t.Setenv("SPANNER_EMULATOR_HOST", emulatortest.Spanner(t).GRPC)
	t.Setenv("PUBSUB_EMULATOR_HOST", pubsub.Host)
	keepVersions(t, database)

	id := "doctor-" + strings.ToLower(rand.Text())
	topic, dead := "projects/"+testProject+"/topics/"+id, "projects/"+testProject+"/topics/dead-"+id
	subscription = "projects/" + testProject + "/subscriptions/" + id
	if err := pubsub.CreateTopic(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	client, err := vkit.NewSubscriptionAdminClient(t.Context(), pubsub.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: "projects/" + testProject + "/subscriptions/dead-" + id, Topic: dead, ExpirationPolicy: &pubsubpb.ExpirationPolicy{},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = pubsub.CreatePushSubscription(t.Context(), emulator.Subscription{
		Topic: topic, Name: subscription, PushEndpoint: "http://127.0.0.1:1/",
		AckDeadline: 120 * time.Second, MinBackoff: 10 * time.Second, MaxBackoff: 600 * time.Second,
		DeadLetterTopic: dead, MaxDeliveryAttempts: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	function = "projects/" + testProject + "/locations/europe-west1/functions/settle-payout"
	endpoint = serveFunction(t, fmt.Sprintf(`{"name": %q, "serviceConfig": {"timeoutSeconds": 90, "environmentVariables": {"SPANNER_DATABASE": %q}},
			"eventTrigger": {"pubsubTopic": %q, "retryPolicy": "RETRY_POLICY_RETRY"}}`, function, database, topic))
	return map[string]string{"SPANNER_DATABASE": database}, subscription, function, endpoint
}

// serveFunction serves an answer of the Cloud Functions API for every function.
func serveFunction(t *testing.T, answer string) (endpoint string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		_, _ = fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// keepVersions sets the version retention, which the emulator otherwise does not report.
func keepVersions(t *testing.T, name string) {
	t.Helper()
	admin, err := spanneradmin.NewDatabaseAdminClient(t.Context(), emulatortest.Spanner(t).ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	operation, err := admin.UpdateDatabaseDdl(t.Context(), &databasepb.UpdateDatabaseDdlRequest{Database: name, Statements: []string{
		"ALTER DATABASE `" + name[strings.LastIndex(name, "/")+1:] + "` SET OPTIONS (version_retention_period = '7d')",
	}})
	if err == nil {
		err = operation.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestDoctorExitCodes(t *testing.T) {
	env, subscription, function, endpoint := testDeployment(t)
	deployed := []string{"--function", function, "--functions-endpoint", endpoint}
	tests := []struct {
		name, status string
		args         []string
		code         int
	}{
		{"no fault", "warn", append(deployed, "--without-rights"), term.ExitOK},
		{"rights, which the emulator does not have", "unknown", deployed, term.ExitError},
		{"no function", "unknown", []string{"--function-timeout=90s", "--without-rights"}, term.ExitError},
		{"fault before unknown", "fail", []string{"--function-timeout=120s"}, term.ExitNo},
		{"no subscription", "unknown", []string{"--subscription=projects/" + testProject + "/subscriptions/none"}, term.ExitError},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := settlectl(t, nil, env, append([]string{"doctor", "--subscription", subscription, "--output=json"}, tt.args...)...)
			said := parse[examined](t, got.out)
			if got.code != tt.code || said.Status != tt.status || got.errOut != "" || len(said.Checks) < 16 {
				t.Errorf("exit code %d, status %s, want %d, %s; standard error %q; %d checks: %+v", got.code, said.Status, tt.code, tt.status, got.errOut, len(said.Checks), said)
			}
		})
	}

	told := settlectl(t, nil, env, append([]string{"doctor", "--subscription", subscription}, deployed...)...).out
	if strings.Contains(told, "rpc error") || strings.Contains(told, "Unimplemented") || !strings.Contains(told, "the Pub/Sub emulator keeps no policies") {
		t.Errorf("about rights in the emulator:\n%s", told)
	}
	told = settlectl(t, nil, env, "doctor", "--subscription=projects/"+testProject+"/subscriptions/none").out
	if n := strings.Count(told, "NotFound: Subscription does not exist"); n != 1 || strings.Contains(told, "rpc error") {
		t.Errorf("the missing subscription is reported %d times in\n%s", n, told)
	}
	told = settlectl(t, nil, env, "doctor", "--subscription", subscription, "--function-timeout=120s").out
	if want := "\nRemedies\n"; !strings.Contains(told, want) || !strings.Contains(told, "\n    gcloud pubsub subscriptions update ") {
		t.Errorf("no %q with a command in\n%s", want, told)
	}

	got := settlectl(t, nil, env, append([]string{"doctor", "--subscription", subscription, "--without-rights"}, deployed...)...)
	if want := "receipts 100d >= 7d + 7d + 0s + 72h = 17d"; got.code != term.ExitOK || !strings.Contains(got.out, want) {
		t.Errorf("exit code %d, standard output without %q:\n%s", got.code, want, got.out)
	}
}

// TestRemediesCanBeCopied: each command stands on one line, whatever the width.
func TestRemediesCanBeCopied(t *testing.T) {
	t.Parallel()
	command := `gcloud spanner databases ddl update d --instance=i --ddl="ALTER TABLE settlement_receipts REPLACE ROW DELETION POLICY (OLDER_THAN(applied_at, INTERVAL 100 DAY))" --project=` + strings.Repeat("p", 60)
	got := remedies([]doctor.Finding{
		{Check: "retry policy"},
		{Check: "receipts", Remedy: "lengthen the retention: " + command},
		{Check: "function", Remedy: "deploy the function with --retry"},
	})
	want := `
Remedies
  receipts
    lengthen the retention:
    ` + command + `
  function
    deploy the function with --retry
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
