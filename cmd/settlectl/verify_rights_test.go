package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/settleonce/settleonce/internal/audit"
)

// calls records the requests of a client to Spanner.
type calls struct {
	mu     sync.Mutex
	unary  map[string]bool
	tables map[string]bool
	sql    []string
	low    bool // every read is of low priority
}

func (c *calls) options() []option.ClientOption {
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		c.mu.Lock()
		c.unary[method[strings.LastIndex(method, "/")+1:]] = true
		c.mu.Unlock()
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	stream := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, method, opts...)
		return sent{s, c}, err
	}
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(stream)),
	}
}

type sent struct {
	grpc.ClientStream

	calls *calls
}

func (s sent) SendMsg(m any) error {
	s.calls.mu.Lock()
	switch req := m.(type) {
	case *spannerpb.ReadRequest:
		s.calls.tables[req.GetTable()] = true
		s.calls.low = s.calls.low && req.GetRequestOptions().GetPriority() == spannerpb.RequestOptions_PRIORITY_LOW
	case *spannerpb.ExecuteSqlRequest:
		s.calls.sql = append(s.calls.sql, req.GetSql())
	}
	s.calls.mu.Unlock()
	return s.ClientStream.SendMsg(m)
}

// TestVerifyNeedsTheOperatorsRightsOnly inspects the requests of verify, because the
// emulator has no roles.
func TestVerifyNeedsTheOperatorsRightsOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fillLedger()
	seen := &calls{unary: map[string]bool{}, tables: map[string]bool{}, low: true}
	client, err := spanner.NewClientWithConfig(t.Context(), f.database.name, spanner.ClientConfig{DisableNativeMetrics: true},
		append(f.database.options(), seen.options()...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := audit.Run(t.Context(), client, audit.Options{Found: func(audit.Finding) error { return nil }}); err != nil {
		t.Fatal(err)
	}
	roles, err := os.ReadFile("../../deploy/database_roles.sql")
	if err != nil {
		t.Fatal(err)
	}
	for table := range seen.tables {
		grant := regexp.MustCompile(`(?m)^GRANT SELECT\b.* ON TABLE ` + table + ` TO ROLE settleonce_operator;$`)
		if !grant.Match(roles) {
			t.Errorf("settleonce_operator may not read %s", table)
		}
	}
	delete(seen.unary, "CreateSession")
	delete(seen.unary, "DeleteSession")
	if len(seen.unary) > 0 || len(seen.tables) != len(storedTables) || !seen.low {
		t.Errorf("calls beside reads: %v; tables %v, want %v; low priority %t", seen.unary, seen.tables, storedTables, seen.low)
	}
	if len(seen.sql) != 1 || !strings.Contains(seen.sql[0], "INFORMATION_SCHEMA.TABLES") {
		t.Errorf("queries %q; want one, of the schema", seen.sql)
	}
}
