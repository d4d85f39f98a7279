package linear_test

import (
	"context"
	"path"
	"strings"
	"sync"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settleonce/settleonce/internal/test/linear"
)

// wire lies between one client and Spanner and loses what goes over it, at
// random. It counts what it has lost, and what the emulator has aborted.
type wire struct {
	mu      sync.Mutex
	intN    func(n int) int
	counted linear.Tally
	late    []lateCommit
	sending sync.WaitGroup
}

// lateCommit is a Commit that still has to reach Spanner.
type lateCommit struct {
	after int // that many further Commits of the client
	send  func()
}

// What a wire counts, and what has to happen in a test of it.
const (
	answerLost    = "answer of a Commit lost"
	requestLost   = "Commit lost"
	requestLate   = "Commit late"
	arrivedLate   = "Commit late, and written all the same"
	readLost      = "read lost"
	callerGone    = "caller gone"
	abortInjected = "abort injected by the emulator"
	abortOther    = "abort of one of two transactions"
)

func newWire(intN func(n int) int) *wire { return &wire{intN: intN, counted: linear.Tally{}} }

func (w *wire) options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(w.unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(w.stream)),
	}
}

// callerKey is the key in a context of the function that makes its caller go away.
type callerKey struct{}

// fault is what happens to one RPC. The zero value is nothing.
type fault struct {
	what string
	err  error
	gone bool // the caller goes away
}

// lost are the errors by which requests and answers get lost. The client acts on
// some of them itself.
var lost = []error{
	status.Error(codes.Unavailable, "lost"),
	status.Error(codes.DeadlineExceeded, "lost"),
	status.Error(codes.Internal, "lost"),
	status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"),
	status.Error(codes.Unknown, "lost"),
	status.Error(codes.Canceled, "lost"),
	status.Error(codes.ResourceExhausted, "lost"),
}

// draw draws the fault of an RPC. Each of the kinds comes in so many percent.
func (w *wire) draw(percent int, kinds ...string) fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.intN(100) / percent
	if i >= len(kinds) {
		return fault{}
	}
	f := fault{what: kinds[i], err: lost[w.intN(len(lost))], gone: w.intN(2) == 0}
	if f.what == requestLate { // a caller that stays settles by another Commit, and the late one finds that
		f.gone = w.intN(4) > 0
	}
	w.counted[f.what]++
	if f.gone {
		w.counted[callerGone]++
	}
	return f
}

func (w *wire) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counted[what]++
}

func (w *wire) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if path.Base(method) != "Commit" {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	w.release(1)
	percent := 4
	if req.(*spannerpb.CommitRequest).GetSingleUseTransaction() != nil { //nolint:forcetypeassert // Commit has no other request
		percent = 12 // most of these find that the settlement is known, and then there is nothing to lose
	}
	f := w.draw(percent, answerLost, requestLost, requestLate)
	switch f.what {
	case requestLate:
		w.hold(func() {
			// The options belong to the call that has failed: they say where its headers go.
			err := invoke(context.WithoutCancel(ctx), method, req, new(spannerpb.CommitResponse), cc)
			if w.aborts(err); err == nil {
				w.count(arrivedLate)
			}
		})
	case requestLost:
	default:
		err := invoke(ctx, method, req, reply, cc, opts...)
		if w.aborts(err); f.what == "" {
			return err
		}
	}
	return w.fail(ctx, f)
}

func (w *wire) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := w.fail(ctx, w.draw(8, readLost)); err != nil {
		return nil, err
	}
	return streamer(ctx, desc, cc, method, opts...)
}

// fail returns the error of a fault, after what else it does.
func (w *wire) fail(ctx context.Context, f fault) error {
	if f.gone {
		ctx.Value(callerKey{}).(context.CancelFunc)() //nolint:forcetypeassert // every delivery has one
	}
	return f.err
}

// aborts counts the transactions that the emulator has aborted.
func (w *wire) aborts(err error) {
	switch s := status.Convert(err); {
	case s.Code() != codes.Aborted:
	case strings.Contains(s.Message(), "to mimic production behavior"):
		w.count(abortInjected)
	default:
		w.count(abortOther)
	}
}

// hold holds a Commit back until some more have gone by.
func (w *wire) hold(send func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = append(w.late, lateCommit{1 + w.intN(4), send})
}

// release sends what is late, by so many Commits.
func (w *wire) release(commits int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := w.late[:0]
	for _, l := range w.late {
		if l.after -= commits; l.after > 0 {
			held = append(held, l)
			continue
		}
		w.sending.Go(l.send)
	}
	w.late = held
}

// flush sends everything that is late, and waits until it has arrived.
func (w *wire) flush() {
	w.release(1 << 30)
	w.sending.Wait()
}
