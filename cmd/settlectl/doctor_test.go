package main

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/emulator/emulatortest"
	"github.com/settleonce/settleonce/schema"
)

// examined is what doctor prints as JSON.
type examined struct {
	Status string `json:"status"`
	Checks []struct {
		Check   string `json:"check"`
		Status  string `json:"status"`
		Figures string `json:"figures"`
		Remedy  string `json:"remedy"`
	} `json:"checks"`
}

// TestDoctorExitCodes runs doctor against the emulators, as `make run` would set
// them up: nothing fails there, and some things warn.
func TestDoctorExitCodes(t *testing.T) {
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	database := emulatortest.Database(t, statements)
	pubsub := emulatortest.PubSub(t)
	t.Setenv("SPANNER_EMULATOR_HOST", emulatortest.Spanner(t).Host)
	t.Setenv("PUBSUB_EMULATOR_HOST", pubsub.Host)
	id := "doctor-" + strings.ToLower(rand.Text())
	subscription := "projects/" + testProject + "/subscriptions/" + id
	err = pubsub.CreatePushSubscription(t.Context(), emulator.Subscription{
		Topic: "projects/" + testProject + "/topics/" + id, Name: subscription, PushEndpoint: "http://127.0.0.1:1/",
		AckDeadline: 120 * time.Second, MinBackoff: 10 * time.Second, MaxBackoff: 600 * time.Second,
		DeadLetterTopic: "projects/" + testProject + "/topics/dead-" + id, MaxDeliveryAttempts: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SPANNER_DATABASE": database}
	tests := []struct {
		name, status string
		args         []string
		code         int
	}{
		// Its subscription of dead letters expires by default.
		{"a fault", "fail", []string{"--function-timeout=90s", "--without-rights"}, exitNo},
		{"a fault counts for more than what is unknown", "fail", nil, exitNo},
		{"nothing there", "unknown", []string{"--subscription=projects/" + testProject + "/subscriptions/none"}, exitError},
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

	got := settlectl(t, nil, env, "doctor", "--subscription", subscription, "--function-timeout=90s", "--without-rights")
	if want := "receipts 100d >= 7d + 7d + 0s + 72h = 17d"; got.code != exitNo || !strings.Contains(got.out, want) || json.Unmarshal([]byte(got.out), new(any)) == nil {
		t.Errorf("exit code %d, standard output without %q:\n%s", got.code, want, got.out)
	}
}

func TestDoctorUsage(t *testing.T) {
	t.Parallel()
	const database, subscription = "--database=projects/p/instances/i/databases/d", "--subscription=projects/p/subscriptions/s"
	for want, args := range map[string][]string{
		`--database is ""`:          {subscription},
		`--database is "d"`:         {subscription, "--database=d"},
		`--subscription is ""`:      {database},
		`--subscription is "s"`:     {database, "--subscription=s"},
		`--function is "f"`:         {database, subscription, "--function=f"},
		`both given`:                {database, subscription, "--function=projects/p/locations/l/functions/f", "--function-timeout=1s"},
		`--function-timeout is -1s`: {database, subscription, "--function-timeout=-1s"},
		`--output is "yaml"`:        {database, subscription, "--output=yaml"},
		`unknown command`:           {database, subscription, "now"},
	} {
		got := settlectl(t, nil, nil, append([]string{"doctor"}, args...)...)
		if got.code != exitError || got.out != "" || !strings.Contains(got.errOut, want) {
			t.Errorf("%q: exit code %d, standard output %q, standard error %q; want %q", args, got.code, got.out, got.errOut, want)
		}
	}
}
