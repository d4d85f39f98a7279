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

// TestAdaptorHangsAfterCancelledRequests is the reason why the functions are not
// registered with functions.CloudEvent, which serves every request of an instance
// through this handler of the CloudEvents SDK. When it fails, the SDK has been
// mended, and what the package comment says of it is no longer true.
//
// Each cancelled request leaves the handler without a receiver with a chance of
// one half or more, so that a hundred of them leave it with one do not happen.
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
			t.Fatal("no answer before any request was cancelled")
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
		letGo(t.Context(), protocol, &serving)
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

// letGo receives what still hangs in the handler, so that the test can end.
func letGo(ctx context.Context, protocol *cloudevents.HTTPProtocol, serving *sync.WaitGroup) {
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
