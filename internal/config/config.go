// Package config reads the program's configuration from its environment.
//
// It reads and checks all variables together and reports every fault in one error,
// so that one failed start names all that is wrong. No other code of the function
// reads the environment, except the libraries that have variables of their own.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// The variables of the function.
const (
	EnvDatabase        = "SPANNER_DATABASE"
	EnvDatabaseRole    = "SPANNER_DATABASE_ROLE"
	EnvDefaultCurrency = "DEFAULT_CURRENCY"
	EnvSettleTimeout   = "SETTLE_TIMEOUT"
	EnvMaxCommitDelay  = "SPANNER_MAX_COMMIT_DELAY"
	EnvLogLevel        = "LOG_LEVEL"
	EnvProject         = "GOOGLE_CLOUD_PROJECT"

	EnvBankURL           = "BANK_URL"
	EnvBankToken         = "BANK_TOKEN"
	EnvBankProfile       = "BANK_PROFILE"
	EnvBankKeyLifetime   = "BANK_KEY_LIFETIME"
	EnvBankVisibilityLag = "BANK_VISIBILITY_LAG"
	EnvBankSendTimeout   = "BANK_SEND_TIMEOUT"
	EnvBankStatusTimeout = "BANK_STATUS_TIMEOUT"
	EnvBankConcurrency   = "BANK_CONCURRENCY"
)

// Bounds of the settle timeout. A commit that waits for a lock can take seconds,
// and the store reserves 5 of them to resolve a lost answer. The upper bound is below
// the longest ack deadline, 600 s: Pub/Sub redelivers a push that the function has
// not answered within the subscription's ack deadline.
const (
	DefaultSettleTimeout = 25 * time.Second
	minSettleTimeout     = 10 * time.Second
	maxSettleTimeout     = 9 * time.Minute
)

// MaxCommitDelay is Spanner's upper bound of a commit delay.
const MaxCommitDelay = 500 * time.Millisecond

// Bounds of the instructions that one run of ReconcileBank processes concurrently.
// Each waits for one bank request, and banks limit concurrent requests.
const (
	DefaultBankConcurrency = 32
	MaxBankConcurrency     = 1000
)

// Config is the program's configuration. The zero value is not valid; [FromEnv]
// makes valid ones.
type Config struct {
	// Database is the Spanner database, as projects/P/instances/I/databases/D.
	// From SPANNER_DATABASE; required.
	Database string
	// DatabaseRole is the database role that the program acts in. Empty: the service
	// account's own rights. From SPANNER_DATABASE_ROLE.
	DatabaseRole string
	// DefaultCurrency is the ISO 4217 code for messages without one. Empty: such
	// messages are quarantined. From DEFAULT_CURRENCY.
	DefaultCurrency string
	// SettleTimeout bounds settling, with the read after a lost answer. [LongestDelivery]
	// adds the send; the ack deadline has to be above it. Defaults to DefaultSettleTimeout. From SETTLE_TIMEOUT.
	SettleTimeout time.Duration
	// MaxCommitDelay lets Spanner delay a settling commit, to commit more of them together.
	// At most 500 ms; zero means no delay. From SPANNER_MAX_COMMIT_DELAY.
	MaxCommitDelay time.Duration
	// LogLevel is the lowest logged level. Defaults to INFO. From LOG_LEVEL.
	LogLevel slog.Level
	// EmulatorHost is the host:port of a Spanner emulator. If it is set, the Spanner
	// client connects there without credentials. Always empty in a deployed instance.
	// From SPANNER_EMULATOR_HOST, which the client reads itself.
	EmulatorHost string
	// Bank is the bank's configuration without its clock; nil: no bank. From BANK_URL
	// and the other variables that begin with BANK_.
	Bank *bank.Config
	// BankConcurrency bounds the instructions that a run of ReconcileBank processes
	// concurrently. Defaults to DefaultBankConcurrency. From BANK_CONCURRENCY.
	BankConcurrency int
	// Project is the ID of the project in the log's trace names. Defaults to the
	// database's project. From GOOGLE_CLOUD_PROJECT.
	Project string
	// Telemetry selects the exports by OTLP. From the variables of OpenTelemetry.
	Telemetry Telemetry
}

