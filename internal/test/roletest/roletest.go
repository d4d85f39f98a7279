// Package roletest compares the table accesses of a test with the grants of a
// database role. The Spanner emulator has no roles, so without it a missing grant in
// deploy/database_roles.sql would show only in a deployment.
package roletest

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
)

// Access records the accesses of clients to tables, as "INSERT ledger_movements" or,
// for an update, "UPDATE(expire_from) settlement_receipts". It is safe for concurrent
// use. The zero value is empty.
type Access struct {
	mu   sync.Mutex
	seen map[string]bool
}

// Options make a Spanner client that records its accesses.
func (a *Access) Options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(a.unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(a.stream)),
	}
}

func (a *Access) record(privilege, table string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[string]bool{}
	}
	a.seen[privilege+" "+table] = true
}

// update records every written column, key columns included.
func (a *Access) update(w *spannerpb.Mutation_Write) {
	for _, column := range w.GetColumns() {
		a.record("UPDATE("+column+")", w.GetTable())
	}
}

func (a *Access) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	commit, _ := req.(*spannerpb.CommitRequest)
	for _, m := range commit.GetMutations() {
		switch op := m.GetOperation().(type) {
		case *spannerpb.Mutation_Insert:
			a.record("INSERT", op.Insert.GetTable())
		case *spannerpb.Mutation_Update:
			a.update(op.Update)
		case *spannerpb.Mutation_InsertOrUpdate:
			a.record("INSERT", op.InsertOrUpdate.GetTable())
			a.update(op.InsertOrUpdate)
		case *spannerpb.Mutation_Replace:
			a.record("DELETE", op.Replace.GetTable())
		case *spannerpb.Mutation_Delete_:
			a.record("DELETE", op.Delete.GetTable())
		}
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

func (a *Access) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := streamer(ctx, desc, cc, method, opts...)
	return readStream{s, a}, err
}

type readStream struct {
	grpc.ClientStream
	access *Access
}

// tableOfSQL matches tables, but not UNNEST of an array.
var tableOfSQL = regexp.MustCompile(`(?i)\b(?:from|join)\s+([a-z_]+)\b(?:[^(]|$)`)

func (s readStream) SendMsg(m any) error {
	switch req := m.(type) {
	case *spannerpb.ReadRequest:
		s.access.record("SELECT", req.GetTable())
	case *spannerpb.ExecuteSqlRequest:
		for _, match := range tableOfSQL.FindAllStringSubmatch(req.GetSql(), -1) {
			s.access.record("SELECT", match[1])
		}
	}
	return s.ClientStream.SendMsg(m)
}

var (
	grant     = regexp.MustCompile(`(?m)^GRANT ([^;]+) ON TABLE (\w+) TO ROLE (\w+);$`)
	privilege = regexp.MustCompile(`([A-Z]+)(?:\(([^)]*)\))?`)
	separator = regexp.MustCompile(`,\s*`)
	columns   = regexp.MustCompile(`\(.*\)`)
)

// Lacking returns the recorded accesses that a file of DDL does not grant to the role.
func (a *Access) Lacking(file, role string) ([]string, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the test names the file
	if err != nil {
		return nil, fmt.Errorf("read grants: %w", err)
	}
	granted := map[string]bool{}
	for _, match := range grant.FindAllStringSubmatch(string(text), -1) {
		if match[3] != role {
			continue
		}
		for _, p := range privilege.FindAllStringSubmatch(match[1], -1) {
			for _, column := range separator.Split(p[2], -1) {
				granted[strings.TrimSuffix(p[1]+"("+column+")", "()")+" "+match[2]] = true
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var lacking []string
	for access := range a.seen {
		if !granted[access] && !granted[columns.ReplaceAllString(access, "")] {
			lacking = append(lacking, access)
		}
	}
	slices.Sort(lacking)
	return lacking, nil
}
