package event

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
)

// TestAdaptorHangsAfterCancelledRequests shows the fault of functions.CloudEvent, which
// serves all requests of an instance through this handler of the CloudEvents SDK. If the
// test fails, the SDK is fixed and the package comment is out of date.
//
// Each cancelled request takes the handler's receiver with a probability of at least one
// half, so a hundred of them practically always do.
func TestAdaptorHangsAfterCancelledRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		protocol, err := cloudevents.NewHTTP()
		if err != nil {
			t.Fatal(err)
		}
		nothing := func(context.Context, cloudevents.Event) error { return nil }
		adaptor, err := cloudevents.NewHTTPReceiveHandler(t.Context(), protocol, nothing)
		if err != nil {
			t.Fatal(err)
		}
		var serving sync.WaitGroup
		deliver := func(ctx context.Context) (answered <-chan struct{}) {
			done := make(chan struct{})
			serving.Go(func() {
				adaptor.ServeHTTP(httptest.NewRecorder(), adaptorRequest(ctx))
				close(done)
			})
			return done
		}

		select {
		case <-deliver(t.Context()):
		case <-time.After(time.Hour):
			t.Fatal("no answer before the cancelled requests")
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			deliver(gone)
		}
		synctest.Wait()
		select {
		case <-deliver(t.Context()):
			t.Error("a healthy request was answered after 100 cancelled ones: functions.CloudEvent no longer hangs")
		case <-time.After(time.Hour): // virtual
		}
		receiveAll(t.Context(), protocol, &serving)
	})
}

func adaptorRequest(ctx context.Context) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(`{}`))
	for name, value := range map[string]string{
		"Ce-Specversion": "1.0", "Ce-Id": "1", "Ce-Source": "//test", "Ce-Type": "test", "Content-Type": "application/json",
	} {
		r.Header.Set(name, value)
	}
	return r
}

// receiveAll receives the hanging requests, so that the test can end.
func receiveAll(ctx context.Context, protocol *cloudevents.HTTPProtocol, serving *sync.WaitGroup) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		serving.Wait()
		cancel()
	}()
	for {
		_, respond, err := protocol.Respond(ctx)
		if err != nil {
			return
		}
		_ = respond(ctx, nil, nil)
	}
}
