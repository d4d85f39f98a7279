package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/api/option"
)

// ErrNotOurs reports a database that this run has not created.
var ErrNotOurs = errors.New("refused: the benchmark works only in databases that it has created itself")

// Databases creates Spanner databases for one run. It uses, and drops, none that it
// has not created: their names are random, and creating fails where there is one of
// that name. It is safe for concurrent use.
type Databases struct {
	instance string
	options  []option.ClientOption

	mu      sync.Mutex
	created map[string]bool
}

var instanceName = regexp.MustCompile(`^projects/[a-z0-9.:-]+/instances/[a-z][a-z0-9-]{0,62}[a-z0-9]$`)

// NewDatabases returns what creates databases in an instance,
// projects/P/instances/I. options lead the admin client there.
func NewDatabases(instance string, options ...option.ClientOption) (*Databases, error) {
	if !instanceName.MatchString(instance) {
		return nil, fmt.Errorf("%q is not an instance: give projects/P/instances/I, in which databases are created and dropped again: %w", instance, ErrNotOurs)
	}
	return &Databases{instance: instance, options: options, created: map[string]bool{}}, nil
}

// namePrefix and twelve random characters: 29 of the 30 that a name may have.
const (
	namePrefix    = "settleonce-bench-"
	randomLetters = 12
)

// Create creates a database with the given DDL statements and returns its name.
func (d *Databases) Create(ctx context.Context, statements []string) (string, error) {
	return d.create(ctx, namePrefix+strings.ToLower(rand.Text()[:randomLetters]), statements)
}

func (d *Databases) create(ctx context.Context, id string, statements []string) (string, error) {
	admin, err := database.NewDatabaseAdminClient(ctx, d.options...)
	if err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	defer admin.Close()
	name := d.instance + "/databases/" + id
	op, err := admin.CreateDatabase(ctx, &databasepb.CreateDatabaseRequest{
		Parent: d.instance, CreateStatement: "CREATE DATABASE `" + id + "`", ExtraStatements: statements,
	})
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	if _, err = op.Wait(ctx); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.created[name] = true
	return name, nil
}

// Drop drops a database that Create returned, and refuses any other with
// [ErrNotOurs].
func (d *Databases) Drop(ctx context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.created[name] {
		return fmt.Errorf("drop database %s: %w", name, ErrNotOurs)
	}
	admin, err := database.NewDatabaseAdminClient(ctx, d.options...)
	if err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	defer admin.Close()
	if err := admin.DropDatabase(ctx, &databasepb.DropDatabaseRequest{Database: name}); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	delete(d.created, name)
	return nil
}

// Left returns the databases that were created and not dropped.
func (d *Databases) Left() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for name := range d.created {
		names = append(names, name)
	}
	return names
}
