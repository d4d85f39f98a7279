package spannerstore

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
)

// route records the connections and the Commits of one call of the store.
type route struct {
	mu      sync.Mutex
	avoided []*grpc.ClientConn // on which a request timed out
	commits int                // requests since the latest call of repeated
}

// routeKey is the context key of a *route.
type routeKey struct{}

// withRoute returns ctx with the record of the call, and the record.
func withRoute(ctx context.Context) (context.Context, *route) {
	if r, ok := ctx.Value(routeKey{}).(*route); ok {
		return ctx, r
	}
	r := &route{}
	return context.WithValue(ctx, routeKey{}, r), r
}

// repeated reports whether more than one Commit was sent since the previous call of
// repeated. If so, the last error proves nothing about the earlier Commits: the client
// library repeats a Commit whose answer was lost.
func (r *route) repeated() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.commits
	r.commits = 0
	return n > 1
}

// suspicion is the time in which all calls avoid a connection on which a request timed
// out. gRPC itself gives a dead connection up after 140 s, by the keepalive of the client
// library.
const suspicion = time.Minute

// pool are the connections of one client. The client library takes them in turn, without
// regard to dead ones.
type pool struct {
	mu       sync.Mutex
	known    []*grpc.ClientConn // as far as requests have used them
	suspects map[*grpc.ClientConn]bool
	turn     int

	// begin returns the connection for a request: the library's choice, or another one
	// if this call or every call avoids that connection. commit counts a Commit.
	begin func(r *route, choice *grpc.ClientConn, commit bool) *grpc.ClientConn
	// end ends a request. One that ends with its attempt had no answer.
	end func(ctx context.Context, r *route, cc *grpc.ClientConn)
}

// errAttemptOver is the cause of the end of an attempt's context.
var errAttemptOver = errors.New("no answer from Spanner within the limit of an attempt")

func newPool() *pool {
	p := &pool{suspects: map[*grpc.ClientConn]bool{}}
	p.begin = func(r *route, choice *grpc.ClientConn, commit bool) *grpc.ClientConn {
		p.mu.Lock()
		defer p.mu.Unlock()
		r.mu.Lock()
		defer r.mu.Unlock()
		if !slices.Contains(p.known, choice) {
			p.known = append(p.known, choice)
		}
		if commit {
			r.commits++
		}
		own := func(cc *grpc.ClientConn) bool { return !slices.Contains(r.avoided, cc) }
		healthy := func(cc *grpc.ClientConn) bool { return own(cc) && !p.suspects[cc] }
		for _, usable := range [...]func(*grpc.ClientConn) bool{healthy, own} {
			if usable(choice) {
				return choice
			}
			if others := slices.DeleteFunc(slices.Clone(p.known), func(cc *grpc.ClientConn) bool { return !usable(cc) }); len(others) > 0 {
				p.turn++
				return others[p.turn%len(others)]
			}
		}
		return choice
	}
	p.end = func(ctx context.Context, r *route, cc *grpc.ClientConn) {
		if !errors.Is(context.Cause(ctx), errAttemptOver) {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.avoided = append(r.avoided, cc)
		if !p.suspects[cc] {
			p.suspects[cc] = true
			time.AfterFunc(suspicion, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				delete(p.suspects, cc)
			})
		}
	}
	return p
}

// options make the client's requests avoid dead connections.
//
// A request that belongs to no call of the store creates a session or ends a transaction.
// The library gives it 30 s. limit ends it earlier, so that a waiting call can create the
// session over another connection within its own attempt.
func (p *pool) options(limit time.Duration) []option.ClientOption {
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		r, called := ctx.Value(routeKey{}).(*route)
		if !called {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, limit, errAttemptOver)
			defer cancel()
			r = &route{}
		}
		cc = p.begin(r, cc, path.Base(method) == "Commit")
		err := invoke(ctx, method, req, reply, cc, opts...)
		p.end(ctx, r, cc)
		return err
	}
	stream := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		r, called := ctx.Value(routeKey{}).(*route)
		if !called {
			return streamer(ctx, desc, cc, method, opts...)
		}
		cc = p.begin(r, cc, false)
		s, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil {
			p.end(ctx, r, cc)
			return nil, err
		}
		return &answeredStream{ClientStream: s, answered: sync.OnceFunc(func() { p.end(ctx, r, cc) })}, nil
	}
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(stream)),
	}
}

// answeredStream reports the first answer.
type answeredStream struct {
	grpc.ClientStream

	answered func()
}

// RecvMsg implements [grpc.ClientStream].
func (s *answeredStream) RecvMsg(m any) error {
	defer s.answered()
	return s.ClientStream.RecvMsg(m)
}
