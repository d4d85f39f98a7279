package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
)

var instanceName = regexp.MustCompile(`^projects/[a-z0-9.:-]+/instances/[a-z][a-z0-9-]{0,62}[a-z0-9]$`)

// A name has at most 30 characters: this prefix and twelve random ones.
const (
	namePrefix    = "settleonce-bench-"
	randomLetters = 12
)

// createIn creates a database in a real instance and returns its name. The name is
// random, and creating an existing database fails, so a run drops no other database.
func createIn(ctx context.Context, admin *database.DatabaseAdminClient, instance string, statements []string) (string, error) {
	id := namePrefix + strings.ToLower(rand.Text()[:randomLetters])
	op, err := admin.CreateDatabase(ctx, &databasepb.CreateDatabaseRequest{
		Parent: instance, CreateStatement: "CREATE DATABASE `" + id + "`", ExtraStatements: statements,
	})
	if err == nil {
		_, err = op.Wait(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", id, err)
	}
	return instance + "/databases/" + id, nil
}
