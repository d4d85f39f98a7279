package main

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	admin "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/go-json-experiment/json"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/fakebank"
)

// start starts the program and returns where it is once it is ready.
func start(t *testing.T, env []string, args ...string) (*exec.Cmd, ready, func() string) {
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

// emulatorAt leads a client to an emulator.
func emulatorAt(host string) []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint("passthrough:///" + host), option.WithoutAuthentication(), option.WithTelemetryDisabled(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

// publishTo publishes one message through Pub/Sub.
func publishTo(t *testing.T, line ready, data string) {
	t.Helper()
	client, err := pubsub.NewClient(t.Context(), projectOf(line.Topic), emulatorAt(line.PubSubEmulatorHost)...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	publisher := client.Publisher(line.Topic)
	defer publisher.Stop()
	if _, err := publisher.Publish(t.Context(), &pubsub.Message{Data: []byte(data)}).Get(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// databaseOf opens the program's database.
func databaseOf(t *testing.T, line ready) *spanner.Client {
	t.Helper()
	cfg := spanner.ClientConfig{DisableNativeMetrics: true}
	client, err := spanner.NewClientWithConfig(t.Context(), line.Database, cfg, emulatorAt(line.SpannerEmulatorHost)...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// await returns the ledger once it holds what is asked for.
func await(t *testing.T, client *spanner.Client, what string, holds func(audit.Snapshot) bool) (stored audit.Snapshot) {
	t.Helper()
	eventually(t, what, func() bool {
		var err error
		if stored, err = audit.Read(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		return holds(stored)
	})
	return stored
}

func post(t *testing.T, url, body string) (code int, answer string) {
	t.Helper()
	return request(t, http.MethodPost, url, body)
}

// request makes a request, with the token that the fake bank wants.
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

// settleOne sends one payout the whole way, and checks that both functions answer.
func settleOne(t *testing.T, line ready) {
	t.Helper()
	publishTo(t, line, samplePayout)
	client := databaseOf(t, line)
	defer client.Close()
	stored := await(t, client, "the movement", func(s audit.Snapshot) bool { return s.Movement(sampleID) != nil })
	m := stored.Movement(sampleID)
	if m.AccountID != "reserve-claims" || m.AmountCents != 4731 || m.Currency != "USD" || len(stored.Violations(false)) > 0 {
		t.Errorf("movement %+v, violations %q", m, stored.Violations(false))
	}
	if code, answer := post(t, line.ReconcileURL, "{}"); code != http.StatusOK || !strings.Contains(answer, `"due":0`) {
		t.Errorf("ReconcileBank answered %d %s", code, answer)
	}
}

// atBank returns the fake bank's ledger.
func atBank(t *testing.T, line ready) (ledger fakebank.AdminLedger) {
	t.Helper()
	code, text := request(t, http.MethodGet, line.BankURL+"/admin/ledger", "")
	if err := json.Unmarshal([]byte(text), &ledger); err != nil || code != http.StatusOK {
		t.Fatalf("the bank's ledger: %d %s", code, text)
	}
	return ledger
}

// payOne has the bank pay one payout, and lets the scheduler's ticks do the rest.
func payOne(t *testing.T, line ready) {
	t.Helper()
	client := databaseOf(t, line)
	defer client.Close()
	reaches := func(state transfer.State) audit.Snapshot {
		return await(t, client, string(state), func(s audit.Snapshot) bool {
			return len(s.Instructions) == 1 && s.Instructions[0].State == state
		})
	}
	publishTo(t, line, bankPayout)
	reaches(transfer.StateAccepted)
	if err := makeOlder(t.Context(), client, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	reaches(transfer.StateConfirmed)
	key := transfer.InstructionKey(bankID).String()
	if code, text := post(t, line.BankURL+"/admin/status", `{"client_reference":"`+key+`","status":"RETURNED"}`); code != http.StatusNoContent {
		t.Errorf("moving the transfer was answered %d %s", code, text)
	}
	if err := makeOlder(t.Context(), client, 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	stored := reaches(transfer.StateReturned)
	if r := reversalOf(stored, bankID); r == nil || r.AmountCents != 18250 || len(stored.Violations(false)) > 0 {
		t.Errorf("reversal %+v, violations %q", r, stored.Violations(false))
	}
	ledger := atBank(t, line)
	if len(ledger.Transfers) != 1 || len(ledger.Violations) > 0 || ledger.Transfers[0].Key != key || ledger.Transfers[0].AmountMinor != 18250 {
		t.Errorf("the bank's ledger: %+v", ledger)
	}
}

// end sends a signal, and checks that the program ends well.
func end(t *testing.T, cmd *exec.Cmd, signal os.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, cmd.Wait()); code != exitOK {
		t.Errorf("exit code %d after %s; want 0", code, signal)
	}
}

func TestServeOnEmulatorsOfItsOwn(t *testing.T) {
	t.Parallel()
	// A target would make the framework serve that one only, at another path.
	cmd, line, errOut := start(t, []string{"FUNCTION_TARGET=SettlePayout"}, "--listen", anyPort, "--reconcile-every", "200ms")
	settleOne(t, line)
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
		publish + "FILE --topic " + line.Topic, publish + "- --topic " + line.Topic, "echo '" + bankPayout,
		"' " + line.BankURL + "/admin/ledger\n", "' " + line.BankURL + "/admin/status ", "cp-answer-lost, ",
		"export SPANNER_EMULATOR_HOST=" + line.SpannerEmulatorHost + " SPANNER_DATABASE=" + line.Database + "\n", "export BANK_URL=" + line.BankURL + " ",
		"\n  go run ./cmd/settlectl reconcile --due\n  go run ./cmd/settlectl reconcile " + bankID + "\n",
	} {
		if !strings.Contains(errOut(), help) {
			t.Errorf("standard error lacks %q", help)
		}
	}
	if strings.Contains(errOut(), "UPDATE ") {
		t.Error("standard error advises to change tables by hand")
	}
}

func TestServeOnSharedEmulatorsLeavesNothing(t *testing.T) {
	t.Parallel()
	spannerShared, pubsubShared := emulatortest.Spanner(t), emulatortest.PubSub(t)
	env := []string{"SPANNER_EMULATOR_HOST=" + spannerShared.GRPC, "PUBSUB_EMULATOR_HOST=" + pubsubShared.Host}
	cmd, line, _ := start(t, env, "--listen", anyPort)
	settleOne(t, line)
	// The function drains at SIGTERM and then sends it to its own process.
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

func TestServeInMemory(t *testing.T) {
	withoutEmulators(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"--memory", "--listen", anyPort}, streams{out: write, err: io.Discard})
	}()
	line := readReady(t, read)
	if !line.Memory || line.Database != "" || line.Topic != "" || line.SpannerEmulatorHost != "" || line.PubSubEmulatorHost != "" {
		t.Errorf("ready line %+v", line)
	}
	if code, text := post(t, line.PublishURL, samplePayout); code != http.StatusOK || text != `{"message_id":"1"}` {
		t.Errorf("published: %d %s", code, text)
	}
	// A conflict shows the settlement without settling anything itself.
	probe := `{"message":{"messageId":"p","data":"` + base64.StdEncoding.EncodeToString([]byte(samplePayout)) + `"}}`
	eventually(t, "a duplicate", func() bool {
		_, text := post(t, line.SettleURL, probe)
		return strings.Contains(text, `"outcome":"duplicate"`)
	})
	if code, text := post(t, line.PublishURL, bankPayout); code != http.StatusOK {
		t.Errorf("published: %d %s", code, text)
	}
	eventually(t, "the transfer", func() bool { return len(atBank(t, line).Transfers) == 1 })
	if code, _ := post(t, line.PublishURL, strings.Repeat(" ", maxMessageBytes+1)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a message too large for Pub/Sub was answered %d", code)
	}
	cancel()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d after the interruption; want 0", code)
	}
}
