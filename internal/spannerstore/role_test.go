package spannerstore_test

import (
	"context"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/settleonce/settleonce/internal/spannerstore"
	"github.com/settleonce/settleonce/internal/test/emulatortest"
	"github.com/settleonce/settleonce/internal/test/storetest"
)

// The test reads the request, because the emulator ignores roles.
func TestSessionsHaveTheDatabaseRole(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	for _, want := range []string{"", "settleonce_function"} {
		var role atomic.Pointer[string]
		watch := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if session, is := req.(*spannerpb.CreateSessionRequest); is {
				role.Store(new(session.GetSession().GetCreatorRole()))
			}
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		store, err := spannerstore.Open(t.Context(), spannerstore.Config{
			Database: b.database, DatabaseRole: want, Emulator: true,
			Options: append(emulatortest.Spanner(t).ClientOptions(), option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(watch))),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if _, err := store.Settle(t.Context(), storetest.NewSettlement(t, plain)); err != nil {
			t.Fatal(err)
		}
		switch got := role.Load(); {
		case got == nil:
			t.Error("no session was seen")
		case *got != want:
			t.Errorf("role of the session %q, want %q", *got, want)
		}
	}
}
