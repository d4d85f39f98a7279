// Package config reads the program's configuration from its environment.
//
// The package exists so that a wrong configuration is found at once and as a
// whole: everything is read in one place, checked together, and every fault is
// reported in one error. Nothing else in the program reads the environment,
// apart from function.go, which looks whether K_SERVICE says that it is deployed,
// and the libraries that read their own variables.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/bank"
	"github.com/settleonce/settleonce/internal/settle/payout"
)

// The variables that are read.
const (
	EnvDatabase        = "SPANNER_DATABASE"
	EnvDatabaseRole    = "SPANNER_DATABASE_ROLE"
	EnvDefaultCurrency = "DEFAULT_CURRENCY"
	EnvSettleTimeout   = "SETTLE_TIMEOUT"
	EnvLogLevel        = "LOG_LEVEL"
	EnvEmulatorHost    = "SPANNER_EMULATOR_HOST"
	EnvProject         = "GOOGLE_CLOUD_PROJECT"

	EnvBankURL           = "BANK_URL"
	EnvBankToken         = "BANK_TOKEN" // the variable's name, not a token
	EnvBankProfile       = "BANK_PROFILE"
	EnvBankKeyLifetime   = "BANK_KEY_LIFETIME"
	EnvBankVisibilityLag = "BANK_VISIBILITY_LAG"
	EnvBankSendTimeout   = "BANK_SEND_TIMEOUT"
	EnvBankStatusTimeout = "BANK_STATUS_TIMEOUT"
	EnvBankConcurrency   = "BANK_CONCURRENCY"
)

// Bounds of the settle timeout. A commit that waits for a lock can take seconds,
// and 5 of them are kept back to find out about a lost answer. The upper bound
// leaves Pub/Sub time to hear the answer: a push that is not answered within the
// subscription's ack deadline, 600 s at most, is delivered again while the first
// delivery still works.
const (
	DefaultSettleTimeout = 25 * time.Second
	MinSettleTimeout     = 10 * time.Second
	MaxSettleTimeout     = 9 * time.Minute
)

// Bounds of the instructions that a run of ReconcileBank works on at a time: each
// is an exchange with the bank that waits, and the bank has limits of its own.
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
	// DatabaseRole is the database role that the program acts in, for an account
	// that may use the database in a role only. Empty means the account's own
	// rights. From SPANNER_DATABASE_ROLE.
	DatabaseRole string
	// DefaultCurrency is the ISO 4217 code for messages that have none. Empty
	// means that such messages are quarantined. From DEFAULT_CURRENCY.
	DefaultCurrency string
	// SettleTimeout is the budget of one delivery. It has to be below the
	// subscription's ack deadline. Defaults to DefaultSettleTimeout. From
	// SETTLE_TIMEOUT.
	SettleTimeout time.Duration
	// LogLevel is the lowest level that is logged. Defaults to INFO. From
	// LOG_LEVEL.
	LogLevel slog.Level
	// EmulatorHost is the host:port of a Spanner emulator. When set, the program
	// is in test mode: the Spanner client, which reads the variable itself,
	// connects to the emulator without credentials. From SPANNER_EMULATOR_HOST.
	EmulatorHost string
	// Bank is the bank that is asked. Nil means that none is configured. From
	// BANK_URL and the other variables that begin with BANK_. Its Now is not set.
	Bank *bank.Config
	// BankConcurrency is how many instructions a run of ReconcileBank works on at a
	// time. Defaults to DefaultBankConcurrency. From BANK_CONCURRENCY.
	BankConcurrency int
	// Project is the ID of the project that traces belong to, for the log. Defaults
	// to the database's. From GOOGLE_CLOUD_PROJECT.
	Project string
	// Telemetry says what is exported by OTLP. From the variables of OpenTelemetry.
	Telemetry Telemetry
}

// FromEnv reads the configuration by lookup, which has the signature of
// os.LookupEnv. A variable that is empty counts as unset. The error names every
// variable that is wrong, what is wrong with it and what is expected, a line
// each; the Config is then the zero value.
func FromEnv(lookup func(string) (string, bool)) (Config, error) {
	env := environment{lookup: lookup}
	c := Config{
		Database:        env.database(),
		DatabaseRole:    env.databaseRole(),
		DefaultCurrency: env.currency(),
		SettleTimeout: env.duration(EnvSettleTimeout, DefaultSettleTimeout, MinSettleTimeout, MaxSettleTimeout,
			", and less than the subscription's ack deadline, which is at most 10m"),
		LogLevel:        env.level(),
		EmulatorHost:    env.emulator(),
		Bank:            env.bank(),
		BankConcurrency: env.count(EnvBankConcurrency, DefaultBankConcurrency, MaxBankConcurrency),
		Telemetry:       env.telemetry(),
	}
	c.Project = env.project(c.Database)
	env.checkDelivery(c)
	if len(env.faults) > 0 {
		return Config{}, fmt.Errorf("read configuration from the environment:\n%w", errors.Join(env.faults...))
	}
	return c, nil
}

