package rehearsal

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/go-cmp/cmp"

	"github.com/settleonce/settleonce/internal/audit"
)

func base64Of(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// token is the bank's; it must never appear in output and arguments.
const token = "t0ken-of-the-bank"

const database = "projects/" + project + "/instances/settleonce/databases/settleonce"

// scripts runs the deployment's scripts.
type scripts struct {
	root     string // of the project
	dir      string // with the settings and their files
	env      []string
	settings map[string]string
}

// newScripts sets up scripts whose gcloud always fails.
func newScripts(t *testing.T) *scripts {
	t.Helper()
	s := &scripts{root: filepath.Join("..", ".."), dir: t.TempDir(), settings: map[string]string{
		"PROJECT_ID": project, "PUBLISHERS": "user:claims@example.com", "OPERATORS": "group:payouts@example.com",
		"BANK_URL": "https://bank.example", "BANK_PROFILE_FILE": "profile.json", "DEFAULT_CURRENCY": "USD",
		"MONITORING_DIR": "monitoring", "ALERT_CHANNELS": "projects/" + project + "/notificationChannels/1",
		// The least values: the emulator really waits.
		"RETRY_MIN": "1s", "RETRY_MAX": "1s",
	}}
	s.write(t, "profile.json", `{"name":"b","key_lifetime":"30m","visibility_lag":"20s","reject":[],"not_found":{"empty_list":true}}`)
	if err := os.CopyFS(filepath.Join(s.dir, "monitoring"), os.DirFS(filepath.Join("..", "monitoring"))); err != nil {
		t.Fatal(err)
	}
	s.write(t, "none/gcloud", "#!/bin/sh\necho gcloud was called >&2\nexit 1\n")
	if err := os.Chmod(filepath.Join(s.dir, "none", "gcloud"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	s.env = append(withoutGcloud(os.Environ()), "PATH="+filepath.Join(s.dir, "none")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return s
}

func (s *scripts) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(s.dir, name)
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a script with the settings, and returns its output.
func (s *scripts) run(t *testing.T, stdin, name string, args ...string) (string, error) {
	t.Helper()
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.settings)) {
		fmt.Fprintf(&text, "%s=%q\n", name, s.settings[name])
	}
	s.write(t, "settings.env", text.String())
	cmd := exec.CommandContext(t.Context(), filepath.Join(s.root, "deploy", name), append(args, filepath.Join(s.dir, "settings.env"))...)
	cmd.Env, cmd.Stdin = s.env, strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if strings.Contains(out.String(), token) {
		t.Errorf("the bank's token is in the output of %s:\n%s", name, out.String())
	}
	return out.String(), err
}

// must is run for a script that has to succeed.
func (s *scripts) must(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	text, err := s.run(t, stdin, name, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
	return text
}

// refuses is run for a script that has to fail with want in its output.
func (s *scripts) refuses(t *testing.T, want, stdin, name string, args ...string) {
	t.Helper()
	text, err := s.run(t, stdin, name, args...)
	if err == nil || !strings.Contains(text, want) {
		t.Errorf("%s: %v, want %q in\n%s", name, err, want, text)
	}
}

// rehearsal is a deployment in a project.
type rehearsal struct {
	*scripts
	cloud  *cloud
	gcloud *gcloud
}

// TestDeploymentLifecycle runs its parts one after the other in the same project.
func TestDeploymentLifecycle(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	r := &rehearsal{scripts: newScripts(t), cloud: c, gcloud: startGcloud(t, c.port)}
	r.env = r.gcloud.env
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"the first run creates everything", r.first},
		{"each account has exactly its roles", r.accounts},
		{"the upload has the files that gcloud lists", r.uploaded},
		{"the functions are built without DirectPath", r.builtWithoutDirectPath},
		{"a published payout settles", r.settles},
		{"doctor finds no fault", r.examined},
		{"the second run changes nothing", r.second},
		{"a topic or region that changes is refused", r.refusesToMove},
		{"an upgrade keeps the subscription and its backlog", r.upgrade},
		{"teardown keeps the data", r.teardown},
		{"a new deployment uses the kept data", r.again},
		{"teardown with the data leaves no resource", r.teardownWithData},
		{"no token on a command line", r.noToken},
	} {
		if !t.Run(part.name, part.test) {
			return // the next parts would fail for the same reason
		}
	}
}

func (r *rehearsal) first(t *testing.T) {
	r.refuses(t, "has no version: run deploy.sh --bank-token FILE", "", "deploy.sh")
	text := r.must(t, token+"\n", "deploy.sh", "--bank-token", "-")
	if !changes(text, "creating", "function settle-payout") || !changes(text, "changing", "subscription eventarc-") {
		t.Errorf("output of the first run\n%s", text)
	}
	version := r.cloud.get("secretmanager", "projects/"+project+"/secrets/settleonce-bank-token/versions/1")
	if got := at[string](version, "payload", "data"); got != base64Of(token) {
		t.Errorf("stored token %v", got)
	}
	function := r.cloud.get("cloudfunctions", "projects/"+project+"/locations/europe-west1/functions/settle-payout")
	service := at[doc](function, "serviceConfig")
	want := doc{
		"ingressSettings": "ALLOW_INTERNAL_ONLY", "availableMemory": "2Gi", "availableCpu": "1", "timeoutSeconds": 90.0,
		"maxInstanceCount": 20.0, "maxInstanceRequestConcurrency": 32.0,
	}
	for name, value := range want {
		if service[name] != value {
			t.Errorf("%s of settle-payout is %v, want %v", name, service[name], value)
		}
	}
	if policy := at[string](function, "eventTrigger", "retryPolicy"); policy != "RETRY_POLICY_RETRY" {
		t.Errorf("retry policy %q: without retries a message is delivered once", policy)
	}
	r.wantSubscription(t, "settle-payout-000001", "120 604800s 1s 1s payouts-dead-letters 100")
}

// subscription returns the only subscription with part in its name.
func (r *rehearsal) subscription(t *testing.T, part string) string {
	t.Helper()
	list := r.command(t, "pubsub", "subscriptions", "list", "--format=value(name.basename())", "--filter=name~"+part)
	if list == "" || strings.Contains(list, "\n") {
		t.Fatalf("subscriptions with %q in their names: %q, want one", part, list)
	}
	return list
}

func (r *rehearsal) wantSubscription(t *testing.T, part, want string) {
	t.Helper()
	got := r.command(t, "pubsub", "subscriptions", "describe", r.subscription(t, part), "--format=value[separator=' '](ackDeadlineSeconds,"+
		"messageRetentionDuration,retryPolicy.minimumBackoff,retryPolicy.maximumBackoff,deadLetterPolicy.deadLetterTopic.basename(),"+
		"deadLetterPolicy.maxDeliveryAttempts)")
	if got != want {
		t.Errorf("subscription %s: %s, want %s", part, got, want)
	}
}

// command runs a gcloud command of the test.
func (r *rehearsal) command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(r.gcloud.bin, "gcloud"), args...)
	cmd.Env = append(slices.Clone(r.env), "CLOUDSDK_CORE_PROJECT="+project, "CLOUDSDK_CORE_DISABLE_PROMPTS=1")
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("gcloud %s: %v\n%s", strings.Join(args, " "), err, &problem)
	}
	return strings.TrimSpace(string(out))
}

