package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"cloud.google.com/go/spanner"
	adminapi "cloud.google.com/go/spanner/admin/database/apiv1"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/audit"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/test/fakebank"
	"github.com/settleonce/settleonce/internal/test/memstore"
	"github.com/settleonce/settleonce/schema"
)

// closeLimit bounds each step of the end that waits for somebody else.
const closeLimit = 10 * time.Second

// system is what runs: the ledger in Spanner or in memory, the functions, the fake
// bank, and the Pub/Sub emulator if there is one. A part that was not started is
// nil.
type system struct {
	spanner  *emulator.Spanner
	database string
	memory   *memstore.Store // instead of spanner
	pubsub   *emulator.PubSub
	bank     *fakebank.Bank
	bankURL  string
	clock    clock // of the bank and of what is in memory
	// project is where the topics are.
	project   string
	cfg       config.Config
	functions *functions

	closers []func(context.Context) error
}

// environment is what the functions are configured with on this machine.
// Variables that are not fixed come from the process's environment, then from
// the defaults here, then from package config.
type environment struct {
	fixed, defaults map[string]string
}

func (e environment) lookup(name string) (string, bool) {
	if value, ok := e.fixed[name]; ok {
		return value, true
	}
	if value := os.Getenv(name); value != "" {
		return value, true
	}
	value, ok := e.defaults[name]
	return value, ok
}

// export puts the variables where the functions read them.
func (e environment) export() error {
	for _, names := range []map[string]string{e.defaults, e.fixed} {
		for name := range names {
			value, _ := e.lookup(name)
			if err := os.Setenv(name, value); err != nil {
				return fmt.Errorf("set %s: %w", name, err)
			}
		}
	}
	// With a target the framework would serve that one function, at the root path.
	if err := os.Unsetenv("FUNCTION_TARGET"); err != nil {
		return fmt.Errorf("unset FUNCTION_TARGET: %w", err)
	}
	return nil
}

// startSpanner starts the Spanner emulator and creates the database.
func (sys *system) startSpanner(ctx context.Context) error {
	started, err := emulator.StartSpanner(ctx)
	if err != nil {
		return err
	}
	sys.spanner = started
	sys.onClose(func(context.Context) error { return started.Close() }) //nolint:contextcheck // it has a limit of its own
	name := "projects/" + sys.project + "/instances/local/databases/settleonce"
	if sys.database, err = started.CreateDatabase(ctx, name, nil); err != nil {
		return err
	}
	if err := applySchema(ctx, started, name); err != nil {
		return err
	}
	if started.Source == config.EnvEmulatorHost { // it is not ours and goes on
		sys.onClose(func(ctx context.Context) error { return started.DropDatabase(ctx, name) })
	}
	return nil
}

// applySchema brings the new database to the schema in the way that a deployed
// one is.
func applySchema(ctx context.Context, e *emulator.Spanner, database string) error {
	admin, err := adminapi.NewDatabaseAdminClient(ctx, e.ClientOptions()...)
	if err != nil {
		return fmt.Errorf("apply schema: %w", err)
	}
	defer admin.Close()
	return schema.Apply(ctx, admin, database)
}

// startFunctions serves the functions on listen, with the fake bank: under the
// functions framework where there is a database, and on the store in memory
// otherwise.
func (sys *system) startFunctions(ctx context.Context, listen string, env environment, s streams) error {
	if sys.memory == nil {
		env.fixed[config.EnvDatabase], env.fixed[config.EnvEmulatorHost] = sys.database, sys.spanner.GRPC
	} else {
		env.fixed[config.EnvDatabase] = "projects/memory/instances/memory/databases/memory" // it is required
	}
	maps.Copy(env.fixed, sys.bankVariables())
	var err error
	if sys.cfg, err = config.FromEnv(env.lookup); err != nil {
		return err
	}
	if sys.memory != nil {
		sys.functions, err = sys.serveInMemory(ctx, listen, s)
	} else if err = env.export(); err == nil {
		sys.functions, err = serveFramework(ctx, listen)
	}
	if err != nil {
		return err
	}
	sys.onClose(sys.functions.close)
	return nil
}

// read returns everything that the ledger holds.
func (sys *system) read(ctx context.Context) (audit.Snapshot, error) {
	if sys.memory != nil {
		return sys.memory.Snapshot(), nil
	}
	client, err := sys.openDatabase(ctx)
	if err != nil {
		return audit.Snapshot{}, err
	}
	defer client.Close()
	return audit.Read(ctx, client)
}

// openDatabase returns a client of its own for the database.
func (sys *system) openDatabase(ctx context.Context) (*spanner.Client, error) {
	cfg := spanner.ClientConfig{DisableNativeMetrics: true}
	client, err := spanner.NewClientWithConfig(ctx, sys.database, cfg, sys.spanner.ClientOptions()...)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", sys.database, err)
	}
	return client, nil
}

// wait returns nil when ctx is done, and an error when a part ends before that.
func (sys *system) wait(ctx context.Context) error {
	var spannerEnded, pubsubEnded <-chan struct{}
	if sys.spanner != nil {
		spannerEnded = sys.spanner.Done()
	}
	if sys.pubsub != nil {
		pubsubEnded = sys.pubsub.Done()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-sys.functions.failed:
		return err
	case <-spannerEnded:
		return sys.spanner.Err()
	case <-pubsubEnded:
		return sys.pubsub.Err()
	}
}

// onClose adds what close has to do; the last added is done first.
func (sys *system) onClose(f func(context.Context) error) {
	sys.closers = append(sys.closers, f)
}

// close ends everything that was started, also after ctx is done.
func (sys *system) close(ctx context.Context) error {
	var errs []error
	for _, f := range slices.Backward(sys.closers) {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		errs = append(errs, f(limited))
		cancel()
	}
	sys.closers = nil
	return errors.Join(errs...)
}
