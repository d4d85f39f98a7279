package monitoring_test

import (
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
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

// runbook returns the runbook.
func runbook(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestQueriesOfTheRunbook runs each of them on the schema, over rows among which
// each has something to find, and only as a read.
func TestQueriesOfTheRunbook(t *testing.T) {
	t.Parallel()
	statements, err := schema.Statements()
	if err != nil {
		t.Fatal(err)
	}
	emulator, name := emulatortest.Spanner(t), emulatortest.Database(t, statements)
	store := spannerstore.New(spannerstore.Config{Database: name, Emulator: true, Options: emulator.ClientOptions()})
	t.Cleanup(store.Close)
	f := newFunctions(t)
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
	f.now = f.now.Add(-time.Hour) // its next look is in the past
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
		// Spanner works out that these indexes leave out no row that is asked for. The
		// emulator does not even try, and has to be told.
		sql := regexp.MustCompile(`@\{(FORCE_INDEX=\w+)\}`).ReplaceAllString(block[1],
			"@{$1, spanner_emulator.disable_query_null_filtered_index_check=true}")
		rows := client.Single().Query(t.Context(), spanner.NewStatement(sql))
		found := 0
		for {
			_, err := rows.Next()
			if err == iterator.Done { //nolint:errorlint // the library's own way to say the end
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
			t.Errorf("finds nothing:\n%s", block[1])
		}
	}
	for _, log := range f.log {
		if strings.Contains(log.String(), `"error"`) {
			t.Errorf("the rows were not made: %s", log)
		}
	}
}

// TestLinksOfTheRunbook: a link that leads nowhere is found before 3 a.m.
func TestLinksOfTheRunbook(t *testing.T) {
	t.Parallel()
	known := anchors(t)
	links := regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(runbook(t), -1)
	if len(links) == 0 {
		t.Error("no links")
	}
	for _, link := range links {
		if !slices.Contains(known, link[1]) {
			t.Errorf("#%s leads nowhere", link[1])
		}
	}
}

// TestLogQueriesOfTheRunbook: each finds some of the lines that the functions log.
func TestLogQueriesOfTheRunbook(t *testing.T) {
	t.Parallel()
	entries := allLines(t)
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
			t.Errorf("finds nothing: %s", text)
		}
	}
}