func (r *rehearsal) accounts(t *testing.T) {
	inRole := func(role string) []string {
		return []string{"roles/spanner.databaseRoleUser on settleonce as " + role, "roles/spanner.fineGrainedAccessUser on settleonce"}
	}
	secrets := []string{
		"roles/secretmanager.secretAccessor on settleonce-bank-profile", "roles/secretmanager.secretAccessor on settleonce-bank-token",
	}
	account := func(name string) string { return "serviceAccount:" + name + "@" + project + ".iam.gserviceaccount.com" }
	agent := "serviceAccount:service-" + projectNumber + "@gcp-sa-pubsub.iam.gserviceaccount.com"
	subscription := r.subscription(t, "settle-payout")
	for member, want := range map[string][]string{
		account("settleonce-settle"):    append(slices.Clone(secrets), inRole("settleonce_function")...),
		account("settleonce-reconcile"): append(slices.Clone(secrets), inRole("settleonce_function")...),
		account("settleonce-trigger"):   {"roles/run.invoker on reconcile-bank", "roles/run.invoker on settle-payout"},
		account("settleonce-build"):     {"roles/cloudbuild.builds.builder on " + project},
		account("settleonce-operator"): slices.Concat([]string{
			"roles/cloudfunctions.viewer on " + project,
			"roles/pubsub.publisher on payouts", "roles/pubsub.subscriber on payouts-dead-letters", "roles/pubsub.viewer on " + project,
			"roles/spanner.databaseReader on settleonce",
		}, secrets, inRole("settleonce_operator")),
		agent: {
			"roles/iam.serviceAccountTokenCreator on settleonce-trigger@" + project + ".iam.gserviceaccount.com",
			"roles/pubsub.publisher on payouts-dead-letters", "roles/pubsub.subscriber on " + subscription,
		},
		"user:claims@example.com":   {"roles/pubsub.publisher on payouts"},
		"group:payouts@example.com": {"roles/iam.serviceAccountTokenCreator on settleonce-operator@" + project + ".iam.gserviceaccount.com"},
		"allUsers":                  nil,
		"allAuthenticatedUsers":     nil,
	} {
		slices.Sort(want)
		if diff := cmp.Diff(want, r.cloud.granted(member)); diff != "" {
			t.Errorf("roles of %s (-want +got):\n%s", member, diff)
		}
	}
}

