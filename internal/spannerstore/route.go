package spannerstore

import (
	"context"
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
	used    []*grpc.ClientConn // since the latest timeout
	avoided []*grpc.ClientConn // in use when an attempt timed out
	commits int                // requests since the latest call of repeated
}

// routeKey is the context key of a *route.
type routeKey struct{}

func (r *route) avoidUsed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.avoided, r.used = append(r.avoided, r.used...), nil
}

// repeated reports whether more than one Commit was sent since its latest call. Then the
// error of the last one proves nothing about the others: the client library repeats a
// Commit whose answer was lost.
func (r *route) repeated() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.commits
	r.commits = 0
	return n > 1
}

// suspicion is the time in which all calls avoid a connection that one call avoided. gRPC
// itself gives a dead connection up after 140 s, by the keepalive of the client library.
const suspicion = time.Minute

// routed returns options for one client. Its pool takes the connections in turn, without
// regard to dead ones; the options replace a connection that calls avoid.
func routed() []option.ClientOption {
	var (
		mu       sync.Mutex
		known    []*grpc.ClientConn // connections of the pool, as far as calls have used them
		suspects = map[*grpc.ClientConn]time.Time{}
	)
	pick := func(ctx context.Context, method string, choice *grpc.ClientConn) *grpc.ClientConn {
		r, ok := ctx.Value(routeKey{}).(*route)
		if !ok { // a call of the client library itself
			return choice
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(known, choice) {
			known = append(known, choice)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		now := time.Now()
		for _, suspect := range r.avoided {
			if now.Sub(suspects[suspect]) > suspicion {
				suspects[suspect] = now
			}
		}
		own := func(cc *grpc.ClientConn) bool { return !slices.Contains(r.avoided, cc) }
		healthy := func(cc *grpc.ClientConn) bool { return own(cc) && now.Sub(suspects[cc]) > suspicion }
		candidates := append([]*grpc.ClientConn{choice}, known...)
		if i := slices.IndexFunc(candidates, healthy); i >= 0 {
			choice = candidates[i]
		} else if i := slices.IndexFunc(candidates, own); i >= 0 {
			choice = candidates[i]
		}
		if path.Base(method) == "Commit" {
			r.commits++
		}
		r.used = append(r.used, choice)
		return choice
	}
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				return invoke(ctx, method, req, reply, pick(ctx, method, cc), opts...)
			})),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(
			func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				return streamer(ctx, desc, pick(ctx, method, cc), method, opts...)
			})),
	}
}
