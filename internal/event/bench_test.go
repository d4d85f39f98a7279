package event

import (
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

func BenchmarkRead(b *testing.B) {
	for _, form := range []struct {
		name   string
		header http.Header
		body   string
	}{
		{"push", nil, payoutPush},
		{"binary", binaryHeaders(), payoutPush},
		{"structured", structuredHeaders, structured(`"data":` + payoutPush)},
	} {
		b.Run(form.name, func(b *testing.B) {
			body := []byte(form.body)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if d := read(b, form.header, body); d.Refusal != nil {
					b.Fatal(d.Refusal.Detail)
				}
			}
		})
	}
}

// request returns a function that makes the handler serve a request.
func request(tb testing.TB) (serve func()) {
	tb.Helper()
	h := &Handler{
		Work:    Settle(gives(settle.Result{Outcome: settle.OutcomeApplied, SettlementID: "stl-8472", PayloadHash: wireHash, AppliedAt: noon}, nil)),
		Log:     NewLogger(io.Discard, slog.LevelInfo),
		Now:     time.Now,
		Timeout: time.Minute,
		Drainer: new(Drainer),
	}
	r := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, "/", nil)
	r.Header, r.ContentLength = binaryHeaders(), int64(len(payoutPush))
	return func() {
		r.Body = io.NopCloser(strings.NewReader(payoutPush))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			tb.Fatal(w.Body)
		}
	}
}

// The limit is above the measured 72: under the race detector sync.Pool drops some
// of its objects.
func TestRequestAllocations(t *testing.T) {
	const most = 90
	if allocations := testing.AllocsPerRun(100, request(t)); allocations > most {
		t.Errorf("%v allocations, want at most %v", allocations, float64(most))
	}
}

// BenchmarkHandler measures a request without settling.
func BenchmarkHandler(b *testing.B) {
	serve := request(b)
	b.ReportAllocs()
	for b.Loop() {
		serve()
	}
}

// BenchmarkDelivery measures a delivery from the HTTP request to the answer with a store
// in memory, without the network and Spanner.
func BenchmarkDelivery(b *testing.B) {
	for _, test := range []struct {
		name string
		id   func(n int) int
	}{
		{"fresh", func(n int) int { return n }},
		{"duplicate", func(int) int { return 0 }},
	} {
		b.Run(test.name, func(b *testing.B) {
			service := &settle.Service{Store: memstore.New(time.Now), DefaultCurrency: "USD", NewID: uuid.NewString, Now: time.Now}
			h := &Handler{Work: Settle(service), Log: NewLogger(io.Discard, slog.LevelInfo), Now: time.Now, Timeout: time.Minute, Drainer: new(Drainer)}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				payout := fmt.Sprintf(`{"settlement_id":"stl-%d","account_id":"reserve-claims","amount_cents":4731}`, test.id(n))
				body := `{"message":{"messageId":"1","data":"` + base64.StdEncoding.EncodeToString([]byte(payout)) + `"}}`
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", strings.NewReader(body))
				r.Header = binaryHeaders()
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
