//go:build soak

package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	// soakGrowth is the allowed growth of the heap from warm to the end.
	soakGrowth = 0.10
	// soakGoroutines is the allowed number of additional goroutines: some for changing
	// connections, but far fewer than one for each round.
	soakGoroutines = 4
)

// probeAddr is the address at which a function's process serves its memory profile,
// beside the function.
const probeAddr = "SETTLEONCE_TEST_PROBE"

func init() {
	addr, wanted := os.LookupEnv(probeAddr)
	if !wanted {
		return
	}
	probe := http.NewServeMux()
	probe.HandleFunc("/memory", func(w http.ResponseWriter, _ *http.Request) { _ = json.MarshalWrite(w, measure()) })
	probe.HandleFunc("/heap", func(w http.ResponseWriter, _ *http.Request) { _ = pprof.Lookup("heap").WriteTo(w, 0) })
	probe.HandleFunc("/goroutines", func(w http.ResponseWriter, _ *http.Request) { _ = pprof.Lookup("goroutine").WriteTo(w, 1) })
	server := &http.Server{Addr: addr, Handler: probe, ReadHeaderTimeout: time.Minute}
	go func() { exitWith(server.ListenAndServe()) }()
}

// memory is the memory of a function's process.
type memory struct {
	HeapBytes  uint64 `json:"heap_bytes"`
	Goroutines int    `json:"goroutines"`
}

func (m memory) String() string {
	return fmt.Sprintf("heap %.2f MB, %d goroutines", megabytes(m.HeapBytes), m.Goroutines)
}

// measure measures this process. Pooled objects, and objects with finalizers, are freed
// only by the second or third collection.
func measure() memory {
	for range 3 {
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return memory{HeapBytes: stats.HeapAlloc, Goroutines: runtime.NumGoroutine()}
}

// watched is a function whose memory can be measured.
type watched struct {
	*function
	probe string
}

func watch(t *testing.T, start func(env ...string) *function) *watched {
	t.Helper()
	addr := freeAddr(t)
	f := start(probeAddr + "=" + addr)
	f.waitUntilListening(t, addr)
	return &watched{f, "http://" + addr}
}

func (w *watched) ask(t *testing.T, path string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.probe+path, nil)
	if err != nil {
		t.Error(err)
		return nil
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Errorf("%v: %s", err, w.log)
		return nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return body
}

func (w *watched) memory(t *testing.T) (m memory) {
	t.Helper()
	if err := json.Unmarshal(w.ask(t, "/memory"), &m); err != nil {
		t.Error(err)
	}
	return m
}

// atRest is the memory of an idle function.
type atRest struct {
	memory
	name             string
	heap, goroutines []byte // profiles
}

// rest measures an idle function. Connections end with a delay; rest therefore waits
// until the number of goroutines has not fallen for a second.
func (w *watched) rest(t *testing.T, name string) atRest {
	t.Helper()
	least := w.memory(t)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for since := time.Now(); time.Since(since) < time.Second; <-tick.C {
		m := w.memory(t)
		if m.Goroutines < least.Goroutines {
			since = time.Now()
		}
		least.Goroutines, least.HeapBytes = min(least.Goroutines, m.Goroutines), min(least.HeapBytes, m.HeapBytes)
	}
	return atRest{least, name, w.ask(t, "/heap"), w.ask(t, "/goroutines")}
}

// memories is the memory of the two functions.
type memories [2]atRest

// after formats both memories beside the warm ones.
func (m memories) after(warm memories) string {
	var text []string
	for i, now := range m {
		text = append(text, fmt.Sprintf("%s: heap %.2f MB, %.2f when warm, goroutines %d, %d when warm",
			now.name, megabytes(now.HeapBytes), megabytes(warm[i].HeapBytes), now.Goroutines, warm[i].Goroutines))
	}
	return strings.Join(text, "; ")
}

func megabytes(bytes uint64) float64 { return float64(bytes) / 1e6 }

// compare fails the test if memory has grown since warm, and names the profiles.
func (m memories) compare(t *testing.T, warm memories) {
	t.Helper()
	for i, now := range m {
		if now.Goroutines > warm[i].Goroutines+soakGoroutines {
			t.Errorf("%s: %d goroutines, %d when warm; now:\n%s", now.name, now.Goroutines, warm[i].Goroutines, now.goroutines)
		}
		if float64(now.HeapBytes) > (1+soakGrowth)*float64(warm[i].HeapBytes) {
			t.Errorf("%s: heap of %d bytes, %d when warm; the difference: go tool pprof -sample_index=inuse_space -base %s %s",
				now.name, now.HeapBytes, warm[i].HeapBytes, keepProfile(t, now.name+"-warm", warm[i].heap), keepProfile(t, now.name+"-end", now.heap))
		}
	}
}

// keepProfile writes a profile into the artifact directory.
func keepProfile(t *testing.T, name string, profile []byte) string {
	t.Helper()
	file := filepath.Join(t.ArtifactDir(), name+".prof")
	if err := os.WriteFile(file, profile, 0o600); err != nil {
		t.Error(err)
	}
	return file
}
