package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

// testTopic is a test's own topic in the Pub/Sub emulator.
type testTopic struct {
	name         string // projects/P/topics/T
	subscription string
	client       *vkit.SubscriptionAdminClient
}

const testProject = "settlectl-test"

// newTestTopic creates a topic and sets PUBSUB_EMULATOR_HOST until the test ends.
func newTestTopic(t *testing.T) testTopic {
	t.Helper()
	t.Setenv("PUBSUB_EMULATOR_HOST", emulatortest.PubSub(t).Host)
	return newTopicFor(t)
}

// newTopicFor creates a topic for programs with an environment of their own.
func newTopicFor(t *testing.T) testTopic {
	t.Helper()
	id := "t-" + rand.Text() // an emulator can outlive this process
	emulator := emulatortest.PubSub(t)
	topic := testTopic{
		name:         "projects/" + testProject + "/topics/" + id,
		subscription: "projects/" + testProject + "/subscriptions/" + id,
	}
	if err := emulator.CreateTopic(t.Context(), topic.name); err != nil {
		t.Fatal(err)
	}
	client, err := vkit.NewSubscriptionAdminClient(t.Context(), emulator.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	topic.client = client
	_, err = client.CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: topic.subscription, Topic: topic.name, AckDeadlineSeconds: 60,
	})
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

// receive returns the data of count messages, and of any further message.
func (topic testTopic) receive(t *testing.T, count int) (sorted []string) {
	t.Helper()
	for _, m := range topic.pull(t, count) {
		if len(m.GetAttributes()) != 0 || m.GetOrderingKey() != "" {
			t.Errorf("a message with attributes or an ordering key: %v", m.GetMessageId())
		}
		sorted = append(sorted, string(m.GetData()))
	}
	slices.Sort(sorted)
	return sorted
}

