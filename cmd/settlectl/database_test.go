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

	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
)

const nowhere = "projects/p/instances/i/databases/d"

func TestOpenDatabase(t *testing.T) {
	t.Parallel()
	flags := databaseFlags{name: emulatortest.Database(t, nil), role: "settleonce_operator", emulator: emulatortest.Spanner(t).GRPC}
	client, err := flags.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	_, err = client.Single().ReadRow(t.Context(), "ledger_movements", spanner.Key{[]byte("k")}, []string{"settlement_id"})
	wantCode(t, flags.explain(err), term.ExitError, "lacks a part of this version's schema", "ledger_movements", "doctor")
}

// wantCode checks the exit code and the text of an error.
func wantCode(t *testing.T, err error, code int, words ...string) {
	t.Helper()
	coded, ok := errors.AsType[*term.CodedError](err)
	if !ok || coded.Code != code {
		t.Fatalf("error %v, want exit code %d", err, code)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q without %q", err, word)
		}
	}
}

func TestOpenMissingDatabase(t *testing.T) {
	t.Parallel()
	name := emulatortest.Database(t, nil)
	for _, wrong := range []string{name + "x", nowhere} {
		_, err := databaseFlags{name: wrong, emulator: emulatortest.Spanner(t).GRPC}.open(t.Context())
		wantCode(t, err, term.ExitError, "database "+wrong+" does not exist", "check --database")
	}
}

// TestOpenSilentDatabase ends the wait by the context, as Ctrl-C does, and by the deadline.
func TestOpenSilentDatabase(t *testing.T) {
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
	wantCode(t, flags.explain(spanner.ToSpannerError(context.DeadlineExceeded)), term.ExitError, "no answer from the emulator at "+flags.emulator)
}

func TestOpenDatabaseWithoutCredentials(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none.json"))
	t.Setenv("SPANNER_EMULATOR_HOST", "")
	if err := os.Unsetenv("SPANNER_EMULATOR_HOST"); err != nil {
		t.Fatal(err)
	}
	_, err := databaseFlags{name: nowhere}.open(t.Context())
	wantCode(t, err, term.ExitError, "open database "+nowhere, "gcloud auth application-default login")
}

func TestNotFound(t *testing.T) {
	t.Parallel()
	flags := databaseFlags{name: nowhere}
	for _, text := range []string{"Database not found: " + nowhere, "Instance not found: projects/p/instances/i"} {
		wantCode(t, flags.explain(spanner.ToSpannerError(status.Error(codes.NotFound, text))), term.ExitError, "does not exist")
	}
}
