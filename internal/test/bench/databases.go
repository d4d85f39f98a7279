package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/api/option"
)

// errNotOurs reports a database that this run has not created.
var errNotOurs = errors.New("refused: the benchmark uses only databases that it has created itself")

// databases creates databases in a real Spanner instance. It drops only databases that
// it has created: their names are random, and creating an existing one fails.
type databases struct {
	instance string
	admin    *database.DatabaseAdminClient
	created  map[string]bool
}

var instanceName = regexp.MustCompile(`^projects/[a-z0-9.:-]+/instances/[a-z][a-z0-9-]{0,62}[a-z0-9]$`)

// openDatabases returns the databases of an instance, projects/P/instances/I. options are
// those of the admin client.
func openDatabases(ctx context.Context, instance string, options ...option.ClientOption) (*databases, error) {
	if !instanceName.MatchString(instance) {
		return nil, fmt.Errorf("instance %q: use projects/P/instances/I: %w", instance, errNotOurs)
	}
	admin, err := database.NewDatabaseAdminClient(ctx, options...)
	return &databases{instance: instance, admin: admin, created: map[string]bool{}}, err
}

// A name has at most 30 characters: this prefix and twelve random ones.
const (
	namePrefix    = "settleonce-bench-"
	randomLetters = 12
)

// create creates a database with the given DDL statements and returns its name.
func (d *databases) create(ctx context.Context, statements []string) (string, error) {
	return d.createNamed(ctx, namePrefix+strings.ToLower(rand.Text()[:randomLetters]), statements)
}

func (d *databases) createNamed(ctx context.Context, id string, statements []string) (string, error) {
	name := d.instance + "/databases/" + id
	op, err := d.admin.CreateDatabase(ctx, &databasepb.CreateDatabaseRequest{
		Parent: d.instance, CreateStatement: "CREATE DATABASE `" + id + "`", ExtraStatements: statements,
	})
	if err == nil {
		_, err = op.Wait(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	d.created[name] = true
	return name, nil
}

// drop drops a database of create, and rejects any other with errNotOurs.
func (d *databases) drop(ctx context.Context, name string) error {
	err := errNotOurs
	if d.created[name] {
		err = d.admin.DropDatabase(ctx, &databasepb.DropDatabaseRequest{Database: name})
	}
	if err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	delete(d.created, name)
	return nil
}

// close drops the remaining databases.
func (d *databases) close(ctx context.Context) error {
	var errs []error
	for name := range d.created {
		errs = append(errs, d.drop(ctx, name))
	}
	return errors.Join(append(errs, d.admin.Close())...)
}
