package emulator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instance "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrDatabaseExists is in the error of [Spanner.CreateDatabase] when there is a
// database of that name.
var ErrDatabaseExists = errors.New("database exists")

// databaseName is projects/P/instances/I/databases/D with Spanner's rules for the IDs.
var databaseName = regexp.MustCompile(
	`^(projects/[a-z0-9.:-]+)/instances/([a-z][a-z0-9-]{0,62}[a-z0-9])/databases/([a-z][a-z0-9_-]{0,28}[a-z0-9])$`)

// CreateDatabase creates a database with the given DDL statements, in one call, and
// its instance when that is absent. It returns the database's full name.
//
// The name is projects/P/instances/I/databases/D; the empty name is a fresh random
// one that no other caller gets. A database of that name is an error that is
// [ErrDatabaseExists], with the database left as it is.
func (s *Spanner) CreateDatabase(ctx context.Context, name string, statements []string) (string, error) {
	if name == "" {
		// 27 of the 30 characters that an ID may have, the first one a letter.
		name = defaultProject + "/instances/emulator/databases/d" + strings.ToLower(rand.Text())
	}
	m := databaseName.FindStringSubmatch(name)
	if m == nil {
		return "", fmt.Errorf("create database %q: name must be projects/P/instances/I/databases/D, "+
			"with lower-case IDs of at least 2 characters, D of at most 30", name)
	}
	project, instanceID, databaseID := m[1], m[2], m[3]
	if err := s.ensureInstance(ctx, project, instanceID); err != nil {
		return "", fmt.Errorf("create database %q: %w", name, err)
	}
	err := s.createDatabase(ctx, &databasepb.CreateDatabaseRequest{
		Parent:          project + "/instances/" + instanceID,
		CreateStatement: "CREATE DATABASE `" + databaseID + "`",
		ExtraStatements: statements,
	})
	if status.Code(err) == codes.AlreadyExists {
		return "", fmt.Errorf("create database %q: %w: drop it or take another name", name, ErrDatabaseExists)
	}
	if err != nil {
		return "", fmt.Errorf("create database %q: %w", name, err)
	}
	return name, nil
}

// DropDatabase drops a database that CreateDatabase returned. Dropping one that is
// not there is not an error.
func (s *Spanner) DropDatabase(ctx context.Context, name string) error {
	client, err := database.NewDatabaseAdminClient(ctx, s.ClientOptions()...)
	if err != nil {
		return fmt.Errorf("drop database %q: %w", name, err)
	}
	defer client.Close()
	err = client.DropDatabase(ctx, &databasepb.DropDatabaseRequest{Database: name})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("drop database %q: %w", name, err)
	}
	return nil
}

// ensureInstance creates the instance unless it exists, perhaps since a moment ago.
func (s *Spanner) ensureInstance(ctx context.Context, project, id string) error {
	client, err := instance.NewInstanceAdminClient(ctx, s.ClientOptions()...)
	if err != nil {
		return fmt.Errorf("create instance %q: %w", id, err)
	}
	defer client.Close()
	op, err := client.CreateInstance(ctx, &instancepb.CreateInstanceRequest{
		Parent:     project,
		InstanceId: id,
		Instance: &instancepb.Instance{
			Config:      project + "/instanceConfigs/emulator-config",
			DisplayName: id,
			NodeCount:   1,
		},
	})
	if err == nil {
		_, err = op.Wait(ctx)
	}
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("create instance %q: %w", id, err)
	}
	return nil
}

// createDatabase returns the client's error as it is, for its code.
func (s *Spanner) createDatabase(ctx context.Context, req *databasepb.CreateDatabaseRequest) error {
	client, err := database.NewDatabaseAdminClient(ctx, s.ClientOptions()...)
	if err != nil {
		return err
	}
	defer client.Close()
	op, err := client.CreateDatabase(ctx, req)
	if err != nil {
		return err
	}
	_, err = op.Wait(ctx)
	return err
}
