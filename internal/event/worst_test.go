package event

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/test/hostile"
	"github.com/settleonce/settleonce/internal/test/memstore"
)

// The most that one request costs, whatever its content.
const (
	limitCPU   = 500 * time.Millisecond
	limitBytes = 80_000_000
)

// TestWorstRequests is not parallel, because CPU time and allocations are those of the
// whole process. Other processes make a measured time longer, so the least of three counts.
// Under the race detector smaller requests have to keep the limit of bytes only.
func TestWorstRequests(t *testing.T) {
	service := &settle.Service{Store: memstore.New(time.Now), DefaultCurrency: "USD", NewID: uuid.NewString, Now: time.Now}
	h := &Handler{Work: Settle(service), Log: NewLogger(io.Discard, slog.LevelInfo), Now: time.Now, Timeout: time.Minute}
	var slowest, largest string
	var mostCPU time.Duration
	var mostBytes uint64
	size := MaxBodyBytes
	if raceDetector {
		size /= 16
	}
	for request := range hostile.WorstRequests(size) {
		cpu, allocated := worst(t, h, request)
		for n := 0; n < 2 && cpu > limitCPU && !raceDetector; n++ {
			again, _ := worst(t, h, request)
			cpu = min(cpu, again)
		}
		if cpu > limitCPU && !raceDetector || allocated > limitBytes {
			t.Errorf("%s: %v of CPU and %d bytes, want at most %v and %d", request.Name, cpu, allocated, limitCPU, limitBytes)
		}
		if cpu > mostCPU {
			slowest, mostCPU = request.Name, cpu
		}
		if allocated > mostBytes {
			largest, mostBytes = request.Name, allocated
		}
	}
	t.Logf("%v of CPU (%s), %d bytes (%s)", mostCPU, slowest, mostBytes, largest)
}

// worst serves a request and returns the CPU time of the process and the allocated bytes.
func worst(t *testing.T, h *Handler, request hostile.Request) (cpu time.Duration, allocated uint64) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(request.Body))
	r.Header = request.Header
	w := httptest.NewRecorder()
	runtime.GC() // frees the memory of the previous call
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := cpuTime()
	h.ServeHTTP(w, r)
	cpu = cpuTime() - began
	runtime.ReadMemStats(&after)
	if w.Code != http.StatusOK && w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("%s: %d %s", request.Name, w.Code, w.Body)
	}
	return cpu, after.TotalAlloc - before.TotalAlloc
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for another constant only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