// publish publishes a payout as a producer.
func (r *rehearsal) publish(t *testing.T, settlement string) {
	t.Helper()
	r.command(t, "pubsub", "topics", "publish", "payouts",
		fmt.Sprintf(`--message={"settlement_id":%q,"account_id":"reserve-claims","amount_cents":4731}`, settlement))
}

// waitSettled waits until the database has exactly these settlements.
func (r *rehearsal) waitSettled(t *testing.T, want ...string) {
	t.Helper()
	client, err := spanner.NewClientWithConfig(t.Context(), database,
		spanner.ClientConfig{DisableNativeMetrics: true}, r.cloud.spanner.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var all audit.Snapshot
	if !eventually(t, time.Minute, func() bool {
		if all, err = audit.Read(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		return len(all.Movements) >= len(want)
	}) {
		t.Fatalf("%d movements, want %d; log of the function\n%s", len(all.Movements), len(want), r.cloud.run.logOf("settle-payout"))
	}
	var got []string
	for _, movement := range all.Movements {
		got = append(got, movement.SettlementID)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settled (-want +got):\n%s", diff)
	}
	for _, violation := range all.Violations(false) {
		t.Error(violation)
	}
}

// eventually waits until the condition holds, and reports whether it did in time.
func eventually(t *testing.T, limit time.Duration, holds func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (r *rehearsal) settles(t *testing.T) {
	r.publish(t, "stl-1")
	r.waitSettled(t, "stl-1")
	r.command(t, "pubsub", "topics", "publish", "reconcile", "--message=tick")
	if !eventually(t, time.Minute, func() bool {
		return strings.Contains(r.cloud.run.logOf("reconcile-bank"), `"message":"reconciler run completed"`)
	}) {
		t.Errorf("log of ReconcileBank\n%s", r.cloud.run.logOf("reconcile-bank"))
	}
}

func (r *rehearsal) second(t *testing.T) {
	r.cloud.takeWrites()
	text := r.must(t, "", "deploy.sh")
	if !strings.Contains(text, "done: 0 created, 0 changed, ") {
		t.Errorf("output of the second run\n%s", text)
	}
	if writes := r.cloud.takeWrites(); len(writes) > 0 {
		t.Errorf("writes of the second run\n%s", strings.Join(writes, "\n"))
	}
}

func (r *rehearsal) refusesToMove(t *testing.T) {
	for setting, value := range map[string]string{
		"PAYOUTS_TOPIC": "payments", "RECONCILE_TOPIC": "ticks", "REGION": "europe-west4", "SPANNER_CONFIG": "regional-europe-west4",
		"DEAD_LETTER_TOPIC": "other-letters",
	} {
		before, had := r.settings[setting]
		r.settings[setting] = value
		r.refuses(t, value, "", "deploy.sh")
		if writes := r.cloud.takeWrites(); len(writes) > 0 {
			t.Errorf("%s=%s was refused after the writes\n%s", setting, value, strings.Join(writes, "\n"))
		}
		r.settings[setting] = before
		if !had {
			delete(r.settings, setting)
		}
	}
}

func (r *rehearsal) upgrade(t *testing.T) {
	before := r.subscription(t, "settle-payout")
	r.cloud.run.running["settle-payout"].stop() // so that the next payout waits
	r.publish(t, "stl-2")
	r.cloud.takeWrites()
	maps.Copy(r.settings, map[string]string{
		"SETTLE_TIMEOUT": "30s", "SETTLE_MEMORY": "1Gi", "SUBSCRIPTION_RETENTION": "8d", "TOPIC_RETENTION": "9d", "PAYOUT_SCHEMA": "",
		"DEAD_LETTER_RETENTION": "30d", "SPANNER_PROCESSING_UNITS": "2000", "SPANNER_BACKUP_CRON": "0 4 * * *", "SPANNER_VERSION_RETENTION": "6d",
		"RECONCILE_CRON": "*/2 * * * *", "RECONCILE_ACK_DEADLINE": "200s", "ALERT_CHANNELS": "",
	})
	r.write(t, "profile.json", `{"name":"b","key_lifetime":"40m","visibility_lag":"20s","reject":[],"not_found":{"empty_list":true}}`)
	replaceIn(t, r.dir, "monitoring/metrics/settleonce_settlements.yaml", "description: ", "description: As before, ")
	replaceIn(t, r.dir, "monitoring/dashboard.json", `"title": "`, `"title": "As before, `)
	r.write(t, "new-token", token+"-2")

	plan := r.must(t, "", "deploy.sh", "--plan", "--bank-token", filepath.Join(r.dir, "new-token"))
	if writes := r.cloud.takeWrites(); len(writes) > 0 {
		t.Errorf("writes of the plan\n%s", strings.Join(writes, "\n"))
	}
	done := r.must(t, "", "deploy.sh", "--bank-token", filepath.Join(r.dir, "new-token"))
	for _, resource := range []string{
		"instance settleonce", "version retention of database settleonce", "backup schedule daily", "topic payouts:", "topic payouts-dead-letters",
		"subscription payouts-dead-letters", "the bank's profile", "function settle-payout", "function reconcile-bank", "subscription " + before,
		"of reconcile-bank", "job reconcile-bank", "metric settleonce_settlements", "dashboard Settle Once", "alert Settle Once: conflicts",
	} {
		if !changes(plan, "would change", resource) || !changes(done, "changing", resource) {
			t.Errorf("%s is missing in the plan or in the run", resource)
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s", plan, done)
	}
	r.waitSettled(t, "stl-1", "stl-2")
	if after := r.subscription(t, "settle-payout"); after != before {
		t.Errorf("the subscription was %s and is %s", before, after)
	}
	r.wantSubscription(t, "settle-payout", "120 691200s 1s 1s payouts-dead-letters 100")
	limits := r.command(t, "functions", "describe", "settle-payout", "--region=europe-west1",
		"--format=value(serviceConfig.environmentVariables.GOGC,serviceConfig.environmentVariables.GOMEMLIMIT)")
	if want := "400\t819MiB"; limits != want { // of 1Gi
		t.Errorf("garbage collector %q, want %q", limits, want)
	}
	r.second(t)
}

// changes reports whether a script's output has a line with the verb and the resource.
func changes(text, verb, resource string) bool {
	for line := range strings.Lines(text) {
		if rest, is := strings.CutPrefix(strings.TrimSpace(line), verb); is && strings.Contains(rest, resource) {
			return true
		}
	}
	return false
}

func (r *rehearsal) teardown(t *testing.T) {
	r.refuses(t, "nothing was deleted", "yes\n", "teardown.sh")
	if writes := r.cloud.takeWrites(); len(writes) > 0 {
		t.Errorf("writes without a confirmation\n%s", strings.Join(writes, "\n"))
	}
	r.must(t, project+"\n", "teardown.sh")
	r.waitSettled(t, "stl-1", "stl-2")
	if got := r.command(t, "spanner", "databases", "describe", "settleonce", "--instance=settleonce", "--format=value(enableDropProtection)"); got != "True" {
		t.Errorf("deletion protection of the database: %q", got)
	}
	left := r.command(t, "pubsub", "topics", "list", "--format=value(name.basename())", "--sort-by=name")
	if left != "payouts\npayouts-dead-letters\nreconcile" {
		t.Errorf("topics left: %q", left)
	}
	r.subscription(t, "payouts-dead-letters")
	r.wantGone(t, "cloudfunctions", "eventarc", "cloudscheduler", "secretmanager", "iam", "logging", "monitoring")
}

// wantGone fails for each remaining resource of an API.
func (r *rehearsal) wantGone(t *testing.T, apis ...string) {
	t.Helper()
	if policy := r.command(t, "projects", "get-iam-policy", project, "--flatten=bindings[].members", "--format=value(bindings.members)"); policy != "" {
		t.Errorf("the project's policy still names %s", policy)
	}
	r.cloud.mu.Lock()
	defer r.cloud.mu.Unlock()
	for left := range r.cloud.docs {
		if slices.Contains(apis, left.api) {
			t.Errorf("left: %s %s", left.api, left.name)
		}
	}
}

func (r *rehearsal) again(t *testing.T) {
	r.settings["MONITORING_DIR"] = "none" // tested twice already
	r.must(t, token, "deploy.sh", "--bank-token", "-")
	r.publish(t, "stl-3")
	r.waitSettled(t, "stl-1", "stl-2", "stl-3")
}

func (r *rehearsal) teardownWithData(t *testing.T) {
	r.must(t, project+"\n", "teardown.sh", "--with-data")
	r.wantGone(t, "cloudfunctions", "eventarc", "cloudscheduler", "secretmanager", "iam", "logging", "monitoring", "spanner")
	if left := r.command(t, "pubsub", "topics", "list", "--format=value(name.basename())"); left != "" {
		t.Errorf("topics left: %q", left)
	}
	if left := r.command(t, "spanner", "instances", "list", "--format=value(name.basename())"); left != "" {
		t.Errorf("instances left: %q", left)
	}
}

func (r *rehearsal) noToken(t *testing.T) {
	ran := r.gcloud.commands(t)
	for _, command := range ran {
		if strings.Contains(strings.Join(command.Args, " "), token) {
			t.Errorf("the bank's token is in the arguments %q", command.Args)
		}
	}
	t.Logf("%d gcloud commands", len(ran))
}

// logOf returns the log of a function's instance.
func (p *platform) logOf(name string) string {
	p.cloud.mu.Lock()
	defer p.cloud.mu.Unlock()
	running := p.running[path.Base(name)]
	if running == nil {
		return ""
	}
	text, err := os.ReadFile(running.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}
