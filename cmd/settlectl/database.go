package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/spf13/cobra"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/ledger"
	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/term"
)

const (
	// answerLimit bounds the wait for Spanner's first answer, because the client retries a
	// closed port for ever.
	answerLimit = 15 * time.Second
	// maxStale is Spanner's maximum version retention period.
	maxStale = 7 * 24 * time.Hour
)

// databaseFlags are the flags of a command that opens the database.
type databaseFlags struct {
	name, role string
	// stale is the age of the data to read; 0: a strong read.
	stale time.Duration
	// emulator is the address of the Spanner emulator; empty: the real Spanner.
	emulator string
}

// databaseFlag adds --database to a command.
func databaseFlag(cmd *cobra.Command, name *string, s streams) {
	cmd.Flags().StringVar(name, "database", s.getenv(config.EnvDatabase),
		"`name` of the database, projects/P/instances/I/databases/D; default: SPANNER_DATABASE")
	if *name == "" {
		require(cmd, "database")
	}
}

// register adds --database and --role to a command.
func (f *databaseFlags) register(cmd *cobra.Command, s streams) {
	f.emulator = s.getenv(config.EnvEmulatorHost)
	databaseFlag(cmd, &f.name, s)
	cmd.Flags().StringVar(&f.role, "role", s.getenv(config.EnvDatabaseRole),
		"database `role`, such as settleonce_operator; default: SPANNER_DATABASE_ROLE, else the account's own rights")
}

// registerStale adds --stale to a command that only reads.
func (f *databaseFlags) registerStale(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.stale, "stale", 0, "read the data of this age, such as 15s, from any replica; 0: the latest data")
}

func (f databaseFlags) check() error {
	faults := []error{checkDatabaseName(f.name)}
	if f.role != "" && !config.ValidDatabaseRole(f.role) {
		faults = append(faults, fmt.Errorf("--role, or SPANNER_DATABASE_ROLE, is %q; give the name of a database role, such as settleonce_operator, or nothing", f.role))
	}
	if f.stale < 0 || f.stale > maxStale {
		faults = append(faults, fmt.Errorf("--stale is %v; give a duration of 0 to %v", f.stale, maxStale))
	}
	return errors.Join(faults...)
}

func checkDatabaseName(name string) error {
	if !config.ValidDatabase(name) {
		return fmt.Errorf("--database, or SPANNER_DATABASE, is %q; give projects/P/instances/I/databases/D", name)
	}
	return nil
}

// bound is the timestamp bound of the command's reads.
func (f databaseFlags) bound() spanner.TimestampBound {
	if f.stale > 0 {
		return spanner.ExactStaleness(f.stale)
	}
	return spanner.StrongRead()
}

// options connect a Spanner client to the emulator, if there is one.
func (f databaseFlags) options() []option.ClientOption {
	if f.emulator == "" {
		return nil
	}
	return (&emulator.Spanner{GRPC: f.emulator}).ClientOptions()
}

// storeConfig returns the configuration of a store on the database.
func (f databaseFlags) storeConfig() spannerstore.Config {
	return spannerstore.Config{Database: f.name, DatabaseRole: f.role, Emulator: f.emulator != "", Options: f.options()}
}

// open opens the database and waits for its first answer.
func (f databaseFlags) open(ctx context.Context) (*spanner.Client, error) {
	client, err := spanner.NewClientWithConfig(ctx, f.name, spanner.ClientConfig{
		DatabaseRole: f.role, DisableNativeMetrics: true,
	}, f.options()...)
	if err != nil {
		return nil, term.Failf("open database %s: %w; %s", f.name, err, accessHint)
	}
	asked, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	err = client.Single().Query(asked, spanner.Statement{SQL: "SELECT 1"}).Do(func(*spanner.Row) error { return nil })
	if err != nil {
		client.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, f.explain(err)
	}
	return client, nil
}

// operation is a command on the database, with its flags and streams.
type operation struct {
	streams

	database databaseFlags
	output   outputFlags
}

// register adds the flags of the database, and the forms of the result.
func (o *operation) register(cmd *cobra.Command, forms ...string) {
	o.database.register(cmd, o.streams)
	o.output.register(cmd, forms...)
}

// read opens the database for reading, and calls f until it returns or the process is
// interrupted. faults are those of the command's other flags.
func (o *operation) read(ctx context.Context, faults error, f func(context.Context, ledger.Reader) error) error {
	if err := errors.Join(o.database.check(), o.output.check(), faults); err != nil {
		return err
	}
	return interruptible(ctx, func(ctx context.Context) error {
		client, err := o.database.open(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		return f(ctx, ledger.Reader{Client: client, Bound: o.database.bound()})
	})
}

// print prints a result as JSON or as facts.
func (o *operation) print(value any, facts func() [][2]string) error {
	if o.output.form == outputJSON {
		return printJSON(o.Out, value)
	}
	return printFacts(o.streams, facts())
}

// accessHint is the remedy for missing credentials, which a client reads before it
// connects.
const accessHint = "run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS to a readable file"

// explain adds the next step to an error of Spanner. It keeps a [term.CodedError].
func (f databaseFlags) explain(err error) error {
	if coded, ok := errors.AsType[*term.CodedError](err); ok {
		return coded
	}
	text := spanner.ErrDesc(err)
	switch code := spanner.ErrCode(err); {
	case strings.Contains(text, "Table not found"), strings.Contains(text, "index on table"), strings.Contains(text, "index not found"):
		return term.Failf("database %s lacks a part of this version's schema: %s; run settlectl doctor and apply the missing files of schema/", f.name, text)
	case code == codes.NotFound:
		return term.Failf("database %s does not exist: %s; check --database", f.name, text)
	case code == codes.PermissionDenied:
		return term.Failf("database %s: not allowed%s: %s; roles/spanner.databaseReader or fine-grained access to a role is needed", f.name, f.asRole(), text)
	case code == codes.Unauthenticated:
		return term.Failf("database %s: Spanner rejected the credentials: %w; %s", f.name, err, accessHint)
	case code == codes.DeadlineExceeded, code == codes.Unavailable:
		return term.Failf("database %s: no answer%s within %v: %w", f.name, f.atEmulator(), answerLimit, err)
	}
	return term.Failf("database %s: %w", f.name, err)
}

func (f databaseFlags) asRole() string {
	if f.role == "" {
		return ""
	}
	return fmt.Sprintf(" as role %s", f.role)
}

func (f databaseFlags) atEmulator() string {
	if f.emulator == "" {
		return ""
	}
	return fmt.Sprintf(" from the emulator at %s (%s)", f.emulator, config.EnvEmulatorHost)
}
