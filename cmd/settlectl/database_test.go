package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

const nowhere = "projects/p/instances/i/databases/d"

func TestOpenADatabase(t *testing.T) {
	t.Parallel()
	flags := databaseFlags{name: emulatortest.Database(t, nil), role: "settleonce_operator", emulator: emulatortest.Spanner(t).GRPC}
	client, err := flags.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	_, err = client.Single().ReadRow(t.Context(), "ledger_movements", spanner.Key{[]byte("k")}, []string{"settlement_id"})
	wantCode(t, flags.explain(err), exitError, "lacks a part of this version's schema", "ledger_movements", "doctor")
}

// wantCode checks an error that ends the program.
func wantCode(t *testing.T, err error, code int, words ...string) {
	t.Helper()
	coded, ok := errors.AsType[*codedError](err)
	if !ok || coded.code != code {
		t.Fatalf("error %v, want exit code %d", err, code)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q without %q", err, word)
		}
	}
}

func TestOpenADatabaseThatDoesNotExist(t *testing.T) {
	t.Parallel()
	name := emulatortest.Database(t, nil)
	for _, wrong := range []string{name + "x", nowhere} {
		_, err := databaseFlags{name: wrong, emulator: emulatortest.Spanner(t).GRPC}.open(t.Context())
		wantCode(t, err, exitError, "database "+wrong+" does not exist", "check --database")
	}
}

// TestOpenADatabaseWhereNobodyAnswers ends the wait by the context of the test, as
// Ctrl-C does, and by a deadline.
func TestOpenADatabaseWhereNobodyAnswers(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	flags := databaseFlags{name: nowhere, emulator: silent.Addr().String()}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := flags.open(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a context that is done: %v", err)
	}
	wantCode(t, flags.explain(spanner.ToSpannerError(context.DeadlineExceeded)), exitError, "no answer from the emulator at "+flags.emulator)
}

func TestOpenADatabaseWithoutCredentials(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none.json"))
	t.Setenv("SPANNER_EMULATOR_HOST", "")
	if err := os.Unsetenv("SPANNER_EMULATOR_HOST"); err != nil {
		t.Fatal(err)
	}
	_, err := databaseFlags{name: nowhere}.open(t.Context())
	wantCode(t, err, exitError, "open database "+nowhere, "gcloud auth application-default login")
}

// TestWhatIsNotFound: Spanner has one code for a missing database and a missing row.
func TestWhatIsNotFound(t *testing.T) {
	t.Parallel()
	flags := databaseFlags{name: nowhere}
	for text, want := range map[string]string{
		"Row [stl] in table settlement_receipts is missing. Row cannot be updated.": "lacks a row",
		"Table settlement_receipts: Row {Bytes(b\"row\")} not found.":               "lacks a row",
		"Database not found: " + nowhere:                                            "does not exist",
		"Instance not found: projects/p/instances/i":                                "does not exist",
	} {
		wantCode(t, flags.explain(spanner.ToSpannerError(status.Error(codes.NotFound, text))), exitError, want)
	}
}

func TestDatabaseFlags(t *testing.T) {
	t.Parallel()
	for want, flags := range map[string]databaseFlags{
		`--database is miss`:                 {},
		`SPANNER_DATABASE, is "d"`:           {name: "d"},
		`SPANNER_DATABASE_ROLE, is "no way"`: {name: nowhere, role: "no way"},
		`--stale is -1s`:                     {name: nowhere, stale: -time.Second},
		`--stale is 169h0m`:                  {name: nowhere, stale: 169 * time.Hour},
	} {
		if err := flags.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", flags, err, want)
		}
	}
	if err := (databaseFlags{name: nowhere, role: "settleonce_operator", stale: 15 * time.Second}).check(); err != nil {
		t.Error(err)
	}
	if got := (databaseFlags{}).bound(); got != spanner.StrongRead() {
		t.Errorf("without --stale: %v", got)
	}
	if got := (databaseFlags{stale: time.Minute}).bound(); got != spanner.ExactStaleness(time.Minute) {
		t.Errorf("with --stale 1m: %v", got)
	}
}
