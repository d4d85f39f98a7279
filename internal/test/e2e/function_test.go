package e2e_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"
	"github.com/go-json-experiment/json"

	_ "github.com/settleonce/settleonce" // registers the functions in the child
	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/test/child"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/schema"
)

// asFunction makes the test binary the function: the Functions Framework with the
// registered functions, as the platform builds it.
const asFunction = "SETTLEONCE_TEST_AS_FUNCTION"

func TestMain(m *testing.M) {
	if os.Getenv(asFunction) == "" {
		os.Exit(m.Run())
	}
	child.ExitWithParent()
	exitWith(funcframework.StartHostPort("127.0.0.1", os.Getenv("PORT")))
}

func exitWith(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// function is a process that serves one of the two functions.
type function struct {
	url     string
	client  *http.Client
	process *os.Process
	exited  chan struct{}
	state   *os.ProcessState // once exited
	log     *logBuffer
}

// signal returns the signal that ended the function; 0 for none.
func (f *function) signal() syscall.Signal {
	status, ok := f.state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0
	}
	return status.Signal()
}

// logBuffer collects the output of a process while it runs.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the last bytes, for failure messages.
func (b *logBuffer) String() string {
	all := b.all()
	return all[max(0, len(all)-2000):]
}

func (b *logBuffer) all() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startFunction starts a function with the environment that the platform sets, and waits
// until it listens.
func startFunction(t *testing.T, env ...string) *function {
	t.Helper()
	return startProgram(t, testBinary(t), env...)
}

func testBinary(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// startProgram is startFunction for another build of this test binary.
func startProgram(t *testing.T, program string, env ...string) *function {
	t.Helper()
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	f := &function{url: "http://" + addr + "/", client: http.DefaultClient, exited: make(chan struct{}), log: &logBuffer{}}
	cmd, _ := functionProcess(context.WithoutCancel(t.Context()), t, program, // the cleanup ends it
		append([]string{"PORT=" + port, "FUNCTION_TARGET=SettlePayout", "DEFAULT_CURRENCY=USD"}, env...)...)
	cmd.Stdout, cmd.Stderr = f.log, f.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.process = cmd.Process
	go func() {
		_ = cmd.Wait() // the state tells how it ended
		f.state = cmd.ProcessState
		close(f.exited)
	}()
	t.Cleanup(func() { f.kill() })
	f.waitUntilListening(t, addr)
	return f
}

// functionProcess returns the function's command. The process ends when this process
// ends, and when binding is closed.
func functionProcess(ctx context.Context, t *testing.T, program string, env ...string) (cmd *exec.Cmd, binding io.Closer) {
	t.Helper()
	var err error
	cmd = exec.CommandContext(ctx, program)
	cmd.Env = append(append(os.Environ(), asFunction+"=1"), env...)
	if binding, err = child.BindToParent(cmd); err != nil {
		t.Fatal(err)
	}
	return cmd, binding
}

// The test of package child shows that the kernel closes the binding of a killed parent.
func TestFunctionExitsWhenItsBindingCloses(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd, binding := functionProcess(ctx, t, testBinary(t), "PORT=0", "FUNCTION_TARGET=SettlePayout")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := binding.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != child.ExitStatus {
		t.Errorf("ended by %v, want exit status %d", err, child.ExitStatus)
	}
}

func (f *function) kill() {
	_ = f.process.Kill() // an error means that it ended already
	<-f.exited
}

func (f *function) waitUntilListening(t *testing.T, addr string) {
	t.Helper()
	waitFor(t, 20*time.Second, func() bool {
		select {
		case <-f.exited:
			t.Fatalf("the function ended: %s", f.log)
		default:
		}
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			err = conn.Close()
		}
		return err == nil
	})
}

func waitFor(t *testing.T, limit time.Duration, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %v", limit)
		}
	}
}

// waitForLog waits until the function has logged text n times.
func (f *function) waitForLog(t *testing.T, text string, n int) {
	t.Helper()
	waitFor(t, 30*time.Second, func() bool { return strings.Count(f.log.all(), text) >= n })
}

// ports counts the assigned ports. They are below the range of ports that the kernel
// chooses itself, so that no other process gets one in between.
var ports atomic.Int64

const firstPort, lastPort = 20_000, 32_000

