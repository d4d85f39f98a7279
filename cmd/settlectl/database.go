package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/spf13/cobra"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/spannerstore"
)

const (
	// answerLimit bounds the wait for Spanner's first answer. The client would try
	// again for ever where nobody listens.
	answerLimit = 15 * time.Second
	// maxStale is the longest that Spanner can be told to keep versions.
	maxStale = 7 * 24 * time.Hour
)

// databaseFlags are the flags of a command that opens the database.
type databaseFlags struct {
	name, role string
	// stale is how old what is read may be; zero: a strong read.
	stale time.Duration
	// emulator is the address of the Spanner emulator; empty: the real Spanner.
	emulator string
}

// databaseFlag adds --database to a command.
func databaseFlag(cmd *cobra.Command, name *string, s streams) {
	cmd.Flags().StringVar(name, "database", s.getenv(config.EnvDatabase),
		"`name` of the database, projects/P/instances/I/databases/D; or set SPANNER_DATABASE")
	if *name == "" {
		markRequired(cmd, "database")
	}
}

// register adds --database and --role to a command.
func (f *databaseFlags) register(cmd *cobra.Command, s streams) {
	f.emulator = s.getenv(config.EnvEmulatorHost)
	databaseFlag(cmd, &f.name, s)
	cmd.Flags().StringVar(&f.role, "role", s.getenv(config.EnvDatabaseRole),
		"database `role` to work as, such as settleonce_operator; else SPANNER_DATABASE_ROLE, else the account's own rights")
}

// registerStale adds --stale to a command that only reads.
func (f *databaseFlags) registerStale(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.stale, "stale", 0, "read what was there so long ago, such as 15s, which any replica can answer; 0 reads what is there now")
}

// check finds flags that are wrong.
func (f databaseFlags) check() error {
	faults := []error{checkDatabaseName(f.name)}
	if f.role != "" && !config.ValidDatabaseRole(f.role) {
		faults = append(faults, wrongf("role", "--role, or SPANNER_DATABASE_ROLE, is %q; give the name of a database role, such as settleonce_operator, or nothing", f.role))
	}
	if f.stale < 0 || f.stale > maxStale {
		faults = append(faults, wrongf("stale", "--stale is %v; give a duration of 0 to %v", f.stale, maxStale))
	}
	return errors.Join(faults...)
}

func checkDatabaseName(name string) error {
	if name == "" {
		return wrongf("database", "--database is missing; give projects/P/instances/I/databases/D, or set SPANNER_DATABASE")
	}
	if !config.ValidDatabase(name) {
		return wrongf("database", "--database, or SPANNER_DATABASE, is %q; give projects/P/instances/I/databases/D", name)
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

// options lead a Spanner client to the emulator, where there is one.
func (f databaseFlags) options() []option.ClientOption {
	if f.emulator == "" {
		return nil
	}
	return []option.ClientOption{
		option.WithEndpoint("passthrough:///" + f.emulator),
		option.WithoutAuthentication(),
		option.WithTelemetryDisabled(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

// storeConfig opens the database as a store.
func (f databaseFlags) storeConfig() spannerstore.Config {
	return spannerstore.Config{Database: f.name, DatabaseRole: f.role, Emulator: f.emulator != "", Options: f.options()}
}

// open opens the database, and waits until it has answered.
func (f databaseFlags) open(ctx context.Context) (*spanner.Client, error) {
	client, err := spanner.NewClientWithConfig(ctx, f.name, spanner.ClientConfig{
		DatabaseRole: f.role, DisableNativeMetrics: true,
	}, f.options()...)
	if err != nil {
		return nil, failf("open database %s: %w; %s", f.name, err, accessHint)
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

// accessHint says what to do about missing credentials, which are what a
// client asks for before it connects.
const accessHint = "run 'gcloud auth application-default login', or set GOOGLE_APPLICATION_CREDENTIALS to a file that can be read"

// explain says in words of this tool what Spanner answered. Errors that are not
// Spanner's pass.
func (f databaseFlags) explain(err error) error {
	if coded, ok := errors.AsType[*codedError](err); ok {
		return coded
	}
	text := spanner.ErrDesc(err)
	switch code := spanner.ErrCode(err); {
	case strings.Contains(text, "Table not found"), strings.Contains(text, "index on table"), strings.Contains(text, "index not found"):
		return failf("database %s lacks a part of this version's schema: %s; apply the files of schema/ (settlectl doctor names all that is missing)", f.name, text)
	case code == codes.NotFound && missingRow.MatchString(text):
		return failf("database %s lacks a row that the change belongs to, and nothing was changed: %s; settlectl verify tells what else is missing", f.name, text)
	case code == codes.NotFound:
		return failf("database %s does not exist: %s; check --database", f.name, text)
	case code == codes.PermissionDenied:
		return failf("database %s: not allowed%s: %s; roles/spanner.databaseReader or fine-grained access to a role is needed", f.name, f.asRole(), text)
	case code == codes.Unauthenticated:
		return failf("database %s: the credentials are not accepted: %w; %s", f.name, err, accessHint)
	case code == codes.DeadlineExceeded, code == codes.Unavailable:
		return failf("database %s: no answer%s within %v: %w", f.name, f.atEmulator(), answerLimit, err)
	}
	return failf("database %s: %w", f.name, err)
}

// missingRow is how Spanner, and its emulator, say that a row to be updated is not
// there. The code is the one of a database that is not there.
var missingRow = regexp.MustCompile(`(?i)\btable\b.*\brow\b|\brow\b.*\bin table\b`)

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
	return fmt.Sprintf(" from the emulator at %s (SPANNER_EMULATOR_HOST)", f.emulator)
}
