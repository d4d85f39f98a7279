package e2e_test

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/faultproxy"
)

// The path is complete: a topic, a push subscription, the function under the Functions
// Framework, and Spanner.
func TestPublishedPayoutIsSettledOnce(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	broker := emulatortest.PubSub(t)
	f := startFunction(t, db.env(emulatortest.Spanner(t).GRPC)...)
	const topic = "projects/emulator/topics/payouts"
	err := broker.CreatePushSubscription(t.Context(), emulator.Subscription{
		Topic: topic, Name: "projects/emulator/subscriptions/settle-payout", PushEndpoint: f.url,
		DeadLetterTopic: "projects/emulator/topics/payouts-dead",
	})
	if err != nil {
		t.Fatal(err)
	}
	client, err := pubsub.NewClient(t.Context(), "emulator", broker.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	publisher := client.Publisher(topic)
	defer publisher.Stop()
	messages := []string{
		plain, plain, plain,
		strings.Replace(plain, "4731", "4732", 1),
		strings.Replace(plain, "stl-8472", "stl-8473", 1),
		"not a payout",
	}
	for _, data := range messages {
		if _, err := publisher.Publish(t.Context(), &pubsub.Message{Data: []byte(data)}).Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.waitForLog(t, `"message":"delivery acknowledged"`, len(messages))
	all := db.snapshot(t)
	if len(all.Movements) != 2 || len(all.Receipts) != 2 || len(all.Conflicts) != 1 || len(all.Quarantined) != 1 {
		t.Errorf("stored %+v", all)
	}
}

func TestTerminationDrainsTheInstance(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	committing, proceed := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	proxy, err := faultproxy.Start(t.Context(), emulatortest.Spanner(t).GRPC, func(method string, at faultproxy.Stage) bool {
		if method == "Commit" && at == faultproxy.Answered && held.CompareAndSwap(false, true) {
			close(committing)
			<-proceed
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	f := startFunction(t, db.env(proxy.Addr)...)
	inFlight := make(chan answer, 1)
	go func() { inFlight <- f.deliver(t.Context(), "1", plain) }()
	<-committing
	if err := f.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 10*time.Second, func() bool { return f.deliver(t.Context(), "2", "not a payout").Status == 503 })
	close(proceed)
	if a := <-inFlight; a.Status != 200 || a.Outcome != "applied" {
		t.Errorf("the delivery in flight: %d %s %s", a.Status, a.Body, a.Error)
	}
	<-f.exited
	if f.signal() != syscall.SIGTERM {
		t.Errorf("ended by %v, want SIGTERM", f.signal())
	}
}

// Spanner answers no commit, and from a time on no read. The function keeps time for the
// read after its last commit, so its answer comes within the timeout.
func TestSilentSpannerIsAnsweredWithinTheTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second // the least
	db := newDatabase(t)
	silent, end := make(chan struct{}), make(chan struct{})
	proxy, err := faultproxy.Start(t.Context(), emulatortest.Spanner(t).GRPC, func(method string, at faultproxy.Stage) bool {
		switch {
		case at != faultproxy.Requested:
		case method == "Commit":
			<-end
		case method == "StreamingRead":
			select {
			case <-silent:
				<-end
			default:
			}
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	defer close(end)
	f := startFunction(t, append(db.env(proxy.Addr), "SETTLE_TIMEOUT="+timeout.String())...)
	began := time.Now()
	time.AfterFunc(timeout*7/10, func() { close(silent) })
	a := f.deliver(t.Context(), "1", plain)
	if took := time.Since(began); took > timeout || a.Status != 500 || a.Outcome != "unknown" {
		t.Errorf("answered after %v: %d %s %s", took, a.Status, a.Body, a.Error)
	}
}
