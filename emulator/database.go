package emulator

import (
	"context"
	"crypto/rand"
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

// databaseName splits projects/P/instances/I/databases/D. The emulator checks the IDs.
var databaseName = regexp.MustCompile(`^(projects/[^/]+)/instances/([^/]+)/databases/([^/]+)$`)

// CreateDatabase creates a database with the given DDL statements, in one call, and
// its instance if that is absent. It returns the database's full name.
//
// The name is projects/P/instances/I/databases/D; the empty name stands for a fresh
// random one. The call fails if the database exists.
func (s *Spanner) CreateDatabase(ctx context.Context, name string, statements []string) (string, error) {
	if name == "" {
		// 27 of the 30 characters of an ID, the first one a letter.
		name = defaultProject + "/instances/emulator/databases/d" + strings.ToLower(rand.Text())
	}
	m := databaseName.FindStringSubmatch(name)
	if m == nil {
		return "", fmt.Errorf("create database %q: name must be projects/P/instances/I/databases/D", name)
	}
	project, instanceID, databaseID := m[1], m[2], m[3]
	err := s.ensureInstance(ctx, project, instanceID)
	if err == nil {
		err = s.createDatabase(ctx, &databasepb.CreateDatabaseRequest{
			Parent:          project + "/instances/" + instanceID,
			CreateStatement: "CREATE DATABASE `" + databaseID + "`",
			ExtraStatements: statements,
		})
	}
	if err != nil {
		return "", fmt.Errorf("create database %q: %w", name, err)
	}
	return name, nil
}

func (s *Spanner) createDatabase(ctx context.Context, req *databasepb.CreateDatabaseRequest) error {
	client, err := database.NewDatabaseAdminClient(ctx, s.ClientOptions()...)
	if err != nil {
		return err
	}
	defer client.Close()
	op, err := client.CreateDatabase(ctx, req)
	if err == nil {
		_, err = op.Wait(ctx)
	}
	if status.Code(err) == codes.AlreadyExists {
		return fmt.Errorf("%w; drop it or take another name", err)
	}
	return err
}

// DropDatabase drops a database. An absent database is not an error.
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

// ensureInstance creates the instance unless it exists.
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
