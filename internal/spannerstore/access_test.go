package spannerstore_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
)

// access is what the stores of this package's tests have done to tables, as
// "INSERT ledger_movements". The deployed function may do in the database what its
// role is granted and nothing else, and the emulator knows no roles: TestMain
// compares the two.
var access = &tableAccess{seen: map[string]bool{}}

type tableAccess struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (a *tableAccess) note(privilege, table string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen[privilege+" "+table] = true
}

func (a *tableAccess) options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(a.unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(a.stream)),
	}
}

func (a *tableAccess) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if commit, is := req.(*spannerpb.CommitRequest); is {
		for _, m := range commit.GetMutations() {
			switch op := m.GetOperation().(type) {
			case *spannerpb.Mutation_Insert:
				a.note("INSERT", op.Insert.GetTable())
			case *spannerpb.Mutation_Update:
				a.note("UPDATE", op.Update.GetTable())
			case *spannerpb.Mutation_InsertOrUpdate:
				a.note("INSERT", op.InsertOrUpdate.GetTable())
				a.note("UPDATE", op.InsertOrUpdate.GetTable())
			case *spannerpb.Mutation_Replace:
				a.note("DELETE", op.Replace.GetTable())
			case *spannerpb.Mutation_Delete_:
				a.note("DELETE", op.Delete.GetTable())
			}
		}
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

func (a *tableAccess) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := streamer(ctx, desc, cc, method, opts...)
	return readStream{s, a}, err
}

type readStream struct {
	grpc.ClientStream
	access *tableAccess
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

var grantToFunction = regexp.MustCompile(`(?m)^GRANT ([A-Z, ]+) ON TABLE (\w+) TO ROLE settleonce_function;$`)

// lackingGrants returns what was done and is not granted.
func lackingGrants() []string {
	text, err := os.ReadFile("../../deploy/database_roles.sql")
	if err != nil {
		return []string{err.Error()}
	}
	granted := map[string]bool{}
	for _, match := range grantToFunction.FindAllStringSubmatch(string(text), -1) {
		for privilege := range strings.SplitSeq(match[1], ", ") {
			granted[privilege+" "+match[2]] = true
		}
	}
	var lacking []string
	for done := range access.seen {
		if !granted[done] {
			lacking = append(lacking, done)
		}
	}
	slices.Sort(lacking)
	return lacking
}
