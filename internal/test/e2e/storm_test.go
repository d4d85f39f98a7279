package e2e_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

const (
	stormRequests    = 5000
	stormConcurrency = 32
	stormTimeout     = 1500 * time.Microsecond
	healthyRequests  = 20
	healthyTimeout   = time.Second
)

// storm sends requests whose clients leave 0 to stormTimeout after the request was written.
// Each of them must reach the function's handler, which logs it. The storm has no more
// requests in progress than a platform sends to an instance: the function is still at work
// for some of them when their clients have left.
func storm(t *testing.T, f *function) {
	t.Helper()
	waitFor(t, 30*time.Second, func() bool { return f.handled() == healthyRequests })
	for sent := 0; sent < stormRequests; {
		var wave sync.WaitGroup
		for range stormConcurrency {
			sent++
			data := fmt.Sprintf(`{"settlement_id":"storm-%d","account_id":"a","amount_cents":1}`, sent)
			wave.Go(func() { f.leave(t, data, rand.N(stormTimeout)) })
		}
		wave.Wait()
		waitFor(t, 30*time.Second, func() bool { return f.handled() == healthyRequests+sent })
	}
}

// leave sends a request over a connection of its own, and closes it after a time. The HTTP
// client would end most requests before they are written.
func (f *function) leave(t *testing.T, data string, after time.Duration) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url, strings.NewReader(push("1", data)))
	if err != nil {
		t.Error(err)
		return
	}
	request.Header = eventHeader
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", request.URL.Host)
	if err != nil {
		t.Error(err)
		return
	}
	if err := request.Write(conn); err != nil {
		t.Error(err)
	}
	time.AfterFunc(after, func() { conn.Close() })
	_, _ = io.Copy(io.Discard, conn) // until it is closed
}

// handled counts the requests that the function has finished, by their log lines.
func (f *function) handled() (n int) {
	log := f.log.all()
	for _, message := range []string{"delivery acknowledged", "delivery not acknowledged", "request rejected"} {
		n += strings.Count(log, `"message":"`+message+`"`)
	}
	return n
}

// answeredInTime sends healthy requests and counts the responses with status 200 within
// healthyTimeout each.
func answeredInTime(t *testing.T, f *function) (answered int, slowest time.Duration) {
	t.Helper()
	for n := range healthyRequests {
		ctx, cancel := context.WithTimeout(t.Context(), healthyTimeout)
		began := time.Now()
		a := f.deliver(ctx, fmt.Sprint(n), fmt.Sprintf(`{"settlement_id":"healthy-%d","account_id":"a","amount_cents":1}`, n))
		cancel()
		slowest = max(slowest, time.Since(began))
		if a.Status == 200 {
			answered++
		}
	}
	return answered, slowest
}

func TestStormOfCancelledRequestsLeavesTheFunctionResponsive(t *testing.T) {
	db := newDatabase(t)
	f := startFunction(t, db.env(emulatortest.Spanner(t).GRPC)...)
	if answered, _ := answeredInTime(t, f); answered != healthyRequests {
		t.Fatalf("%d of %d answered before the storm: %s", answered, healthyRequests, f.log)
	}
	storm(t, f)
	answered, slowest := answeredInTime(t, f)
	if answered != healthyRequests {
		t.Errorf("%d of %d requests answered within %v after the storm", answered, healthyRequests, healthyTimeout)
	}
	unanswered := strings.Count(f.log.all(), `"message":"delivery not acknowledged"`)
	if unanswered < stormRequests/2 {
		t.Errorf("%d of %d deliveries of the storm ended without an outcome, want at least half", unanswered, stormRequests)
	}
	t.Logf("%d deliveries of the storm without an outcome; slowest answer after it: %v", unanswered, slowest)
	db.snapshot(t)
}
