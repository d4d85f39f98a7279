// Package roletest compares what a test does to tables with what a database role
// is granted.
//
// It exists because the emulator knows no roles: a right that deploy/database_roles.sql
// forgets would show in a deployment only.
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

// Access is what clients have done to tables, as "INSERT ledger_movements" or, of an
// update, "UPDATE(expire_from) settlement_receipts". It is safe for concurrent use.
// The zero value has seen nothing.
type Access struct {
	mu   sync.Mutex
	seen map[string]bool
}

// update notes each column that is written, those that the row is found by too.
func (a *Access) update(w *spannerpb.Mutation_Write) {
	for _, column := range w.GetColumns() {
		a.note("UPDATE("+column+")", w.GetTable())
	}
}

func (a *Access) note(privilege, table string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = map[string]bool{}
	}
	a.seen[privilege+" "+table] = true
}

// Options make a Spanner client whose work is seen.
func (a *Access) Options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(a.unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(a.stream)),
	}
}

func (a *Access) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if commit, is := req.(*spannerpb.CommitRequest); is {
		for _, m := range commit.GetMutations() {
			switch op := m.GetOperation().(type) {
			case *spannerpb.Mutation_Insert:
				a.note("INSERT", op.Insert.GetTable())
			case *spannerpb.Mutation_Update:
				a.update(op.Update)
			case *spannerpb.Mutation_InsertOrUpdate:
				a.note("INSERT", op.InsertOrUpdate.GetTable())
				a.update(op.InsertOrUpdate)
			case *spannerpb.Mutation_Replace:
				a.note("DELETE", op.Replace.GetTable())
			case *spannerpb.Mutation_Delete_:
				a.note("DELETE", op.Delete.GetTable())
			}
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

// tableOfSQL finds tables, and not UNNEST of an array.
var tableOfSQL = regexp.MustCompile(`(?i)\b(?:from|join)\s+([a-z_]+)\b(?:[^(]|$)`)

func (s readStream) SendMsg(m any) error {
	switch req := m.(type) {
	case *spannerpb.ReadRequest:
		s.access.note("SELECT", req.GetTable())
	case *spannerpb.ExecuteSqlRequest:
		for _, match := range tableOfSQL.FindAllStringSubmatch(req.GetSql(), -1) {
			s.access.note("SELECT", match[1])
		}
	}
	return s.ClientStream.SendMsg(m)
}

var (
	grant     = regexp.MustCompile(`(?m)^GRANT ([^;]+) ON TABLE (\w+) TO ROLE (\w+);$`)
	privilege = regexp.MustCompile(`([A-Z]+)(?:\(([^)]*)\))?`)
	separator = regexp.MustCompile(`,\s*`)
)

// Lacking returns what was done and is not granted to the role in a file of DDL. It
// fails where the file cannot be read.
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
				granted[p[1]+"("+column+") "+match[2]] = true // no column: all of them
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var lacking []string
	for done := range a.seen {
		what, table, _ := strings.Cut(done, " ")
		whole, _, _ := strings.Cut(what, "(")
		if !granted[done] && !granted[whole+"() "+table] {
			lacking = append(lacking, done)
		}
	}
	slices.Sort(lacking)
	return lacking, nil
}