// FromEnv reads the configuration with lookup, which has the signature of
// os.LookupEnv. An empty variable counts as unset. The error has a line for each
// wrong variable, with its value and the expected form; the Config is then the zero
// value.
func FromEnv(lookup func(string) (string, bool)) (Config, error) {
	env := environment{lookup: lookup}
	c := Config{
		Database: env.database(),
		DatabaseRole: env.text(EnvDatabaseRole, ValidDatabaseRole,
			"a database role such as settleonce_function, or empty for the account's own rights"),
		DefaultCurrency: env.text(EnvDefaultCurrency, payout.ValidCurrency,
			"an ISO 4217 alphabetic code in upper case such as EUR, or empty for no default"),
		SettleTimeout: env.duration(EnvSettleTimeout, DefaultSettleTimeout, minSettleTimeout, maxSettleTimeout,
			", and less than the subscription's ack deadline, which is at most 10m"),
		MaxCommitDelay:  env.duration(EnvMaxCommitDelay, 0, 0, MaxCommitDelay, ", Spanner's upper bound"),
		LogLevel:        env.level(),
		EmulatorHost:    env.emulator(EnvEmulatorHost),
		Bank:            env.bank(),
		BankConcurrency: env.count(EnvBankConcurrency, DefaultBankConcurrency, MaxBankConcurrency),
		Telemetry:       env.telemetry(),
	}
	c.Project = env.project(c.Database)
	env.emulator(EnvPubSubEmulatorHost)
	env.checkTimes(c)
	for _, name := range libraryVariables {
		env.get(name)
	}
	if len(env.faults) > 0 {
		return Config{}, fmt.Errorf("read configuration from the environment:\n%w", errors.Join(env.faults...))
	}
	return c, nil
}

// environment reads variables and collects the faults.
type environment struct {
	lookup func(string) (string, bool)
	faults []error
	// invisible names the variables with a fault of [checkVisible].
	invisible []string
}

// get returns a variable's value. It reports invisible characters and returns the value
// without them, so that a variable has one fault for one cause.
func (e *environment) get(name string) (value string, set bool) {
	if value, set = e.lookup(name); !set {
		return "", false
	}
	if err := checkVisible(value); err != nil {
		if !slices.Contains(e.invisible, name) {
			e.invisible = append(e.invisible, name)
			e.fault("%s %w", name, err)
		}
		value = visible(value)
	}
	return value, value != ""
}

func (e *environment) fault(format string, args ...any) {
	e.faults = append(e.faults, fmt.Errorf(format, args...))
}

// databaseName is the form of a database's full name. Spanner checks the IDs.
var databaseName = regexp.MustCompile(`^projects/[^/\s]+/instances/[^/\s]+/databases/[^/\s]+$`)

// ValidDatabase reports whether name is a database's full name.
func ValidDatabase(name string) bool { return databaseName.MatchString(name) }

func (e *environment) database() string {
	const form = "projects/PROJECT/instances/INSTANCE/databases/DATABASE"
	value := e.text(EnvDatabase, ValidDatabase, form)
	if value == "" {
		e.fault("%s is not set; expected %s", EnvDatabase, form)
	}
	return value
}

// project does not ask the metadata server, because a request would wait for it.
func (e *environment) project(database string) string {
	value, set := e.get(EnvProject)
	if !set && ValidDatabase(database) {
		return strings.Split(database, "/")[1]
	}
	return value
}

// databaseRoleName is Spanner's form of a role's name, without its length: a counted
// repetition would be this package's largest part of a cold start.
var databaseRoleName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

const maxDatabaseRoleName = 128

// ValidDatabaseRole reports whether Spanner allows name as the name of a role.
func ValidDatabaseRole(name string) bool {
	return len(name) <= maxDatabaseRoleName && databaseRoleName.MatchString(name)
}

// text reads a variable; the empty text if it is unset.
func (e *environment) text(name string, valid func(string) bool, expected string) string {
	value, set := e.get(name)
	if set && !valid(value) {
		e.fault("%s is %q; expected %s", name, value, expected)
	}
	return value
}

// duration reads a duration with its unit. The fault of a duration outside the bounds
// ends in why.
func (e *environment) duration(name string, byDefault, least, most time.Duration, why string) time.Duration {
	value, set := e.get(name)
	if !set {
		return byDefault
	}
	d, err := time.ParseDuration(value)
	switch {
	case err != nil:
		e.fault("%s is %q; expected a duration with its unit, such as 25s or 1m30s", name, value)
	case d < least || d > most:
		e.fault("%s is %q; expected %v to %v%s", name, value, least, most, why)
	default:
		return d
	}
	return byDefault
}

// count reads a whole number from 1 to most.
func (e *environment) count(name string, byDefault, most int) int {
	value, set := e.get(name)
	if !set {
		return byDefault
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		e.fault("%s is %q; expected a whole number from 1 to %d", name, value, most)
	}
	return n
}

func (e *environment) level() slog.Level {
	levels := map[string]slog.Level{
		"DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARN": slog.LevelWarn, "WARNING": slog.LevelWarn, "ERROR": slog.LevelError,
	}
	known := func(value string) bool { _, is := levels[strings.ToUpper(value)]; return is }
	return levels[strings.ToUpper(e.text(EnvLogLevel, known, "DEBUG, INFO, WARNING or ERROR"))] // the zero level is INFO
}
