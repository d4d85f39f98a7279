// Package schema holds the database: its DDL in numbered files, and the JSON
// Schema of the message that fills it.
//
// Every statement can be run twice: it creates what is not there and leaves
// alone what is. A change to a table that exists comes as a new file with the
// next number, written the same way; files that have been released are not
// edited.
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

// PayoutV1 is the JSON Schema (2020-12) of payout message version 1, for
// producers. It is a little more lenient than the function: JSON Schema cannot
// say that no member may stand twice, that an amount is written in plain digits,
// or which currency codes exist.
//
//go:embed payout.v1.schema.json
var PayoutV1 []byte

// Statements returns the DDL statements of all files, in order, without
// comments.
func Statements() ([]string, error) {
	names, err := fs.Glob(files, "*.sql") // sorted, and the numbers have leading zeros
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

// split cuts a file at its semicolons. No statement holds a semicolon or two
// dashes in a literal, which the package's test watches over.
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

// Apply brings the database, projects/P/instances/I/databases/D, to this schema,
// and waits until it is there. Running it again, or after a run that broke off,
// does what is still to be done.
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
