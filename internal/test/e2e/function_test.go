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

// childMode tells the test binary to be the function instead: the functions
// framework with the registered functions, as the platform builds it.
const childMode = "SETTLEONCE_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childMode) {
	case "function":
		child.Follow()
		exitWith(funcframework.StartHostPort("127.0.0.1", os.Getenv("PORT")))
	default:
		os.Exit(m.Run())
	}
}

func exitWith(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// function is a running child process.
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

// logBuffer is what a child writes, readable while it writes.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the end of what was written, for a test's messages.
func (b *logBuffer) String() string {
	const most = 2000
	all := b.all()
	return all[max(0, len(all)-most):]
}

func (b *logBuffer) all() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startChild runs the test binary as a child that is the function, with the
// environment that the platform gives a function, and waits until it listens.
func startChild(t *testing.T, env ...string) *function {
	t.Helper()
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	f := &function{url: "http://" + addr + "/", client: http.DefaultClient, exited: make(chan struct{}), log: &logBuffer{}}
	cmd, _ := functionProcess(context.WithoutCancel(t.Context()), t, // ended by the clean-up
		append([]string{"PORT=" + port, "FUNCTION_TARGET=SettlePayout", "DEFAULT_CURRENCY=USD"}, env...)...)
	cmd.Stdout, cmd.Stderr = f.log, f.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.process = cmd.Process
	go func() {
		_ = cmd.Wait() // how it ends is the test's business
		f.state = cmd.ProcessState
		close(f.exited)
	}()
	t.Cleanup(func() { f.kill() })
	f.waitUntilListening(t, addr)
	return f
}

// functionProcess is the test binary as the function. It ends with this process,
// however that ends, and when tie is closed.
func functionProcess(ctx context.Context, t *testing.T, env ...string) (cmd *exec.Cmd, tie io.Closer) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(ctx, program)
	cmd.Env = append(append(os.Environ(), childMode+"=function"), env...)
	if tie, err = child.Tie(cmd); err != nil {
		t.Fatal(err)
	}
	return cmd, tie
}

// TestNoFunctionOutlivesItsTest: package child's test kills the parent, which
// closes the tie.
func TestNoFunctionOutlivesItsTest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd, tie := functionProcess(ctx, t, "PORT=0", "FUNCTION_TARGET=SettlePayout")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := tie.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != child.Exit {
		t.Errorf("ended by %v, want exit status %d", err, child.Exit)
	}
}

func (f *function) kill() {
	_ = f.process.Kill() // it may have ended already
	<-f.exited
}

func (f *function) waitUntilListening(t *testing.T, addr string) {
	t.Helper()
	waitFor(t, 20*time.Second, func() bool {
		select {
		case <-f.exited:
			t.Fatalf("the child ended: %s", f.log)
		default:
		}
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			err = conn.Close()
		}
		return err == nil
	})
}

// waitFor waits until what it is given holds.
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

// waitForLog waits until the child has logged text n times.
func (f *function) waitForLog(t *testing.T, text string, n int) {
	t.Helper()
	waitFor(t, 30*time.Second, func() bool { return strings.Count(f.log.all(), text) >= n })
}

// ports counts the ports that were given out. They lie below those that the system
// gives to whoever does not ask for one, so that nobody takes a port before the
// process that it was chosen for.
var ports atomic.Int64

const firstPort, lastPort = 20_000, 32_000

// freeAddr returns an address that nobody listens on.
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

// database is a database of the test's own with the schema.
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

// env is the environment of a function on this database, by way of host.
func (d database) env(host string) []string {
	return []string{"SPANNER_DATABASE=" + d.name, "SPANNER_EMULATOR_HOST=" + host, "K_SERVICE=settleonce"}
}

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

// answer is what a function answers.
type answer struct {
	Status       int       `json:"-"`
	Body         string    `json:"-"`
	Outcome      string    `json:"outcome"`
	SettlementID string    `json:"settlement_id"`
	Hash         string    `json:"payload_hash"`
	AppliedAt    time.Time `json:"applied_at"`
	Fields       []string  `json:"fields"`
	Reason       string    `json:"reason"`
	Member       string    `json:"member"`
	Error        string    `json:"error"`
}

// post sends a request as it is. A transport error is an answer with status 0.
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

// eventHeader is what Eventarc sends.
var eventHeader = http.Header{
	"Content-Type":   {"application/json"},
	"Ce-Id":          {"1001"},
	"Ce-Source":      {"//pubsub.googleapis.com/projects/p/topics/payouts"},
	"Ce-Specversion": {"1.0"},
	"Ce-Type":        {"google.cloud.pubsub.topic.v1.messagePublished"},
	"Ce-Time":        {"2026-11-29T12:00:00.000Z"},
}

// push is a Pub/Sub push body.
func push(messageID, data string) string {
	return fmt.Sprintf(`{"message":{"data":%q,"messageId":%q,"publishTime":"2026-11-29T12:00:00Z"},"subscription":"projects/p/subscriptions/s"}`,
		base64.StdEncoding.EncodeToString([]byte(data)), messageID)
}

// deliver delivers a message as Eventarc does.
func (f *function) deliver(ctx context.Context, messageID, data string) answer {
	return f.post(ctx, eventHeader, strings.NewReader(push(messageID, data)))
}

const plain = `{"settlement_id":"stl-8472","account_id":"reserve-claims","amount_cents":4731}`

// line returns the first line that the child has logged and that holds text.
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
