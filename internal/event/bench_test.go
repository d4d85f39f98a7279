package event

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
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
				if d := Read(form.header, body); d.Refusal != nil {
					b.Fatal(d.Refusal.Detail)
				}
			}
		})
	}
}

// BenchmarkHandler measures what a request costs beside settling.
func BenchmarkHandler(b *testing.B) {
	now := time.Now
	h := &Handler{
		Deliverer: gives(settle.Result{Outcome: settle.OutcomeApplied, SettlementID: "stl-8472", PayloadHash: wireHash, AppliedAt: noon}, nil),
		Log:       NewLogger(io.Discard, slog.LevelInfo),
		Now:       now,
		Timeout:   time.Minute,
		Gate:      new(Gate),
	}
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", nil)
	r.Header, r.ContentLength = binaryHeaders(), int64(len(payoutPush))
	b.ReportAllocs()
	for b.Loop() {
		r.Body = io.NopCloser(strings.NewReader(payoutPush))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}