// Recording is what a delivery may take beyond settling and its exchanges with the
// bank, for storing what the bank said.
const Recording = 20 * time.Second

// LongestDelivery is the longest that a delivery takes, and an exchange with the
// bank is in it whether there is a bank or not. The function's timeout and the
// subscription's ack deadline have to be above it.
func LongestDelivery(settleTimeout, statusTimeout, sendTimeout time.Duration) time.Duration {
	return settleTimeout + statusTimeout + sendTimeout + Recording
}

// maxAckDeadline is the longest ack deadline of a Pub/Sub subscription.
const maxAckDeadline = 10 * time.Minute

// checkDelivery refuses time limits that together let a delivery outlast every
// ack deadline: it would be delivered again while it still works.
func (e *environment) checkDelivery(c Config) {
	if c.Bank == nil {
		return
	}
	if all := LongestDelivery(c.SettleTimeout, c.Bank.StatusTimeout, c.Bank.SendTimeout); all >= maxAckDeadline {
		e.fault("%s, %s and %s with %v for recording are %v together; expected less than %v, the longest ack deadline",
			EnvSettleTimeout, EnvBankStatusTimeout, EnvBankSendTimeout, Recording, all, maxAckDeadline)
	}
}

// environment reads variables and gathers the faults.
type environment struct {
	lookup func(string) (string, bool)
	faults []error
}

func (e *environment) get(name string) (value string, set bool) {
	if value, set = e.lookup(name); !set || value == "" {
		return "", false
	}
	return value, true
}

func (e *environment) fault(format string, args ...any) {
	e.faults = append(e.faults, fmt.Errorf(format, args...))
}

// databaseName is the shape of a database's full name. Which IDs are allowed is
// Spanner's business; that none is missing is ours, since a database ID alone is
// what people write.
var databaseName = regexp.MustCompile(`^projects/[^/\s]+/instances/[^/\s]+/databases/[^/\s]+$`)

// ValidDatabase reports whether name is a database's full name.
func ValidDatabase(name string) bool { return databaseName.MatchString(name) }

func (e *environment) database() string {
	const expected = "expected projects/PROJECT/instances/INSTANCE/databases/DATABASE"
	value, set := e.get(EnvDatabase)
	switch {
	case !set:
		e.fault("%s is not set; %s", EnvDatabase, expected)
	case !ValidDatabase(value):
		e.fault("%s is %q; %s", EnvDatabase, value, expected)
	}
	return value
}

// project needs no variable in most deployments, and never the metadata server,
// which a request would have to wait for.
func (e *environment) project(database string) string {
	value, set := e.get(EnvProject)
	if !set && ValidDatabase(database) {
		return strings.Split(database, "/")[1]
	}
	return value
}

// databaseRoleName is what Spanner allows as the name of a role, but for its length:
// counting it in the pattern would be the most that this package adds to a cold
// start.
var databaseRoleName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

const maxDatabaseRoleName = 128

// ValidDatabaseRole reports whether Spanner allows name as the name of a role.
func ValidDatabaseRole(name string) bool {
	return len(name) <= maxDatabaseRoleName && databaseRoleName.MatchString(name)
}

func (e *environment) databaseRole() string {
	value, set := e.get(EnvDatabaseRole)
	if set && !ValidDatabaseRole(value) {
		e.fault("%s is %q; expected a database role, such as settleonce_function, or nothing for the account's own rights",
			EnvDatabaseRole, value)
	}
	return value
}

func (e *environment) currency() string {
	value, set := e.get(EnvDefaultCurrency)
	if set && !payout.ValidCurrency(value) {
		e.fault("%s is %q; expected an ISO 4217 alphabetic code in upper case, such as EUR, or nothing for no default",
			EnvDefaultCurrency, value)
	}
	return value
}

// duration reads a duration with its unit. why follows the bounds in the fault of
// one that is outside them.
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
	}
	return d
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
	value, set := e.get(EnvLogLevel)
	if !set {
		return slog.LevelInfo
	}
	switch strings.ToUpper(value) {
	case "DEBUG":
		return slog.LevelDebug
	case "INFO":
		return slog.LevelInfo
	case "WARN", "WARNING":
		return slog.LevelWarn
	case "ERROR":
		return slog.LevelError
	}
	e.fault("%s is %q; expected DEBUG, INFO, WARNING or ERROR", EnvLogLevel, value)
	return slog.LevelInfo
}

func (e *environment) emulator() string {
	value, set := e.get(EnvEmulatorHost)
	if !set {
		return ""
	}
	if host, port, err := net.SplitHostPort(value); err != nil || host == "" || port == "" {
		e.fault("%s is %q; expected host:port, such as 127.0.0.1:9010, or nothing for Spanner itself", EnvEmulatorHost, value)
	}
	return value
}
