package linear_test

import (
	"context"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/test/linear"
)

// connection connects one client with Spanner. It loses and delays requests and answers
// at random, and counts these faults and the emulator's aborts.
type connection struct {
	mu      sync.Mutex
	intN    func(n int) int
	counted linear.Tally
	late    []lateCommit
	sending sync.WaitGroup
}

// lateCommit is a delayed Commit.
type lateCommit struct {
	after int // so many further Commits of the client
	send  func()
}

// The events that a connection counts.
const (
	answerLost    = "answer of a Commit lost"
	requestLost   = "Commit lost"
	requestLate   = "Commit late"
	arrivedLate   = "Commit late, and written"
	readLost      = "read lost"
	callerGone    = "caller left"
	deadCommit    = "Commit over a dead connection"
	deadArrived   = "Commit over a dead connection, and written"
	deadRead      = "read over a dead connection"
	abortInjected = "abort injected by the emulator"
	abortOther    = "abort of a concurrent transaction"
)

func newConnection(intN func(n int) int) *connection {
	return &connection{intN: intN, counted: linear.Tally{}}
}

func (c *connection) options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(c.unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(c.stream)),
	}
}

// callerKey is the context key of the delivery's *caller.
type callerKey struct{}

// caller is who waits for a delivery.
type caller struct {
	leave  context.CancelFunc
	unsure atomic.Bool // a Commit had no answer, or was sent again
}

func callerOf(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*caller) } //nolint:forcetypeassert // every delivery has one

// connectionFault is the fault of one RPC. The zero value is none.
type connectionFault struct {
	kind string
	err  error
	gone bool // the caller leaves
}

// lost are the client's errors for lost requests and answers. The client retries after
// some of them.
var lost = []error{
	status.Error(codes.Unavailable, "lost"),
	status.Error(codes.DeadlineExceeded, "lost"),
	status.Error(codes.Internal, "lost"),
	status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"),
	status.Error(codes.Unknown, "lost"),
	status.Error(codes.Canceled, "lost"),
	status.Error(codes.ResourceExhausted, "lost"),
}

// draw draws the fault of an RPC. Each kind has the probability percent.
func (c *connection) draw(percent int, kinds ...string) connectionFault {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.intN(100) / percent
	if i >= len(kinds) {
		return connectionFault{}
	}
	f := connectionFault{kind: kinds[i], err: lost[c.intN(len(lost))], gone: c.intN(2) == 0}
	if f.kind == requestLate { // a caller that stays settles by another Commit before the late one arrives
		f.gone = c.intN(4) > 0
	}
	c.counted[f.kind]++
	if f.gone {
		c.counted[callerGone]++
	}
	return f
}

func (c *connection) count(event string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted[event]++
}

func (c *connection) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if path.Base(method) != "Commit" {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	c.release(1)
	if c.one(deadIn) {
		return c.commitOverDeadConnection(ctx, func() error {
			return invoke(context.WithoutCancel(ctx), method, req, new(spannerpb.CommitResponse), cc)
		})
	}
	percent := 4
	if req.(*spannerpb.CommitRequest).GetSingleUseTransaction() != nil { //nolint:forcetypeassert // Commit has no other request
		percent = 12 // most of these fail, because the settlement exists, and cannot lose a success
	}
	f := c.draw(percent, answerLost, requestLost, requestLate)
	switch f.kind {
	case requestLate:
		c.hold(func() {
			// opts have the address for the headers of the failed call.
			err := invoke(context.WithoutCancel(ctx), method, req, new(spannerpb.CommitResponse), cc)
			if c.countAbort(err); err == nil {
				c.count(arrivedLate)
			}
		})
	case requestLost:
	default:
		err := invoke(ctx, method, req, reply, cc, opts...)
		if code := status.Code(err); code != codes.OK && code != codes.AlreadyExists {
			callerOf(ctx).unsure.Store(true)
		}
		if c.countAbort(err); f.kind == "" {
			return err
		}
	}
	callerOf(ctx).unsure.Store(true)
	return c.fail(ctx, f)
}

// deadIn is the number of RPCs of which one meets a dead connection.
const deadIn = 40

func (c *connection) one(in int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.intN(in) == 0
}

// commitOverDeadConnection sends the Commit or not, and carries no answer: the call lasts
// until the limit of its attempt.
func (c *connection) commitOverDeadConnection(ctx context.Context, send func() error) error {
	c.count(deadCommit)
	callerOf(ctx).unsure.Store(true)
	if !c.one(3) {
		if err := send(); err == nil {
			c.count(deadArrived)
		}
	}
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

func (c *connection) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if c.one(deadIn) {
		c.count(deadRead)
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err := c.fail(ctx, c.draw(8, readLost)); err != nil {
		return nil, err
	}
	return streamer(ctx, desc, cc, method, opts...)
}

// fail cancels the delivery if the caller leaves, and returns the fault's error.
func (c *connection) fail(ctx context.Context, f connectionFault) error {
	if f.gone {
		callerOf(ctx).leave()
	}
	return f.err
}

// countAbort counts err if it says that the emulator aborted a transaction.
func (c *connection) countAbort(err error) {
	switch s := status.Convert(err); {
	case s.Code() != codes.Aborted:
	case strings.Contains(s.Message(), "to mimic production behavior"):
		c.count(abortInjected)
	default:
		c.count(abortOther)
	}
}

// hold delays a Commit until some more have passed.
func (c *connection) hold(send func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = append(c.late, lateCommit{1 + c.intN(4), send})
}

// release sends the Commits that wait for at most so many others.
func (c *connection) release(commits int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.late[:0]
	for _, l := range c.late {
		if l.after -= commits; l.after > 0 {
			held = append(held, l)
			continue
		}
		c.sending.Go(l.send)
	}
	c.late = held
}

// flush sends all delayed Commits, and waits for their answers.
func (c *connection) flush() {
	c.release(1 << 30)
	c.sending.Wait()
}
