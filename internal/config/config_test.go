package config

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const database = "projects/p/instances/i/databases/d"

// fromMap reads a configuration from vars, with the required variable set.
func fromMap(vars map[string]string) (Config, error) {
	return FromEnv(func(name string) (string, bool) {
		if value, ok := vars[name]; ok {
			return value, true
		}
		if name == EnvDatabase {
			return database, true
		}
		return "not set", false
	})
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	want := Config{Database: database, SettleTimeout: 25 * time.Second, LogLevel: slog.LevelInfo, BankConcurrency: 32, Project: "p", Telemetry: Telemetry{Service: "settleonce"}}
	for name, vars := range map[string]map[string]string{
		"unset": {},
		"empty": {EnvDefaultCurrency: "", EnvSettleTimeout: "", EnvLogLevel: "", EnvEmulatorHost: ""},
	} {
		got, err := fromMap(vars)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAllVariablesSet(t *testing.T) {
	t.Parallel()
	got, err := fromMap(map[string]string{
		EnvDatabase: "projects/example.com:p/instances/i-1/databases/d_1", EnvDatabaseRole: "settleonce_function", EnvDefaultCurrency: "KWD",
		EnvSettleTimeout: "1m30s", EnvMaxCommitDelay: "100ms", EnvLogLevel: "warning", EnvEmulatorHost: "127.0.0.1:9010",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Database: "projects/example.com:p/instances/i-1/databases/d_1", DatabaseRole: "settleonce_function", DefaultCurrency: "KWD",
		SettleTimeout: 90 * time.Second, MaxCommitDelay: 100 * time.Millisecond, LogLevel: slog.LevelWarn, EmulatorHost: "127.0.0.1:9010",
		BankConcurrency: 32, Project: "example.com:p", Telemetry: Telemetry{Service: "settleonce"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestLogLevels(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]slog.Level{
		"DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARN": slog.LevelWarn, "WARNING": slog.LevelWarn, "ERROR": slog.LevelError,
	} {
		if got, err := fromMap(map[string]string{EnvLogLevel: text}); err != nil || got.LogLevel != want {
			t.Errorf("%s: %v, %v; want %v", text, got.LogLevel, err, want)
		}
	}
}

func TestBoundsAreAccepted(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]string{EnvSettleTimeout: {"10s", "9m"}, EnvMaxCommitDelay: {"0s", "500ms"}} {
		for _, value := range values {
			if _, err := fromMap(map[string]string{name: value}); err != nil {
				t.Errorf("%s=%s: %v", name, value, err)
			}
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	const (
		head         = "read configuration from the environment:\n"
		databaseForm = "; expected projects/PROJECT/instances/INSTANCE/databases/DATABASE"
		roleForm     = "; expected a database role such as settleonce_function, or empty for the account's own rights"
		bounds       = "; expected 10s to 9m0s, and less than the subscription's ack deadline, which is at most 10m"
		durationForm = "; expected a duration with its unit, such as 25s or 1m30s"
		currencyForm = "; expected an ISO 4217 alphabetic code in upper case such as EUR, or empty for no default"
		levelForm    = "; expected DEBUG, INFO, WARNING or ERROR"
		emulatorForm = "; expected host:port such as 127.0.0.1:9010, or empty for the real service"
		delayBounds  = "; expected 0s to 500ms, Spanner's upper bound"
	)
	tests := []struct {
		name string
		vars map[string]string
		want string
	}{
		{"no database", map[string]string{EnvDatabase: ""}, `SPANNER_DATABASE is not set` + databaseForm},
		{"database ID alone", map[string]string{EnvDatabase: "d"}, `SPANNER_DATABASE is "d"` + databaseForm},
		{
			"database with an empty part",
			map[string]string{EnvDatabase: "projects//instances/i/databases/d"},
			`SPANNER_DATABASE is "projects//instances/i/databases/d"` + databaseForm,
		},
		{
			"database with a newline",
			map[string]string{EnvDatabase: database + "\n"},
			`SPANNER_DATABASE has the character U+000A at byte 35 of 35; expected no space at either end and no invisible character`,
		},
		{"role with a dash", map[string]string{EnvDatabaseRole: "settleonce-function"}, `SPANNER_DATABASE_ROLE is "settleonce-function"` + roleForm},
		{"currency in lower case", map[string]string{EnvDefaultCurrency: "eur"}, `DEFAULT_CURRENCY is "eur"` + currencyForm},
		{"unknown currency", map[string]string{EnvDefaultCurrency: "EURO"}, `DEFAULT_CURRENCY is "EURO"` + currencyForm},
		{"timeout without a unit", map[string]string{EnvSettleTimeout: "25"}, `SETTLE_TIMEOUT is "25"` + durationForm},
		{"timeout too short", map[string]string{EnvSettleTimeout: "9.9s"}, `SETTLE_TIMEOUT is "9.9s"` + bounds},
		{"timeout negative", map[string]string{EnvSettleTimeout: "-25s"}, `SETTLE_TIMEOUT is "-25s"` + bounds},
		{"timeout too long", map[string]string{EnvSettleTimeout: "9m1s"}, `SETTLE_TIMEOUT is "9m1s"` + bounds},
		{"unknown level", map[string]string{EnvLogLevel: "TRACE"}, `LOG_LEVEL is "TRACE"` + levelForm},
		{"commit delay without a unit", map[string]string{EnvMaxCommitDelay: "100"}, `SPANNER_MAX_COMMIT_DELAY is "100"` + durationForm},
		{"commit delay negative", map[string]string{EnvMaxCommitDelay: "-1ms"}, `SPANNER_MAX_COMMIT_DELAY is "-1ms"` + delayBounds},
		{"commit delay too long", map[string]string{EnvMaxCommitDelay: "501ms"}, `SPANNER_MAX_COMMIT_DELAY is "501ms"` + delayBounds},
		{"emulator without a port", map[string]string{EnvEmulatorHost: "localhost"}, `SPANNER_EMULATOR_HOST is "localhost": missing port in address` + emulatorForm},
		{"Pub/Sub emulator without a host", map[string]string{EnvPubSubEmulatorHost: ":9010"}, `PUBSUB_EMULATOR_HOST is ":9010": "" is no host` + emulatorForm},
		{
			"all at once",
			map[string]string{EnvDatabase: "d", EnvDefaultCurrency: "x", EnvSettleTimeout: "x", EnvLogLevel: "x", EnvEmulatorHost: "x", EnvProject: "p\n"},
			`SPANNER_DATABASE is "d"` + databaseForm + "\n" +
				`DEFAULT_CURRENCY is "x"` + currencyForm + "\n" +
				`SETTLE_TIMEOUT is "x"` + durationForm + "\n" +
				`LOG_LEVEL is "x"` + levelForm + "\n" +
				`SPANNER_EMULATOR_HOST is "x": missing port in address` + emulatorForm + "\n" +
				`GOOGLE_CLOUD_PROJECT has the character U+000A at byte 2 of 2; expected no space at either end and no invisible character`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := fromMap(tt.vars)
			if err == nil {
				t.Fatalf("no error; config %+v", got)
			}
			if diff := cmp.Diff(head+tt.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if got != (Config{}) {
				t.Errorf("config %+v beside an error", got)
			}
		})
	}
}

func TestDatabaseRoleLength(t *testing.T) {
	t.Parallel()
	for length, valid := range map[int]bool{0: false, 1: true, 128: true, 129: false} {
		if got := ValidDatabaseRole(strings.Repeat("r", length)); got != valid {
			t.Errorf("a name of %d characters: %v", length, got)
		}
	}
}