// pull pulls and acknowledges count messages, and pulls once more for further ones.
func (topic testTopic) pull(t *testing.T, count int) (all []*pubsubpb.PubsubMessage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for last := false; !last; {
		last = len(all) >= count
		//nolint:staticcheck // the last pull wants an empty answer at once
		response, err := topic.client.Pull(ctx, &pubsubpb.PullRequest{Subscription: topic.subscription, MaxMessages: 1000, ReturnImmediately: last})
		if err != nil {
			t.Fatalf("pull, %d of %d messages are here: %v", len(all), count, err)
		}
		var ids []string
		for _, m := range response.GetReceivedMessages() {
			all, ids = append(all, m.GetMessage()), append(ids, m.GetAckId())
		}
		if len(ids) == 0 {
			continue
		}
		if err := topic.client.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: topic.subscription, AckIds: ids}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// wantCounts checks the summary, without its duration.
func wantCounts(t *testing.T, got outcome, code, published, failed int) {
	t.Helper()
	sum := parse[summary](t, got.out)
	if got.code != code || sum.Published != published || sum.Failed != failed || sum.Seconds < 0 {
		t.Errorf("exit code %d, %+v; want %d, published %d, failed %d; standard error:\n%s", got.code, sum, code, published, failed, got.errOut)
	}
}

func TestPublishSendsTheBytesOfEveryLine(t *testing.T) {
	topic := newTestTopic(t)
	messages := []string{
		smallest, smallest, "{", "\t{}\r", "a<b>&c", "\xff\x00\xfe", "\ufeff{}", strings.Repeat("m", 1<<20),
	}
	for i := range 2500 { // more than the limit of unanswered messages
		messages = append(messages, fmt.Sprintf(`{"settlement_id":"stl-%d"}`, i))
	}
	path := filepath.Join(t.TempDir(), "payouts.jsonl")
	if err := os.WriteFile(path, []byte("\n\r\n \n"+strings.Join(messages, "\n\t \r\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	got := settlectl(t, nil, nil, "publish", path, "--topic", topic.name)
	wantCounts(t, got, term.ExitOK, len(messages), 0)
	if want := "settlectl: publish line 16: the line begins with a UTF-8 byte order mark (bytes ef bb bf); save it as UTF-8 without a byte order mark\n"; got.errOut != want {
		t.Errorf("standard error %q, want %q", got.errOut, want)
	}
	slices.Sort(messages)
	if received := topic.receive(t, len(messages)); !slices.Equal(messages, received) {
		t.Errorf("%d messages published and %d received, or others (-want +got):\n%s",
			len(messages), len(received), cmp.Diff(messages, received))
	}
}

func TestPublishFromStandardInputToAShortTopicName(t *testing.T) {
	topic := newTestTopic(t)
	wantCounts(t, settlectl(t, strings.NewReader(""), nil, "publish", "-", "--topic", topic.name), term.ExitOK, 0, 0)
	got := settlectl(t, strings.NewReader("one\ntwo\n"), nil, "publish", "-", "--topic", topic.name)
	wantCounts(t, got, term.ExitOK, 2, 0)
	if diff := cmp.Diff([]string{"one", "two"}, topic.receive(t, 2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPublishToAMissingTopicNamesTheLines(t *testing.T) {
	topic := newTestTopic(t)
	got := settlectl(t, strings.NewReader("secret-1\n\nsecret-3\nsecret-4\n"), nil,
		"publish", "-", "--topic", topic.name+"-not-there")
	wantCounts(t, got, term.ExitNo, 0, 3)
	for _, want := range []string{"publish line 1: ", "NotFound", "publish lines 3 to 4: the same error", "3 of 3 messages failed"} {
		if !strings.Contains(got.errOut, want) {
			t.Errorf("standard error has no %q:\n%s", want, got.errOut)
		}
	}
	if strings.Contains(got.errOut, "secret") {
		t.Errorf("standard error shows a payload:\n%s", got.errOut)
	}
}

func TestPublishContinuesAfterALongLine(t *testing.T) {
	topic := newTestTopic(t)
	input := strings.Join([]string{"one", strings.Repeat("x", maxLineBytes+1), "three", strings.Repeat("x", maxLineBytes), "five"}, "\n")
	got := settlectl(t, strings.NewReader(input), nil, "publish", "-", "--topic", topic.name)
	wantCounts(t, got, term.ExitNo, 3, 2)
	for _, want := range []string{"publish line 2: the line exceeds", "publish line 4: the line exceeds"} {
		if !strings.Contains(got.errOut, want) {
			t.Errorf("standard error has no %q:\n%s", want, got.errOut)
		}
	}
	if strings.Contains(got.errOut, "xxx") {
		t.Error("standard error shows a payload")
	}
	if diff := cmp.Diff([]string{"five", "one", "three"}, topic.receive(t, 3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPublishSendsTheLinesBeforeAReadError(t *testing.T) {
	topic := newTestTopic(t)
	input := io.MultiReader(strings.NewReader("one\ntwo\nthr"), iotest.ErrReader(errors.New("the disk is gone")))
	got := settlectl(t, input, nil, "publish", "-", "--topic", topic.name)
	wantCounts(t, got, term.ExitError, 2, 0)
	if want := "read standard input after line 2: the disk is gone"; !strings.Contains(got.errOut, want) {
		t.Errorf("standard error has no %q:\n%s", want, got.errOut)
	}
	if diff := cmp.Diff([]string{"one", "two"}, topic.receive(t, 2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPublishShowsABarOnATerminalOnly(t *testing.T) {
	topic := newTestTopic(t)
	path := filepath.Join(t.TempDir(), "payouts.jsonl")
	if err := os.WriteFile(path, []byte("one\n"+strings.Repeat("x", maxLineBytes+1)+"\nthree\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, "-"} {
		in, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		s := streamsOf(in, &out, &errOut, nil)
		s.getenv, s.ErrColumns = os.Getenv, 80
		code := run(t.Context(), []string{"publish", file, "--topic", topic.name}, s)
		_ = in.Close()
		wantCounts(t, outcome{code, out.String(), errOut.String()}, term.ExitNo, 2, 1)
		for _, want := range []string{"published 2, failed 1", "publish line 2: the line exceeds", "1 of 3 messages failed; remove the cause and publish the line named above again"} {
			if !strings.Contains(errOut.String(), want) {
				t.Errorf("%s: standard error has no %q:\n%s", file, want, errOut.String())
			}
		}
	}
}

func TestInterruptedPublishNamesTheLastLine(t *testing.T) {
	topic := newTestTopic(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	// The producer has written two lines and a half, and stays silent.
	in, producer := io.Pipe()
	defer func() { _ = producer.Close() }()
	var out, errOut bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"publish", "-", "--topic", topic.name}, streamsOf(in, &out, &errOut, nil))
	}()
	if _, err := io.WriteString(producer, "one\n\nthree\nfou"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one", "three"}, topic.receive(t, 2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	interrupt()
	wantCounts(t, outcome{<-ended, out.String(), errOut.String()}, term.ExitInterrupted, 2, 0)
	if want := "interrupted after line 3 of standard input: 2 published, 0 failed"; !strings.Contains(errOut.String(), want) {
		t.Errorf("standard error has no %q:\n%s", want, errOut.String())
	}
}

// slowTopic is a Pub/Sub server that holds its answers back.
type slowTopic struct {
	pubsubpb.UnimplementedPublisherServer
	release chan struct{} // closed to release the answers

	mu       sync.Mutex
	received int
	arrived  chan struct{} // gets a value after each request
}

func (s *slowTopic) Publish(_ context.Context, request *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	s.mu.Lock()
	s.received += len(request.GetMessages())
	s.mu.Unlock()
	s.arrived <- struct{}{}
	<-s.release
	return &pubsubpb.PublishResponse{MessageIds: make([]string, len(request.GetMessages()))}, nil
}

func (s *slowTopic) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received
}

func TestPublishBoundsUnansweredMessages(t *testing.T) {
	const lines = 5 * maxOutstandingMessages
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	topic := &slowTopic{release: make(chan struct{}), arrived: make(chan struct{}, lines)}
	server := grpc.NewServer()
	pubsubpb.RegisterPublisherServer(server, topic)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	t.Setenv("PUBSUB_EMULATOR_HOST", listener.Addr().String())

	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errOut bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"publish", "-", "--topic", "projects/p/topics/slow"},
			streamsOf(strings.NewReader(strings.Repeat("message\n", lines)), &out, &errOut, nil))
	}()
	for topic.count() < maxOutstandingMessages {
		<-topic.arrived
	}
	interrupt()
	close(topic.release)
	code := <-ended

	received := topic.count()
	if received > maxOutstandingMessages+1 { // the interruption can admit one more
		t.Errorf("%d messages were unanswered at a time", received)
	}
	wantCounts(t, outcome{code, out.String(), errOut.String()}, term.ExitInterrupted, received, 0)
	if want := fmt.Sprintf("interrupted after line %d of standard input", received); !strings.Contains(errOut.String(), want) {
		t.Errorf("standard error has no %q:\n%s", want, errOut.String())
	}
}

func TestPublishNamesASilentEmulator(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PUBSUB_EMULATOR_HOST": "127.0.0.1:1"}
	got := settlectl(t, strings.NewReader("{}\n"), env, "publish", "-", "--topic", "projects/p/topics/t")
	if got.code != term.ExitError || !strings.Contains(got.errOut, "127.0.0.1:1") {
		t.Errorf("exit code %d, %s", got.code, got.errOut)
	}
}

// No command waits for an answer from an address that cannot be one.
func TestInvalidEmulatorAddressesAreUsageErrors(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"show stl-1", "list manual", "verify", "reconcile --due --bank-from-environment", "publish - --topic projects/p/topics/t",
		"doctor --subscription projects/p/subscriptions/s",
	} {
		env := map[string]string{"SPANNER_DATABASE": nowhere, "SPANNER_EMULATOR_HOST": "http://127.0.0.1:1", "PUBSUB_EMULATOR_HOST": "127.0.0.1:1/"}
		got := settlectl(t, strings.NewReader(""), env, strings.Fields(command)...)
		if got.code != term.ExitError || got.out != "" {
			t.Errorf("%s: exit code %d, output %q", command, got.code, got.out)
		}
		for _, want := range []string{`SPANNER_EMULATOR_HOST is "http://127.0.0.1:1"; remove the scheme http://`, `PUBSUB_EMULATOR_HOST is "127.0.0.1:1/": "1/" is no port`} {
			if !strings.Contains(got.errOut, want) {
				t.Errorf("%s: no %q in\n%s", command, want, got.errOut)
			}
		}
	}
}
