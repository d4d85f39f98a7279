package contender

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/settleonce/settleonce/internal/settle"
)

// database is a Spanner client that avoids the emulator's faults.
type database struct {
	*spanner.Client
	lock chan struct{} // held by a read-write transaction; nil: real instance
}

func (p Place) open(ctx context.Context) (database, error) {
	client, err := spanner.NewClientWithConfig(ctx, p.Database, spanner.ClientConfig{DisableNativeMetrics: true}, p.spannerOptions()...)
	if err != nil {
		return database{}, fmt.Errorf("open spanner database %s: %w", p.Database, err)
	}
	d := database{Client: client}
	if p.Emulator != "" {
		d.lock = make(chan struct{}, 1)
	}
	return d, nil
}

// readWrite runs fn in a read-write transaction.
func (d database) readWrite(ctx context.Context, fn func(context.Context, *spanner.ReadWriteTransaction) error) error {
	if d.lock != nil {
		select {
		case d.lock <- struct{}{}:
			defer func() { <-d.lock }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := d.ReadWriteTransaction(ctx, fn)
	return err
}

// readWriteSettler settles each message in one read-write transaction.
type readWriteSettler struct {
	database
	decide func(ctx context.Context, tx *spanner.ReadWriteTransaction, p delivery) (settle.Outcome, error)
}

// Settle implements Settler.
func (s *readWriteSettler) Settle(ctx context.Context, message []byte) (outcome settle.Outcome, err error) {
	p, err := decode(message)
	if err != nil {
		return settle.OutcomeUnknown, err
	}
	err = s.readWrite(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) (err error) {
		outcome, err = s.decide(ctx, tx, p)
		return err
	})
	if err != nil {
		return settle.OutcomeUnknown, err
	}
	return outcome, nil
}

// spannerOptions returns the options of a client. Without a retry delay from the server
// the client pauses for 20 ms and more after an abort. Spanner aborts rarely, but the
// emulator aborts all but one of several concurrent commits. So with the emulator an
// interceptor adds a short retry delay to each abort.
func (p Place) spannerOptions() []option.ClientOption {
	if p.Emulator == "" {
		return p.Options
	}
	interceptor := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return withRetryDelay(invoke(ctx, method, req, reply, cc, opts...))
	}
	return append([]option.ClientOption{
		option.WithEndpoint("passthrough:///" + p.Emulator), // no name resolution, no proxy of the environment
		option.WithoutAuthentication(),
		option.WithTelemetryDisabled(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(interceptor)),
	}, p.Options...)
}

// withRetryDelay adds a retry delay of a millisecond to an Aborted error.
func withRetryDelay(err error) error {
	if status.Code(err) != codes.Aborted {
		return err
	}
	s, detailErr := status.Convert(err).WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
	if detailErr != nil {
		return err
	}
	return s.Err()
}

// countSpanner counts the rows of a table for each settlement ID.
func (p Place) countSpanner(ctx context.Context, table string) (map[string]int, error) {
	db, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	counts := map[string]int{}
	err = db.Single().Read(ctx, table, spanner.AllKeys(), []string{"settlement_id"}).Do(func(row *spanner.Row) error {
		var id string
		err := row.Columns(&id)
		counts[id]++
		return err
	})
	return counts, err
}