// freeAddr returns an address with a free port.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range lastPort - firstPort {
		port := firstPort + (int64(os.Getpid())*100+ports.Add(1))%(lastPort-firstPort)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
		if err == nil {
			listener.Close()
			return addr
		}
	}
	t.Fatalf("no port is free from %d to %d", firstPort, lastPort)
	return ""
}

// database is a database with the schema for one test.
type database struct {
	name   string
	client *spanner.Client
}

func newDatabase(t *testing.T) database {
	t.Helper()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	return openDatabase(t, emulatortest.Spanner(t), emulatortest.Database(t, statements))
}

func openDatabase(t *testing.T, e *emulator.Spanner, name string) database {
	t.Helper()
	client, err := spanner.NewClientWithConfig(t.Context(), name, spanner.ClientConfig{DisableNativeMetrics: true}, e.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return database{name, client}
}

// env is the environment of a function that reaches the database through host.
func (d database) env(host string) []string {
	return []string{"SPANNER_DATABASE=" + d.name, "SPANNER_EMULATOR_HOST=" + host}
}

// snapshot reads all rows, and fails the test for each rule that they break.
func (d database) snapshot(t *testing.T) audit.Snapshot {
	t.Helper()
	all, err := audit.Read(t.Context(), d.client)
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range all.Violations(false) {
		t.Error(violation)
	}
	return all
}

// answer is an HTTP response of a function. Status 0 means that none arrived.
type answer struct {
	Status       int       `json:"-"`
	Body         string    `json:"-"`
	Outcome      string    `json:"outcome"`
	SettlementID string    `json:"settlement_id"`
	Hash         string    `json:"payload_hash"`
	AppliedAt    time.Time `json:"applied_at"`
	Known        bool      `json:"known"`
	Fields       []string  `json:"fields"`
	Reason       string    `json:"reason"`
	Member       string    `json:"member"`
	Error        string    `json:"error"`
}

func (f *function) post(ctx context.Context, header http.Header, body io.Reader) answer {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, body)
	if err != nil {
		return answer{Error: err.Error()}
	}
	request.Header = header
	response, err := f.client.Do(request)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	a := answer{Status: response.StatusCode, Body: string(text)}
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

var pushHeader = http.Header{"Content-Type": {"application/json"}}

// eventHeader is the header of an Eventarc request.
var eventHeader = http.Header{
	"Content-Type":   {"application/json"},
	"Ce-Id":          {"1001"},
	"Ce-Source":      {"//pubsub.googleapis.com/projects/p/topics/payouts"},
	"Ce-Specversion": {"1.0"},
	"Ce-Type":        {"google.cloud.pubsub.topic.v1.messagePublished"},
	"Ce-Time":        {"2026-11-29T12:00:00.000Z"},
}

// push returns the body of a Pub/Sub push request.
func push(messageID, data string) string {
	return fmt.Sprintf(`{"message":{"data":%q,"messageId":%q,"publishTime":"2026-11-29T12:00:00Z"},"subscription":"projects/p/subscriptions/s"}`,
		base64.StdEncoding.EncodeToString([]byte(data)), messageID)
}

// pushAgain returns the body of the push request with the number of the delivery.
func pushAgain(messageID, data string, attempt int) string {
	return strings.TrimSuffix(push(messageID, data), "}") + fmt.Sprintf(`,"deliveryAttempt":%d}`, attempt)
}

// deliver delivers a message in an Eventarc request.
func (f *function) deliver(ctx context.Context, messageID, data string) answer {
	return f.post(ctx, eventHeader, strings.NewReader(push(messageID, data)))
}

// redeliver delivers a message for the attempt-th time.
func (f *function) redeliver(ctx context.Context, messageID, data string, attempt int) answer {
	return f.post(ctx, eventHeader, strings.NewReader(pushAgain(messageID, data, attempt)))
}

const plain = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731}`

// line returns the first log line that contains text.
func (f *function) line(t *testing.T, text string) map[string]any {
	t.Helper()
	f.waitForLog(t, text, 1)
	for line := range strings.Lines(f.log.all()) {
		if strings.Contains(line, text) {
			var members map[string]any
			if err := json.Unmarshal([]byte(line), &members); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			return members
		}
	}
	return nil
}
