package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	adminapi "cloud.google.com/go/spanner/admin/database/apiv1"

	"github.com/settleonce/settleonce/emulator"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/term"
	"github.com/settleonce/settleonce/internal/test/fakebank"
	"github.com/settleonce/settleonce/schema"
)

// closeLimit bounds each step of system.close.
const closeLimit = 10 * time.Second

// system is the local system: bank, emulators and functions.
type system struct {
	project  string // of the database and the topics
	spanner  *emulator.Spanner
	database string
	pubsub   *emulator.PubSub
	bank     *fakebank.Bank
	bankURL  string
	clock    clock // of the bank

	cfg          config.Config // of the functions
	functionsURL string        // without a slash at the end
	failed       chan error    // receives the error of the functions' server

	closers []func(context.Context) error
}

// newSystem returns a system without parts. Its project is "local", or a random one
// where other programs may use the same emulators.
func newSystem() *system {
	sys := &system{project: "local", failed: make(chan error, 1)}
	if os.Getenv(config.EnvEmulatorHost) != "" || os.Getenv(config.EnvPubSubEmulatorHost) != "" {
		sys.project += "-" + strings.ToLower(rand.Text()[:12])
	}
	return sys
}

// start starts the bank, the emulators and the functions, which listen on listen.
// variables are environment variables of the functions.
func (sys *system) start(ctx context.Context, listen string, variables map[string]string, progress *term.Progress) error {
	// Before the emulators start, which takes seconds: a port in use is the likeliest fault.
	l, err := listenLocal(ctx, listen)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := sys.startBank(ctx); err != nil {
		return err
	}
	progress.Begin("Spanner emulator", 0)
	if err := sys.startSpanner(ctx); err != nil {
		return err
	}
	progress.Begin("Pub/Sub emulator", 0)
	if err := sys.startPubSub(ctx); err != nil {
		return err
	}
	progress.Begin("functions", 0)
	maps.Copy(variables, sys.variables())
	for name, value := range variables {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if sys.cfg, err = config.FromEnv(os.LookupEnv); err != nil {
		return err
	}
	return sys.serveFunctions(ctx, l)
}

// variables returns the environment variables by which the functions find the other parts.
func (sys *system) variables() map[string]string {
	return map[string]string{
		config.EnvDatabase: sys.database, config.EnvEmulatorHost: sys.spanner.GRPC,
		config.EnvBankURL: sys.bankURL, config.EnvBankToken: bankToken, config.EnvBankProfile: "",
		// Empty: the framework then serves both functions, each at its own path. With a target it
		// would serve only that function, at the root path.
		"FUNCTION_TARGET": "",
	}
}

// startSpanner starts the Spanner emulator, and creates the database as a
// deployment does.
func (sys *system) startSpanner(ctx context.Context) (err error) {
	if sys.spanner, err = emulator.StartSpanner(ctx); err != nil {
		return err
	}
	sys.onClose(func(context.Context) error { return sys.spanner.Close() }) //nolint:contextcheck // Close has its own limit
	name := "projects/" + sys.project + "/instances/local/databases/settleonce"
	if sys.database, err = sys.spanner.CreateDatabase(ctx, name, nil); err != nil {
		return err
	}
	if sys.spanner.Source == config.EnvEmulatorHost { // this emulator outlives the program
		sys.onClose(func(ctx context.Context) error { return sys.spanner.DropDatabase(ctx, name) })
	}
	admin, err := adminapi.NewDatabaseAdminClient(ctx, sys.spanner.ClientOptions()...)
	if err != nil {
		return fmt.Errorf("apply schema: %w", err)
	}
	defer admin.Close()
	return schema.Apply(ctx, admin, name)
}

// openDatabase returns a new client for the database.
func (sys *system) openDatabase(ctx context.Context) (*spanner.Client, error) {
	cfg := spanner.ClientConfig{DisableNativeMetrics: true}
	client, err := spanner.NewClientWithConfig(ctx, sys.database, cfg, sys.spanner.ClientOptions()...)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", sys.database, err)
	}
	return client, nil
}

// wait returns nil when ctx is done, or the error of a part that ended before.
func (sys *system) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-sys.failed:
		return err
	case <-sys.spanner.Done():
		return sys.spanner.Err()
	case <-sys.pubsub.Done():
		return sys.pubsub.Err()
	}
}

// onClose adds a function that close calls, the last added first.
func (sys *system) onClose(f func(context.Context) error) {
	sys.closers = append(sys.closers, f)
}

// close ends all parts, even if ctx is done.
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
