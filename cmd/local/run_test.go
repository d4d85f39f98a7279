package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	admin "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/go-json-experiment/json"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// startRun starts the program, and returns its ready line and its standard error.
func startRun(t *testing.T, env []string, args ...string) (*exec.Cmd, ready, func() string) {
	t.Helper()
	cmd, stderr := startLocal(t, env, args...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if t.Failed() {
			t.Logf("standard error:\n%s", stderr)
		}
	})
	return cmd, readReady(t, stdout), stderr.String
}

// openSystem opens the database and a topic of a running program.
func openSystem(t *testing.T, line ready, topicID string) (*spanner.Client, topic) {
	t.Helper()
	sys := &system{
		project: projectOf(line.Topic), database: line.Database,
		spanner: &emulator.Spanner{GRPC: line.SpannerEmulatorHost}, pubsub: &emulator.PubSub{Host: line.PubSubEmulatorHost},
	}
	t.Cleanup(func() { _ = sys.close(t.Context()) })
	client, err := sys.openDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	opened, err := sys.openTopic(t.Context(), topicID)
	if err != nil {
		t.Fatal(err)
	}
	return client, opened
}

// await returns the ledger once holds accepts it.
func await(t *testing.T, client *spanner.Client, event string, holds func(audit.Snapshot) bool) (stored audit.Snapshot) {
	t.Helper()
	eventually(t, event, func() bool {
		var err error
		if stored, err = audit.Read(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		return holds(stored)
	})
	return stored
}

// request makes a request with the fake bank's token.
func request(t *testing.T, method, url, body string) (code int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bankToken)
	resp, err := loopback.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// settleOne publishes a payout, and checks that both functions answer.
func settleOne(t *testing.T, line ready) {
	t.Helper()
	client, payouts := openSystem(t, line, topicPayouts)
	if err := payouts.publish(t.Context(), []byte(samplePayout), nil); err != nil {
		t.Fatal(err)
	}
	stored := await(t, client, "the movement", func(s audit.Snapshot) bool { return s.Movement(sampleID) != nil })
	m := stored.Movement(sampleID)
	if m.AccountID != "reserve-claims" || m.AmountCents != 4731 || m.Currency != "USD" || len(stored.Violations(false)) > 0 {
		t.Errorf("movement %+v, violations %q", m, stored.Violations(false))
	}
	if code, answer := request(t, http.MethodPost, line.ReconcileURL, "{}"); code != http.StatusOK || !strings.Contains(answer, `"due":0`) {
		t.Errorf("ReconcileBank answered %d %s", code, answer)
	}
}

// otherTopic is a topic of --topic.
const otherTopic = "claims"

// settleOther publishes a payout to the other topic, and checks the sources that
// settlectl list movements --json prints.
func settleOther(t *testing.T, line ready) {
	t.Helper()
	project := "projects/" + projectOf(line.Topic)
	if want := []string{project + "/topics/" + otherTopic}; !slices.Equal(line.OtherTopics, want) {
		t.Errorf("other topics %q; want %q", line.OtherTopics, want)
	}
	client, other := openSystem(t, line, otherTopic)
	const id = "stl-1002"
	if err := other.publish(t.Context(), []byte(strings.Replace(samplePayout, sampleID, id, 1)), nil); err != nil {
		t.Fatal(err)
	}
	await(t, client, "the movement", func(s audit.Snapshot) bool { return s.Movement(id) != nil })
	want := map[string]string{
		sampleID: project + "/subscriptions/" + topicPayouts + pushSuffix, id: project + "/subscriptions/" + otherTopic + pushSuffix,
	}
	for entry, err := range (ledger.Reader{Client: client}).Movements(t.Context(), ledger.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(entry)
		if err != nil {
			t.Fatal(err)
		}
		if of := want[entry.Movement.SettlementID]; !strings.Contains(string(text), `"source":"`+of+`"`) {
			t.Errorf("%s; want the source %q", text, of)
		}
		delete(want, entry.Movement.SettlementID)
	}
	if len(want) > 0 {
		t.Errorf("no movements from %v", want)
	}
}

// atBank returns the fake bank's ledger.
func atBank(t *testing.T, line ready) (books fakebank.AdminLedger) {
	t.Helper()
	code, text := request(t, http.MethodGet, line.BankURL+"/admin/ledger", "")
	if err := json.Unmarshal([]byte(text), &books); err != nil || code != http.StatusOK {
		t.Fatalf("the bank's ledger: %d %s", code, text)
	}
	return books
}

// payOne publishes a payout for the bank, returns its transfer, and checks that the
// scheduled runs of ReconcileBank record both.
func payOne(t *testing.T, line ready) {
	t.Helper()
	client, payouts := openSystem(t, line, topicPayouts)
	reaches := func(state transfer.State) audit.Snapshot {
		return await(t, client, string(state), func(s audit.Snapshot) bool {
			return len(s.Instructions) == 1 && s.Instructions[0].State == state
		})
	}
	if err := payouts.publish(t.Context(), []byte(bankPayout), nil); err != nil {
		t.Fatal(err)
	}
	reaches(transfer.StateAccepted)
	if err := setBack(t.Context(), client, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	reaches(transfer.StateConfirmed)
	key := transfer.InstructionKey(bankID).String()
	if code, text := request(t, http.MethodPost, line.BankURL+"/admin/status", `{"client_reference":"`+key+`","status":"RETURNED"}`); code != http.StatusNoContent {
		t.Errorf("moving the transfer was answered %d %s", code, text)
	}
	if err := setBack(t.Context(), client, 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	stored := reaches(transfer.StateReturned)
	if r := stored.Reversals; len(r) != 1 || r[0].SettlementID != bankID || r[0].AmountCents != 18250 || len(stored.Violations(false)) > 0 {
		t.Errorf("reversals %+v, violations %q", r, stored.Violations(false))
	}
	books := atBank(t, line)
	if len(books.Transfers) != 1 || len(books.Violations) > 0 || books.Transfers[0].Key != key || books.Transfers[0].AmountMinor != 18250 {
		t.Errorf("the bank's ledger: %+v", books)
	}
}

// end sends a signal, and checks the exit code.
func end(t *testing.T, cmd *exec.Cmd, signal os.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, cmd.Wait()); code != 0 {
		t.Errorf("exit code %d after %s; want 0", code, signal)
	}
}

func TestRunOnOwnEmulators(t *testing.T) {
	t.Parallel()
	// With this variable of the framework it would serve one function only, at another path.
	cmd, line, errOut := startRun(t, []string{"FUNCTION_TARGET=SettlePayout"}, "--listen", anyPort, "--reconcile-every", "200ms", "--topic", otherTopic)
	settleOne(t, line)
	settleOther(t, line)
	payOne(t, line)
	end(t, cmd, syscall.SIGINT)
	for _, address := range []string{
		line.SpannerEmulatorHost, strings.TrimPrefix(line.SpannerRESTURL, "http://"), line.PubSubEmulatorHost,
		strings.TrimPrefix(line.BankURL, "http://"),
		strings.TrimSuffix(strings.TrimPrefix(line.SettleURL, "http://"), pathSettle),
	} {
		wantRefused(t, address)
	}
	publish := "PUBSUB_EMULATOR_HOST=" + line.PubSubEmulatorHost + " go run ./cmd/settlectl publish "
	for _, help := range []string{
		"export GOFLAGS=-tags=disable_grpc_modules\n",
		publish + "FILE --topic " + line.Topic, publish + "- --topic " + line.Topic, "\nAnother topic is " + line.OtherTopics[0] + ".\n", "echo '" + bankPayout,
		"' " + line.BankURL + "/admin/ledger\n", "' " + line.BankURL + "/admin/status ", "cp-answer-lost, ",
		"export SPANNER_EMULATOR_HOST=" + line.SpannerEmulatorHost + " SPANNER_DATABASE=" + line.Database + "\n", "export BANK_URL=" + line.BankURL + " ",
		"\n  go run ./cmd/settlectl reconcile --due\n  go run ./cmd/settlectl reconcile " + bankID + "\n",
	} {
		if !strings.Contains(errOut(), help) {
			t.Errorf("standard error lacks %q", help)
		}
	}
	if strings.Contains(errOut(), "UPDATE ") {
		t.Error("the help has an SQL statement that changes a table")
	}
}

func TestRunLeavesNothingInRunningEmulators(t *testing.T) {
	t.Parallel()
	spannerShared, pubsubShared := emulatortest.Spanner(t), emulatortest.PubSub(t)
	env := []string{"SPANNER_EMULATOR_HOST=" + spannerShared.GRPC, "PUBSUB_EMULATOR_HOST=" + pubsubShared.Host}
	cmd, line, _ := startRun(t, env, "--listen", anyPort, "--topic", otherTopic)
	settleOne(t, line)
	// The function drains at SIGTERM, and then sends SIGTERM to its own process.
	end(t, cmd, syscall.SIGTERM)

	topics, err := admin.NewTopicAdminClient(t.Context(), pubsubShared.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer topics.Close()
	project := "projects/" + projectOf(line.Topic)
	if topic, err := topics.ListTopics(t.Context(), &pubsubpb.ListTopicsRequest{Project: project}).Next(); err != iterator.Done { //nolint:errorlint // as documented
		t.Errorf("left behind: topic %v, %v", topic, err)
	}
	databases, err := database.NewDatabaseAdminClient(t.Context(), spannerShared.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer databases.Close()
	if _, err := databases.GetDatabase(t.Context(), &databasepb.GetDatabaseRequest{Name: line.Database}); status.Code(err) != codes.NotFound {
		t.Errorf("left behind: the database: %v", err)
	}
}

// projectOf returns P of projects/P/….
func projectOf(name string) string {
	project, _, _ := strings.Cut(strings.TrimPrefix(name, "projects/"), "/")
	return project
}
