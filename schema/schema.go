// Package schema has the database's DDL in numbered files, and the JSON Schema of
// the payout message.
//
// Every statement can run twice: it creates an absent object and leaves an existing
// one unchanged. To change an existing table, add a file with the next number and the
// same property; do not edit released files.
package schema

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
)

//go:embed *.sql
var files embed.FS

// PayoutV1 is the JSON Schema (2020-12) of payout message version 1, for producers. It
// accepts some messages that the function rejects: JSON Schema cannot forbid a
// repeated member or an exponent in an integer, and does not list the currencies.
//
//go:embed payout.v1.schema.json
var PayoutV1 []byte

// Statements returns the DDL statements of all files in order, without comments.
func Statements() ([]string, error) {
	names, err := fs.Glob(files, "*.sql") // sorted by their numbers, which have leading zeros
	if err != nil {
		return nil, fmt.Errorf("list schema files: %w", err)
	}
	var statements []string
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read schema: %w", err)
		}
		statements = append(statements, split(string(text))...)
	}
	return statements, nil
}

// split cuts a file at its semicolons. The package's test keeps semicolons and double
// dashes out of literals.
func split(text string) []string {
	var code strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimRight(line, " \n"); line != "" {
			code.WriteString(line + "\n")
		}
	}
	var statements []string
	for statement := range strings.SplitSeq(code.String(), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			statements = append(statements, statement)
		}
	}
	return statements
}

// Apply updates the database projects/P/instances/I/databases/D to this schema and
// waits for the end of the update. After an interrupted run, another one completes it.
func Apply(ctx context.Context, admin *database.DatabaseAdminClient, name string) error {
	statements, err := Statements()
	if err != nil {
		return err
	}
	update, err := admin.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{Database: name, Statements: statements})
	if err != nil {
		return fmt.Errorf("apply schema to %s: %w", name, err)
	}
	if err := update.Wait(ctx); err != nil {
		return fmt.Errorf("apply schema to %s: %w", name, err)
	}
	return nil
}
