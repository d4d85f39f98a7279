package monitoring_test

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/iterator"

	"github.com/settleonce/settleonce/internal/settle/transfer"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/schema"
)

func runbook(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRunbookQueries runs each query as a read, on rows among which each finds some.
func TestRunbookQueries(t *testing.T) {
	t.Parallel()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	emulator, name := emulatortest.Spanner(t), emulatortest.Database(t, statements)
	store := spannerstore.New(spannerstore.Config{Database: name, Emulator: true, Options: emulator.ClientOptions()})
	t.Cleanup(store.Close)
	f := newFunctions(t, slog.LevelDebug)
	f.now = time.Now()
	deliver := func(class transfer.SendClass, data string) {
		f.bank.send = class
		banking := f.stepper(settler, store)
		r := f.request(data)
		f.handler(f.service(banking, store)).ServeHTTP(httptest.NewRecorder(), r)
	}
	deliver(transfer.SendUncertain, payoutJSON("stl-8472", 1, true))
	deliver(transfer.SendUncertain, payoutJSON("stl-8472", 2, true))
	deliver(transfer.SendManual, payoutJSON("stl-manual", 1, true))
	deliver(transfer.SendUncertain, "not a payout")
	f.now = f.now.Add(-time.Hour) // its next check is in the past
	deliver(transfer.SendUncertain, payoutJSON("stl-due", 1, true))

	client, err := spanner.NewClientWithConfig(t.Context(), name, spanner.ClientConfig{DisableNativeMetrics: true}, emulator.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	blocks := regexp.MustCompile("(?ms)^ *```sql\n(.*?)^ *```").FindAllStringSubmatch(runbook(t), -1)
	if len(blocks) < 2 {
		t.Fatalf("%d queries", len(blocks))
	}
	for _, block := range blocks {
		// Spanner proves that these indexes omit no row of the result. The emulator does
		// not, and needs the hint.
		sql := regexp.MustCompile(`@\{(FORCE_INDEX=\w+)\}`).ReplaceAllString(block[1],
			"@{$1, spanner_emulator.disable_query_null_filtered_index_check=true}")
		rows := client.Single().Query(t.Context(), spanner.NewStatement(sql))
		found := 0
		for {
			_, err := rows.Next()
			if err == iterator.Done { //nolint:errorlint // the iterator returns it unwrapped
				break
			}
			if err != nil {
				t.Errorf("%v:\n%s", err, block[1])
				break
			}
			found++
		}
		rows.Stop()
		if found == 0 {
			t.Errorf("no rows:\n%s", block[1])
		}
	}
	for _, log := range f.log {
		if strings.Contains(log.String(), `"error"`) {
			t.Errorf("could not create the rows: %s", log)
		}
	}
}

// TestRunbookLogQueries: each query finds some of the functions' lines.
func TestRunbookLogQueries(t *testing.T) {
	t.Parallel()
	entries := allLines(t, slog.LevelDebug)
	queries := regexp.MustCompile(`logs '([^']+)'`).FindAllStringSubmatch(runbook(t), -1)
	if len(queries) < 10 {
		t.Fatalf("%d queries", len(queries))
	}
	for _, query := range queries {
		text := strings.NewReplacer(` AND timestamp>="T"`, "", "stl-8472", "stl-1").Replace(query[1])
		f, err := parseFilter(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		found := false
		for _, e := range entries {
			if matches, err := f.matches(e); err != nil {
				t.Errorf("%s: %v", text, err)
			} else if matches {
				found = true
			}
		}
		if !found {
			t.Errorf("no lines: %s", text)
		}
	}
}
